"""JailedConfigs: which files they come to (`files`), and when Slurm has to read them (`updates`)."""

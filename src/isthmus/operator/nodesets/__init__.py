"""NodeSets: worker pods that are Slurm nodes."""

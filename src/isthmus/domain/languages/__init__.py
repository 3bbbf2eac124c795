"""Small languages: host lists, durations, quantities, slurm.conf."""

"""The operator: Slurm clusters in pods, from custom resources."""

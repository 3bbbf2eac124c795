"""Pods without a node become Slurm jobs, and the nodes that Slurm gives become bindings."""

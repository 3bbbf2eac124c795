"""Keeps the nodes of Kubernetes and of Slurm in step, both ways."""

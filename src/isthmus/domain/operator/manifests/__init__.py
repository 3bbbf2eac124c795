"""The Kubernetes objects of each part of a Slurm cluster, made by pure functions."""

"""Caches of Kubernetes and Slurm, and the look-ups between them."""

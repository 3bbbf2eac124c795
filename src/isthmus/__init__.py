"""Isthmus joins Slurm and Kubernetes, both ways."""

__version__ = "0.1.0"

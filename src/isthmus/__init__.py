"""Isthmus joins Slurm and Kubernetes, both ways."""

__version__ = "0.2.0"

"""Kubernetes on Slurm: pods in managed namespaces are placed by slurmctld."""

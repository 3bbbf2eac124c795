"""Pods and their Slurm jobs, from the binding to the end of both: whichever ends first takes the other with it."""

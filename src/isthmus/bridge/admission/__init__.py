"""Admission webhooks of the bridge: they hand new pods to Slurm, and refuse what Slurm cannot do."""

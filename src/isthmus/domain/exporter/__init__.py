"""What the exporter exposes: every family, and how each follows from what Slurm says. No clock, no I/O."""

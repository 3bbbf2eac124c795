"""What runs in a pod: one file per process, which puts its parts together."""

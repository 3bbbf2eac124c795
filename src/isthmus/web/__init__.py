"""The web page: one process that shows Slurm and Kubernetes together, live.

Slurm ─► poller ───┐
                   ├─► state (rows, trails) ─► hub: one feed per audience ─► viewers (server-sent events)
Kubernetes ─► informers ─┘

Viewers cost Slurm and the API server nothing: what they see comes from caches that are kept for all of them.
"""

"""The exporter: metrics of one Slurm cluster, rendered from memory.

Slurm ─► poller and slow collectors ─► families kept as text ─► /metrics
                    │
                    └► job transitions ─► counters and histograms, usage records
"""

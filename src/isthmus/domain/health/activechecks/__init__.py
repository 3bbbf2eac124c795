"""Decisions about ActiveChecks: what is made of one, when a run may start, where it runs, and what it found.

ActiveCheck ─► manifests: CronJob, ConfigMap      Job ─► gate ─► choice: which nodes
                                                   │
  status ◄─ results ◄─ bisection ◄─ outcomes ◄─ Slurm jobs ◄─ requests ◄─ plan

`health.activechecks` and `health.checkjobs` act on them.
"""

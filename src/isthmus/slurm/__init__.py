"""Slurm over its REST daemon, as calls and as a change stream; knows nothing of Kubernetes.

transport    one request to whichever slurmrestd answers: fail-over, tokens, dead connections
versions     which API version the server speaks, and what only newer ones can do
client       the calls to slurmctld, submission exactly once among them
accounting   the calls to slurmdbd
poller       jobs and nodes as stores that tell what changed, and whether Slurm is in touch
auth         where tokens come from
errors       Slurm's error numbers as Retry, Wait and Terminal
"""

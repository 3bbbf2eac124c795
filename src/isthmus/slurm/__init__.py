"""Slurm over its REST daemon, as calls and as a change stream; knows nothing of Kubernetes.

    http1        HTTP with a server that may answer twice
    transport    one request to whichever slurmrestd answers: fail-over and tokens
    versions     which API version the server speaks, and what only newer ones can do
    calls        a call in that version: path, answer, errors
    client       the calls to slurmctld
    allocation   jobs that start at once, by a helper that tells their nodes
    completion   jobs that end as their pods did, by the same helper
    submitter    exactly one job per key, whatever is lost
    accounting   the calls to slurmdbd
    poller       jobs and nodes as stores that tell what changed, and whether Slurm is in touch
    auth         where tokens come from
    errors       Slurm's error numbers as Retry, Wait and Terminal

Most code needs `client.connect` and `poller.Poller`.
"""

"""What the command line inspects.

snapshot    Kubernetes and Slurm as they are at this moment
explain     where one pod stands
status      the bridge as a whole
doctor      what is wrong with a Slurm cluster
cluster*    one Slurm cluster: its facts, its status, the way in, and how it is created, refreshed and deleted
"""

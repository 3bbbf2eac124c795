"""Puts parts together: one file per process, and what the commands for people look at.

addresses   where a process listens
bridge      the processes of the bridge
snapshot    both worlds as they are at this moment
explain     where one pod stands
status      how the bridge fares as a whole
"""

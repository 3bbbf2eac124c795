"""The batch script that holds nodes for pods, where Slurm has no external jobs.

The kubelets run what the pods are; the script only waits, so that the nodes stay allocated, and ends as it is told:
a job that is merely cancelled would leave no trace of whether its pods succeeded.

    URG     exit 0   the job is COMPLETED
    WINCH   exit 1   the job is FAILED

These are signals that do nothing to a process that has no trap for them. One that comes before the script has begun
is lost, and its sender repeats it until the job is over; any other would end the job right there as failed.
"""

from typing import Final

SUCCEED: Final = "URG"
FAIL: Final = "28"
"""WINCH. Slurm does not know it by name, and cancels the job when it is given a name that it does not know."""

SCRIPT: Final = """\
#!/bin/sh
trap 'exit 0' URG
trap 'exit 1' WINCH
# A shell heeds a signal only between two commands, but in the middle of a wait.
while :; do
    sleep 86400 &
    wait $!
done
"""

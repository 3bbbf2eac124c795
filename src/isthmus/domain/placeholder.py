"""The batch script that holds nodes for pods, where Slurm has no external jobs.

The kubelets run what the pods are; the script only waits, so that the nodes stay allocated, and ends as it is told:
a job that is merely cancelled would leave no trace of whether its pods succeeded.

    USR1   exit 0   the job is COMPLETED
    USR2   exit 1   the job is FAILED

A signal that comes before the script has begun is lost, so whoever sends one repeats it until the job is over.
"""

from typing import Final

SUCCEED: Final = "USR1"
FAIL: Final = "USR2"

SCRIPT: Final = f"""\
#!/bin/sh
trap 'exit 0' {SUCCEED}
trap 'exit 1' {FAIL}
# A shell heeds a signal only between two commands, but in the middle of a wait.
while :; do
    sleep 86400 &
    wait $!
done
"""

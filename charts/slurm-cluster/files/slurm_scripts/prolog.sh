#!/bin/sh
# Slurm runs this before a job, as root, outside of the shared root. With 1 the job goes back to the queue.
here=${0%/*}
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
export PATH CHECKS_CONTEXT=prolog CHECKS_CONFIG="$here/checks.json"
if ! command -v python3 > /dev/null || [ ! -r "$here/check_runner.py" ]; then
    echo "prolog.sh: nothing is checked: python3 or $here/check_runner.py is missing on this node" >&2
    exit 0
fi
python3 -IS "$here/check_runner.py"
# Anything but this is trouble of the runner, for which no job is to suffer.
[ $? -ne 10 ] || exit 1
exit 0

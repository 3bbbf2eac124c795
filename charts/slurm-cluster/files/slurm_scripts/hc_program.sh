#!/bin/sh
# Slurm runs this every HealthCheckInterval seconds, as root, outside of the shared root.
here=${0%/*}
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
export PATH CHECKS_CONTEXT=hc_program CHECKS_CONFIG="$here/checks.json"
if ! command -v python3 > /dev/null || [ ! -r "$here/check_runner.py" ]; then
    echo "hc_program.sh: nothing is checked: python3 or $here/check_runner.py is missing on this node" >&2
    exit 0
fi
python3 -IS "$here/check_runner.py"
# What was found is in Slurm already, and an error of the runner is no fault of the node.
exit 0

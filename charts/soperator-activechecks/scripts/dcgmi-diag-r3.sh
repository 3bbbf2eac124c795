#!/bin/bash
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --deadline=now+8hours
#SBATCH --time=90
# Lets DCGM load the GPUs of one node. Exit codes: 0 passed, 1 the node is bad, 75 it is not known.
set -uo pipefail

command -v dcgmi > /dev/null || exit 75
said=$(timeout 5000 dcgmi diag --run 3 2>&1)
code=$?
if grep -q 'Fail' <<< "$said"; then
    echo "dcgmi diag: $(grep -m1 'Fail' <<< "$said" | tr -s ' |' ' ')" >&2
    exit 1
fi
[ "$code" -eq 0 ] || exit 75

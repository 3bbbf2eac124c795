#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --time=5
# Fails while a node is out of use. It says something of the cluster, and nothing of the node that it runs on.
set -euo pipefail
out=$(sinfo --noheader --all --states=down,drain,fail --format=%n | sort -u | paste -sd, -)
[ -z "$out" ] || { echo "out of use: $out" >&2 && exit 1; }

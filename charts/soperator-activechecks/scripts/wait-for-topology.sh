#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --time=15
# Waits until Slurm's topology has every node. Jobs that span nodes are placed badly before that.
set -euo pipefail

plugin=$(scontrol show config | sed -n 's/^TopologyPlugin *= *//p')
case $plugin in
    '' | *default | *flat) exit 0 ;; # there is none
esac
known() { scontrol show topology | grep -o 'Nodes=[^ ]*' | cut -d= -f2 | grep -v '^(null)$' | paste -sd, -; }
missing() {
    comm -23 <(sinfo --noheader --all --format=%n | sort -u) \
        <(scontrol show hostnames "$(known)" 2> /dev/null | sort -u)
}
for _ in $(seq 60); do
    left=$(missing)
    [ -n "$left" ] || exit 0
    sleep 10
done
echo "not in the topology: $(echo "$left" | paste -sd, -)" >&2
exit 1

#!/bin/sh
# Fails when more than so many percent of the memory are in use on a node without jobs: idle_memory.sh PERCENT
# In a pod with a limit, it is the pod's memory that counts, else the machine's. CGROUP and MEMINFO are for tests.
limit=$1
cgroup=${CGROUP:-/sys/fs/cgroup}
case ,$CHECKS_NODE_STATE, in
    *,ALLOCATED,* | *,MIXED,* | *,COMPLETING,*) exit 0 ;;
    *,IDLE,*) ;;
    *) exit 0 ;;
esac
total=max
[ ! -r "$cgroup/memory.max" ] || total=$(cat "$cgroup/memory.max") || exit 2
if [ "$total" != max ]; then
    # What files left in the cache goes when somebody needs it.
    used=$(awk -v now="$(cat "$cgroup/memory.current")" '$1 == "inactive_file" || $1 == "active_file" { now -= $2 }
        END { printf "%.0f", now }' "$cgroup/memory.stat") || exit 2
else
    set -- $(awk '$1 == "MemTotal:" { t = $2 } $1 == "MemAvailable:" { a = $2 }
        END { printf "%.0f %.0f", t * 1024, (t - a) * 1024 }' "${MEMINFO:-/proc/meminfo}") || exit 2
    total=$1 used=$2
fi
percent=$(awk -v u="$used" -v t="$total" 'BEGIN { if (t <= 0) exit 2; printf "%d", 100 * u / t }') || exit 2
[ "$percent" -ge 0 ] 2> /dev/null || exit 2
if [ "$percent" -gt "$limit" ]; then
    echo "$percent % of the memory are in use without any job, the limit is $limit %" >&3
    exit 1
fi
exit 0

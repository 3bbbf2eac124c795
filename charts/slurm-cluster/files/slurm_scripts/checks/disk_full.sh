#!/bin/sh
# Fails when a file system is filled to so many percent, in bytes or inodes: disk_full.sh PERCENT PATH...
limit=$1
shift
# A number, and nothing else: `test` would end with 2 for anything else anyway.
[ "$limit" -gt 0 ] || exit 2
for path in "$@"; do
    [ -e "$path" ] || continue
    for what in bytes inodes; do
        option=-P
        [ "$what" = bytes ] || option=-Pi
        # File systems without a limit of inodes print "-".
        used=$(df $option -- "$path" | awk 'NR == 2 { sub("%", "", $5); print $5 }') || exit 2
        case $used in
            '' | *[!0-9]*) continue ;;
        esac
        if [ "$used" -ge "$limit" ]; then
            echo "$path has $used % of its $what in use, the limit is $limit %" >&3
            exit 1
        fi
    done
done
exit 0

#!/bin/bash
# Makes the user who runs checks, in the shared root, so that all nodes know them. Run again, it changes nothing.
set -euo pipefail
root=/mnt/jail
user=soperatorchecks
home=/opt/soperator-home/$user

if ! [ -e "$root/etc/passwd" ]; then
    echo "$root is not a filled shared root" >&2
    exit 75 # no verdict: it may be filled later
fi
if ! chroot "$root" id "$user" > /dev/null 2>&1; then
    mkdir -p "$root${home%/*}"
    chroot "$root" useradd --system --create-home --home-dir "$home" --shell /bin/bash "$user"
    echo "made the user $user"
fi
chroot "$root" id "$user"

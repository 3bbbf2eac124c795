#!/bin/sh
# Makes one layer: mounts an overlay over the parent layers, installs packages in it, and leaves the difference in
# $UPPER. Runs in a mount and process namespace of its own, so that nothing stays mounted or running, however it ends.
#
# LOWER, UPPER, WORK, MERGED  the overlay's directories
# SUITE, MIRROR               where packages come from
# PACKAGES                    what to install, separated by blanks; may be empty
# LISTS, ARCHIVES             apt's downloads, kept between builds and never part of a layer
# standard input              a shell script to run inside at the end
set -eu

mount -t overlay overlay "$MERGED" \
    -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK,redirect_dir=off,metacopy=off,index=off,xino=off"

mount -t proc proc "$MERGED/proc"
mount -t tmpfs -o mode=755 tmpfs "$MERGED/dev"
for device in null zero full random urandom tty; do
    : > "$MERGED/dev/$device"
    mount --bind "/dev/$device" "$MERGED/dev/$device"
done
ln -s /proc/self/fd "$MERGED/dev/fd"
mkdir "$MERGED/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$MERGED/tmp"
# Sockets, locks and our own scraps go to /run, which is no part of an image.
mount -t tmpfs -o mode=755 tmpfs "$MERGED/run"
mkdir "$MERGED/run/lock"

if [ -n "$PACKAGES" ]; then
    mount --bind /etc/resolv.conf "$MERGED/etc/resolv.conf"
    mount --bind "$LISTS" "$MERGED/var/lib/apt/lists"
    mount --bind "$ARCHIVES" "$MERGED/var/cache/apt/archives"
    echo "deb $MIRROR $SUITE main" > "$MERGED/run/sources.list"
    # Installing a daemon must not start it.
    printf '#!/bin/sh\nexit 101\n' > "$MERGED/usr/sbin/policy-rc.d"
    chmod 755 "$MERGED/usr/sbin/policy-rc.d"

    apt() {
        chroot "$MERGED" apt-get -qq -o Dir::Etc::SourceList=/run/sources.list -o APT::Sandbox::User=root \
            -o APT::Keep-Downloaded-Packages=true -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io "$@" < /dev/null
    }
    apt update
    # shellcheck disable=SC2086 # a list of package names, checked by the caller
    apt install --yes $PACKAGES
    rm "$MERGED/usr/sbin/policy-rc.d"
fi

chroot "$MERGED" /bin/sh -eu

"""A stock Debian 12 in a virtual machine, on which the local cluster is tried from `up` to `down`: make guest.

    disks      the guest's disks: Debian with a warm cache, and this checkout with the packages that it needs
    emulator   qemu, which ends with us
    steps      what runs in the guest, step by step
    traces     everything that can be seen of a machine, to compare it before and after

It has Debian's kernel, systemd and control groups of version 2 only, unlike many machines that tests run on.
"""

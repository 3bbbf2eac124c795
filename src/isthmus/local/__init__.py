"""A real Kubernetes with real Slurm images on one Linux machine, without a container engine.

    binaries   Kubernetes, etcd, CoreDNS … built from pinned Go modules, cached by content
    images     root file systems from Debian packages, packed as OCI images, ready in a shared store
    machine    a node: one init process that holds a PID, mount, network, UTS and IPC namespace
    parts      the daemons of a node, in the order in which they start, and how to see that each is ready
    cluster    the whole: addresses, certificates, nodes, add-ons; up, down, status

Everything a node owns hangs on its init process: when that is killed, at any moment and by anyone, the kernel takes
processes, mounts and network with it. What is left is one state directory and one cgroup per cluster.
"""

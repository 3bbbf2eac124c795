"""A real Kubernetes with real Slurm images on one Linux machine, without a container engine.

    binaries   Kubernetes, etcd, CoreDNS … built from pinned Go modules, cached by content
    images     root file systems from Debian packages, packed as OCI images, ready in a shared store
    machine    a node: one init process that holds a PID, mount, network, UTS and IPC namespace
    controlplane, node   the daemons: how each is started, and how to see that it is ready
    network    one switch per cluster, and the cables of host and nodes
    cluster    the whole: addresses, certificates, nodes, add-ons
    lifecycle  what people ask for: up, down, and what happens to nodes

Everything a node owns hangs on its init process: when that is killed, at any moment and by anyone, the kernel takes
processes, mounts and network with it. What is left is one state directory and one cgroup per cluster.
"""

"""The network of a cluster: one switch, to which the host and every node are plugged.

The switch is a machine of its own that holds nothing but a bridge, so the firewall of the host (which may drop
what crosses its bridges, as Docker's does) has no say between nodes. The host gets one interface and routes to
this cluster's addresses. No namespace has a default route: nothing can leave the machine.
"""

from isthmus.local import shell
from isthmus.local.addresses import MAX_NODES, Addresses
from isthmus.local.machine import IP_BATCH, Machine


def plug_host(switch: Machine, addresses: Addresses) -> None:
    """Connect the host with the switch, unless it is."""
    if _has_link("host", switch):
        return
    unplug_host(addresses)
    name = _host_interface(addresses)
    switch.ip("link add br0 type bridge", "link set br0 up")
    routes = [f"route add {addresses.services} via {addresses.node(0)}"]
    routes += [f"route add {addresses.pods(index)} via {addresses.node(index)}" for index in range(MAX_NODES)]
    shell.run(
        IP_BATCH,
        stdin="\n".join(
            (
                f"link add {name} type veth peer name host netns {switch.init}",
                f"addr add {addresses.host}/24 dev {name}",
                f"link set {name} up",
                *routes,
            )
        ),
    )
    switch.ip("link set host master br0 up")


def unplug_host(addresses: Addresses) -> None:
    """Remove the host's interface now: by itself it goes some time after the switch, when the kernel gets to it."""
    name = _host_interface(addresses)
    if _has_link(name):
        shell.run(["ip", "link", "delete", name])


def plug_node(switch: Machine, node: Machine, index: int, addresses: Addresses) -> None:
    """Connect a node with the switch, unless it is."""
    if _has_link("eth0", node):
        return
    routes = [
        f"route add {addresses.pods(other)} via {addresses.node(other)}"
        for other in range(MAX_NODES)
        if other != index
    ]
    switch.ip(
        f"link add {_port(index)} type veth peer name eth0 netns {node.init}",
        f"link set {_port(index)} master br0 up",
    )
    node.ip(
        "link set lo up",
        f"addr add {addresses.node(index)}/24 dev eth0",
        "link set eth0 up",
        # kube-proxy rewrites the destination later; without a route a packet would not get as far.
        f"route add {addresses.services} dev eth0",
        *routes,
    )
    node.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")


def cut(switch: Machine, index: int) -> None:
    """Pull a node's cable. Its daemons and pods go on, alone."""
    switch.ip(f"link set {_port(index)} down")


def heal(switch: Machine, index: int) -> None:
    """Plug a node's cable in again."""
    switch.ip(f"link set {_port(index)} up")


def is_cut(switch: Machine, index: int) -> bool:
    """Whether the node's cable is pulled."""
    return "state DOWN" in switch.run("ip", "link", "show", _port(index))


def _host_interface(addresses: Addresses) -> str:
    """The one interface that the host sees."""
    return f"isthmus{addresses.slot}"


def _port(index: int) -> str:
    return f"port{index}"


def _has_link(name: str, machine: Machine | None = None) -> bool:
    argv = ("ip", "-brief", "link", "show")
    listing = machine.run(*argv) if machine else shell.run(argv)
    return any(line.split("@")[0].split()[0] == name for line in listing.splitlines())

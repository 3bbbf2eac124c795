"""The network of a cluster: one switch, to which the host and every node are plugged.

The switch is a machine of its own that holds nothing but a bridge, so the firewall of the host (which may drop
what crosses its bridges, as Docker's does) has no say between nodes. The host gets one interface and routes to
this cluster's addresses. No namespace has a default route, and on the host whatever has no route of these addresses
is unreachable, also while the switch is away: nothing can leave the machine.
"""

import json

from isthmus.errors import Terminal
from isthmus.local import shell
from isthmus.local.addresses import MAX_NODES, Addresses
from isthmus.local.machine import IP_BATCH, Machine


def plug_host(switch: Machine, addresses: Addresses) -> None:
    """Connect the host with the switch. Every step may be repeated: who was stopped half way goes on here."""
    name = _host_interface(addresses)
    links = _links(switch)
    if "br0" not in links:
        switch.ip("link add br0 type bridge")
    if "host" not in links:
        unplug_host(addresses)
        cable = f"link add {name} address {_hardware(addresses, 0)} type veth peer name host netns {switch.init}"
        shell.run(IP_BATCH, stdin=cable)
    routes = [f"route replace {addresses.services} via {addresses.node(0)}"]
    routes += [f"route replace {addresses.pods(index)} via {addresses.node(index)}" for index in range(MAX_NODES)]
    barrier = f"route replace unreachable {addresses.whole}"
    setup = (barrier, f"addr replace {addresses.host}/24 dev {name}", f"link set {name} up", *routes)
    shell.run(IP_BATCH, stdin="\n".join(setup))
    switch.ip("link set br0 up", "link set host master br0 up")


def unplug_host(addresses: Addresses) -> None:
    """Remove the host's interface now: by itself it goes some time after the switch, when the kernel gets to it."""
    _delete(_host_interface(addresses))
    shell.run(IP_BATCH, stdin=f"route flush type unreachable exact {addresses.whole}")


def plug_node(switch: Machine, node: Machine, index: int, addresses: Addresses) -> None:
    """Connect a node with the switch; a cable that was pulled, too. Every step may be repeated."""
    port = _port(index)
    if "eth0" not in _links(node) or port not in _links(switch):
        # One end of a cable may still hang there: its other end went with a node, or a switch, a moment ago.
        _delete(port, switch)
        _delete("eth0", node)
        end = f"name eth0 address {_hardware(addresses, 1 + index)} netns {node.init}"
        switch.ip(f"link add {port} type veth peer {end}")
    switch.ip(f"link set {port} master br0 up")
    routes = [
        f"route replace {addresses.pods(other)} via {addresses.node(other)}"
        for other in range(MAX_NODES)
        if other != index
    ]
    node.ip(
        "link set lo up",
        f"addr replace {addresses.node(index)}/24 dev eth0",
        "link set eth0 up",
        # kube-proxy rewrites the destination later; without a route a packet would not get as far.
        f"route replace {addresses.services} dev eth0",
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
    """Whether the node's cable is pulled.

    What was asked of the port counts: whether it carries anything yet, the kernel says some time after.
    """
    return "UP" not in _links(switch).get(_port(index), ())


def _host_interface(addresses: Addresses) -> str:
    return f"isthmus{addresses.slot}"


def _hardware(addresses: Addresses, number: int) -> str:
    """The same after every boot: neighbours remember it, and would not find the machine for a while."""
    return f"02:00:00:00:{addresses.slot:02x}:{number:02x}"


def _port(index: int) -> str:
    return f"port{index}"


def _delete(name: str, machine: Machine | None = None) -> None:
    """Remove an interface that may be there, and that the kernel may be about to remove after its other end."""
    if name not in _links(machine):
        return
    command = f"link delete {name}"
    try:
        if machine:
            machine.ip(command)
        else:
            shell.run(IP_BATCH, stdin=command)
    except Terminal:
        if name in _links(machine):
            raise


def _links(machine: Machine | None = None) -> dict[str, list[str]]:
    """The interfaces of a machine, or of the host, and the flags of each."""
    argv = ("ip", "-json", "link", "show")
    listing = machine.run(*argv) if machine else shell.run(argv)
    return {link["ifname"]: link["flags"] for link in json.loads(listing)}

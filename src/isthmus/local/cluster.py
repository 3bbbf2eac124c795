"""A local cluster: what it consists of, and how it is brought from any state to running.

    up     settle what is wanted → prepare binaries and images → boot → control plane → nodes → add-ons → ready
    down   kill what is in the cluster's control group → remove the group and the directory

What runs is looked up each time, so `up` after any accident starts exactly what is missing.
"""

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from isthmus.errors import Terminal
from isthmus.local import addons, delegation, files, host, network, shell, state
from isthmus.local.addresses import Addresses
from isthmus.local.controlplane import ControlPlane, Part
from isthmus.local.images import store
from isthmus.local.images.build import Image
from isthmus.local.images.recipes import reference
from isthmus.local.machine import Machine
from isthmus.local.node import Node
from isthmus.local.parallel import for_each, together
from isthmus.local.paths import cache_dir
from isthmus.local.progress import PlainProgress, Progress
from isthmus.local.state import Settings
from isthmus.local.supply import Supply, programs

RESTART = "isthmus.local.restart"
"""The module that switches a node on again which was rebooted from inside."""
_NODES_READY_WITHIN = 300
STEPS = (
    "Boot the nodes",
    "Start the control plane",
    "Start kubelets and proxies",
    "Add DNS and storage",
    "Wait until all is ready",
)


@dataclass(frozen=True)
class NodeView:
    """A node as `isthmus status` shows it."""

    name: str
    role: str
    address: str
    machine: str
    kubernetes: str
    stopped: tuple[str, ...]


class Cluster:
    """A cluster as its settings describe it."""

    def __init__(self, settings: Settings, found: dict[str, Path]) -> None:
        self.settings = settings
        self.directory = state.directory(settings.name)
        self.addresses = Addresses(settings.slot)
        self._programs = found
        self.switch = self._machine("switch", self.directory / "switch")

    @classmethod
    def load(cls, name: str) -> "Cluster":
        """Find a cluster that was made before."""
        settings = state.load(name)
        return cls(settings, programs(settings, PlainProgress()))

    @cached_property
    def plane(self) -> ControlPlane:
        """The control plane, which lives on node 0."""
        return ControlPlane(
            name=self.settings.name,
            directory=self.directory,
            address=self.addresses.node(0),
            service_range=self.addresses.services,
            service_address=self.addresses.api_service,
            binaries=self._programs,
        )

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes, the control plane first, named as kind names them."""
        suffixes = ["control-plane", "worker", *(f"worker{n}" for n in range(2, self.settings.workers + 1))]
        return [
            Node(
                name=(name := f"{self.settings.name}-{suffix}"),
                index=index,
                machine=self._machine(name, self.directory / "nodes" / name, restart=self._restart(name)),
                plane=self.plane,
                addresses=self.addresses,
                pause_image=reference("pause"),
            )
            for index, suffix in enumerate(suffixes[: self.settings.workers + 1])
        ]

    def node(self, name: str) -> Node:
        """Find a node by its name, or by the end of it (`worker2`)."""
        for node in self.nodes:
            if name in (node.name, node.name.removeprefix(f"{self.settings.name}-")):
                return node
        raise Terminal(
            f"the cluster {self.settings.name!r} has no node {name!r}",
            remedy=f"choose one of: {', '.join(node.name for node in self.nodes)}",
        )

    @property
    def kubectl(self) -> tuple[str, ...]:
        """The words that begin a kubectl command as administrator."""
        return (str(self._programs["kubectl"]), f"--kubeconfig={self.plane.admin}")

    @property
    def _kubectl_inside(self) -> tuple[str, ...]:
        """The same inside the control-plane node, with which it ends: no killed `up` leaves one waiting."""
        return (*self.nodes[0].machine.enter(), *self.kubectl)

    def look(self) -> list[NodeView]:
        """See what runs and what does not."""
        try:
            listing = shell.run([*self.kubectl, "get", "nodes", "--no-headers", "--request-timeout=15s"])
            ready = {line.split()[0]: line.split()[1] for line in listing.splitlines()}
        except Terminal:
            ready = {node.name: "API does not answer" for node in self.nodes}
        return [self._look_at(node, ready.get(node.name, "not registered")) for node in self.nodes]

    def _look_at(self, node: Node, kubernetes: str) -> NodeView:
        role = "control-plane" if node.is_control_plane else "worker"
        if not (node.machine.init and self.switch.init):
            return NodeView(node.name, role, node.address, "off", kubernetes, ())
        stopped = tuple(part.name for part in self._parts_of(node) if not node.machine.runs(part.name))
        machine = "cut off" if network.is_cut(self.switch, node.index) else "on"
        return NodeView(node.name, role, node.address, machine, kubernetes, stopped)

    def start(self, supply: Supply, progress: Progress) -> None:
        """Start what does not run, from switched off to ready."""
        boot, central, agents, extras, ready = STEPS
        first = self.nodes[0]
        with progress.step(boot):
            self._boot(supply)
        with progress.step(central):
            together([self._start_store_and_api, lambda: for_each(self.nodes, self._start_containerd)])
            for_each(self.nodes, lambda node: self._load_missing(node, supply.images))
        with progress.step(agents):
            jobs = [(first.machine, self.plane.controller_manager()), (first.machine, self.plane.scheduler())]
            jobs += [(node.machine, part) for node in self.nodes for part in (node.kubelet(), node.proxy())]
            for_each(jobs, lambda job: job[0].start_until_ready(job[1]))
        with progress.step(extras):
            self._wait_for_nodes("create")
            dns_image = reference("coredns")
            addons.apply(
                self._kubectl_inside, control_plane=first.name, addresses=self.addresses, dns_image=dns_image
            )
            first.machine.start_until_ready(self._provisioner())  # not before it has its role
        with progress.step(ready):
            self._wait_for_nodes("condition=Ready")
            self._wait_for_account()
            addons.wait_for_names(self.addresses)

    def start_node(self, node: Node) -> None:
        """Switch one node on and start its daemons."""
        delegation.ensure(self.settings.name)
        node.write_configuration()
        node.machine.boot()
        network.plug_node(self.switch, node.machine, node.index, self.addresses)
        for part in self._parts_of(node):
            node.machine.start_until_ready(part)

    def load_images(self, images: list[Image]) -> None:
        for_each([node for node in self.nodes if node.machine.init], lambda node: self._load_missing(node, images))

    def _boot(self, supply: Supply) -> None:
        delegation.ensure(self.settings.name)
        (self.directory / "volumes").mkdir(exist_ok=True)
        self.switch.boot()
        network.plug_host(self.switch, self.addresses)
        for node in self.nodes:  # one after the other: each certificate is made on its first use
            node.write_configuration()

        def boot(node: Node) -> None:
            if not self._images_of(node).exists():
                store.seed(supply.store, node.machine.directory / "containerd")
                self._remember_images(node, supply.images)
            node.machine.boot()
            network.plug_node(self.switch, node.machine, node.index, self.addresses)

        for_each(self.nodes, boot)
        if self.settings.publish:
            self.switch.start_until_ready(self._publisher())

    def _start_store_and_api(self) -> None:
        for part in (self.plane.etcd(), self.plane.apiserver()):
            self.nodes[0].machine.start_until_ready(part)

    def _start_containerd(self, node: Node) -> None:
        node.machine.start_until_ready(node.containerd())

    def _parts_of(self, node: Node) -> list[Part]:
        """The daemons that belong on a node, in the order in which they start."""
        own = [node.containerd(), node.kubelet(), node.proxy()]
        if not node.is_control_plane:
            return own
        plane = self.plane
        central = [plane.etcd(), plane.apiserver(), plane.controller_manager(), plane.scheduler()]
        return [*central, self._provisioner(), *own]

    def _provisioner(self) -> Part:
        config = self.plane.user("provisioner", "isthmus:provisioner")
        words = ("isthmus.local.provisioner", str(config), str(self.directory / "volumes"))
        return Part("provisioner", (sys.executable, "-m", *words), lambda: True)

    def _publisher(self) -> Part:
        ports = self.settings.publish
        words = ("isthmus.local.publish", self.addresses.node(0), *(f"{port.host}:{port.node}" for port in ports))
        return Part(
            "publish",
            (sys.executable, "-m", *words),
            lambda: not any(host.port_is_free(port.host) for port in ports),
            on_host_network=True,
        )

    def _wait_for_nodes(self, condition: str) -> None:
        names = [f"node/{node.name}" for node in self.nodes]
        timeout = f"--timeout={_NODES_READY_WITHIN}s"
        words = ("wait", f"--for={condition}", timeout, *names)
        shell.run([*self._kubectl_inside, *words], remedy="isthmus logs kubelet")

    def _wait_for_account(self) -> None:
        """Wait for the account that pods usually run under: before it is there, none can be made."""
        words = ("wait", "--for=create", f"--timeout={_NODES_READY_WITHIN}s", "serviceaccount/default")
        shell.run([*self._kubectl_inside, *words], remedy="isthmus logs kube-controller-manager")

    def _load_missing(self, node: Node, images: list[Image]) -> None:
        """Bring a node's images up to date; a node that was seeded from the store has them already."""
        there = msgspec.json.decode(self._images_of(node).read_bytes(), type=dict[str, str])
        missing = [image for image in images if there.get(image.reference) != image.digest]
        if missing:
            store.load(missing, node.socket)
            self._remember_images(node, missing, there)

    def _remember_images(self, node: Node, images: list[Image], before: dict[str, str] | None = None) -> None:
        known = {**(before or {}), **{image.reference: image.digest for image in images}}
        files.write_whole(self._images_of(node), msgspec.json.encode(known))

    def _images_of(self, node: Node) -> Path:
        return node.machine.directory / "images.json"

    def _restart(self, node: str) -> tuple[str, ...]:
        return (sys.executable, "-m", RESTART, self.settings.name, node)

    def _machine(self, name: str, directory: Path, *, restart: tuple[str, ...] = ()) -> Machine:
        group = f"{delegation.group_of(self.settings.name)}/{name}"
        keep = (self.directory, cache_dir())
        return Machine(directory, hostname=name, group=group, keep=keep, restart=restart)

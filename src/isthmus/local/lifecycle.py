"""The commands on clusters: what is asked is checked against what is there, then carried out under the lock."""

import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from isthmus.errors import Terminal
from isthmus.local import binaries, cgroups, delegation, host, monitoring, network, state, supply, web, workloads
from isthmus.local.addresses import MAX_NODES, Addresses
from isthmus.local.cluster import RESTART, STEPS, Cluster
from isthmus.local.delegation import group_of
from isthmus.local.images.build import Image
from isthmus.local.images.recipes import SLURMS
from isthmus.local.machine import is_alive, watchers_of
from isthmus.local.node import CONTAINERD_SOCKET
from isthmus.local.paths import cache_dir, state_dir
from isthmus.local.progress import Progress
from isthmus.local.state import PublishedPort, Settings

_HALT_WITHIN = 60
_BUSY_PAUSE_S = 0.2
_DEFAULT_WORKERS = 3
_DEFAULT_SLURM = next(iter(SLURMS))
_SSH = PublishedPort(30022, 30022)


def up(
    name: str,
    *,
    workers: int | None = None,
    slurm: str | None = None,
    publish: Sequence[PublishedPort] | None = None,
    given: Path | None = None,
    monitored: bool | None = None,
    page: bool | None = None,
    progress: Progress,
) -> Cluster:
    """Make a cluster, or repair and complete the one that is there. What is None stays as it is."""
    host.check_system()
    with state.exclusive(name):
        old = state.load(name) if name in state.names() else None
        settings = _changed(old, workers, slurm) if old else _new(name, workers, slurm)
        settings = _with_ports(settings, old, publish, progress)
        if given:
            settings = _replace(settings, binaries=str(given.resolve()))
        if monitored is not None:
            settings = _replace(settings, monitoring=monitored)
        if page is not None:
            settings = _with_page(_replace(settings, web=page), progress)
        for directory in (state_dir(), cache_dir()):
            host.check_disk(directory)
        host.ensure_packages(progress)
        host.allow_many_watches(progress)
        more = [(monitoring.STEP, settings.monitoring), (web.STEP, settings.web)]
        progress.plan(*STEPS, *(step for step, wanted in more if wanted))
        ready = supply.prepare(settings, progress)
        if not old:
            _clear(name)  # what an interrupted `down` left is no beginning
            settings = state.save_new(settings)
        cluster = Cluster(settings, ready.programs)
        if old and old.publish != settings.publish:
            cluster.switch.kill("publish")  # to be started anew, with the other ports
        state.save(settings)
        cluster.start(ready, progress)
        if settings.monitoring:
            monitoring.install(cluster, progress)
        if settings.web:
            web.install(cluster, progress)
    return cluster


def down(name: str, progress: Progress) -> None:
    """Remove a cluster, whatever state it is in."""
    host.check_root()
    if not (state.directory(name).exists() or cgroups.exists(group_of(name))):
        state.load(name)  # says that it is not there, and which are
    _end_restarts(name)
    with state.exclusive(name), progress.step(f"Remove the cluster {name}"):
        _unplug_host(name)
        _clear(name)


def _clear(name: str) -> None:
    """End and remove all that is there. The settings go before the rest: what has none is no cluster."""
    directory, group = state.directory(name), group_of(name)
    delegation.settle(name)
    _end_processes(group)
    delegation.release(name)
    cgroups.remove_if_empty("isthmus")
    state.forget(name)
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        raise Terminal(f"{directory} cannot be removed", remedy=f"see what uses it: fuser -vm {directory}")


def _end_restarts(name: str) -> None:
    """End commands that nobody gave, which switch rebooted nodes on again: they would hold the lock."""
    pids = {it for it in cgroups.processes(watchers_of(group_of(name))) if _restarts(it)}
    for pid in pids:
        _kill(pid)
    deadline = time.monotonic() + _HALT_WITHIN
    while any(map(is_alive, pids)):
        if time.monotonic() > deadline:
            raise Terminal(f"processes of the cluster do not exit: {sorted(pids)}", remedy="check dmesg")
        time.sleep(0.01)


def _restarts(pid: int) -> bool:
    try:
        return RESTART in Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return False


def _unplug_host(name: str) -> None:
    try:
        slot = state.load(name).slot
    except Terminal:
        return  # settings that are damaged keep nothing from going: the interface follows its switch, a bit later
    network.unplug_host(Addresses(slot))


def command_on_node(
    name: str, node: str, command: Sequence[str], progress: Progress
) -> tuple[list[str], dict[str, str]]:
    """Return what runs a command on a node: the words, and environment variables for programs.

    A node is no container with programs of its own: what the host has is there, and `crictl` beside it, which is
    built the first time that somebody asks for it.
    """
    cluster = Cluster.load(name)
    words = list(command)
    if words[0] == "crictl":
        words[0] = str(binaries.ensure(["crictl"], progress, given=supply.given(cluster.settings))["crictl"])
    environment = {"CONTAINER_RUNTIME_ENDPOINT": f"unix://{CONTAINERD_SOCKET}"}
    return [*cluster.node(node).machine.enter(), *words], environment


def stop_node(name: str, node: str) -> None:
    """Switch a node off, as pulling its plug would."""
    with state.exclusive(name):
        Cluster.load(name).node(node).machine.halt()


def start_node(name: str, node: str) -> None:
    """Switch a node on again."""
    with state.exclusive(name):
        cluster = Cluster.load(name)
        cluster.start_node(cluster.node(node))


def reboot_node(name: str, node: str) -> None:
    """Switch a node off and on again."""
    with state.exclusive(name):
        cluster = Cluster.load(name)
        found = cluster.node(node)
        found.machine.halt()
        cluster.start_node(found)


def restart_node(name: str, node: str) -> None:
    """Switch a node on that was rebooted from inside, as soon as no other command works on the cluster."""
    while name in state.names():
        try:
            start_node(name, node)
        except state.BusyError:
            time.sleep(_BUSY_PAUSE_S)
        else:
            return


def cut_node(name: str, node: str) -> None:
    """Pull a node's network cable."""
    with state.exclusive(name):
        cluster = Cluster.load(name)
        network.cut(cluster.switch, cluster.node(node).index)


def heal_node(name: str, node: str) -> None:
    """Plug a node's network cable in again."""
    with state.exclusive(name):
        cluster = Cluster.load(name)
        network.heal(cluster.switch, cluster.node(node).index)


def load_images(name: str, images: list[Image]) -> None:
    """Put images into every node of a running cluster."""
    with state.exclusive(name):
        Cluster.load(name).load_images(images)


def install_addons(name: str, names: Sequence[str], progress: Progress) -> None:
    """Bring add-ons into a running cluster."""
    addons = workloads.chosen(names)
    with state.exclusive(name):
        cluster = Cluster.load(name)
        if kinds := [addon for addon in addons if addon is not workloads.MONITORING]:
            workloads.install(cluster, kinds, progress)
        if workloads.MONITORING in addons:
            state.save(_replace(cluster.settings, monitoring=True))
            monitoring.install(cluster, progress)


def _new(name: str, workers: int | None, slurm: str | None) -> Settings:
    return Settings(
        name=state.check_name(name),
        slot=state.free_slot(),
        workers=_checked(_DEFAULT_WORKERS if workers is None else workers),
        slurm=slurm or _DEFAULT_SLURM,
    )


def _changed(old: Settings, workers: int | None, slurm: str | None) -> Settings:
    """A cluster can grow. Everything else is decided when it is made."""
    again = f"isthmus down --name {old.name}, then up again"
    if workers is not None and _checked(workers) < old.workers:
        raise Terminal(f"{old.name} has {old.workers} workers and cannot shrink to {workers}", remedy=again)
    if slurm not in (None, old.slurm):
        raise Terminal(f"{old.name} has Slurm {old.slurm}, not {slurm}", remedy=again)
    return old if workers is None else _replace(old, workers=workers)


def _checked(workers: int) -> int:
    if not 1 <= workers < MAX_NODES:
        raise Terminal(f"a cluster has 1 to {MAX_NODES - 1} workers, not {workers}", remedy="choose --nodes 3")
    return workers


def _with_ports(
    settings: Settings, old: Settings | None, asked: Sequence[PublishedPort] | None, progress: Progress
) -> Settings:
    """The ports of localhost to open: all that were asked for, or else SSH's if nobody has it."""
    if old and asked is None:
        return settings
    mine = {port.host for port in old.publish} if old else set()
    if asked is None:
        if host.port_is_free(_SSH.host):
            return _replace(settings, publish=(_SSH,))
        progress.note(f"port {_SSH.host} of localhost is in use: for SSH choose another with --publish PORT:30022")
        return settings
    wanted = [port.host for port in asked]
    for port in asked:
        if wanted.count(port.host) > 1:
            raise Terminal(
                f"port {port.host} of localhost is given twice", remedy="give each --publish its own port"
            )
        if port.host not in mine and not host.port_is_free(port.host):
            raise Terminal(
                f"port {port.host} of localhost is in use",
                remedy=f"stop what listens there (ss -ltnp), or choose another: --publish 40022:{port.node}",
            )
    return _replace(settings, publish=tuple(asked))


def _with_page(settings: Settings, progress: Progress) -> Settings:
    """Publish the page on localhost, unless it is already, or somebody else has its port."""
    if not settings.web or web.published(settings):
        return settings
    if host.port_is_free(web.PORT):
        return _replace(settings, publish=(*settings.publish, web.PUBLISHED))
    progress.note(f"port {web.PORT} of localhost is in use: for the page choose another, --publish PORT:{web.PORT}")
    return settings


def _replace(settings: Settings, **changes: object) -> Settings:
    return msgspec.structs.replace(settings, **changes)


def _end_processes(group: str) -> None:
    """Every process of a cluster, pods included, is in its control group: none can be overlooked.

    Not even a machine that was being booted when `up` was killed: once the group is gone, it cannot come in.
    """
    deadline = time.monotonic() + _HALT_WITHIN
    while not cgroups.sweep(group):
        pids = cgroups.processes(group)
        for pid in pids:
            _kill(pid)
        if time.monotonic() > deadline:
            what = f"processes of the cluster do not exit: {sorted(pids)}" if pids else f"{group} cannot be removed"
            raise Terminal(what, remedy="check dmesg, then run isthmus down again")
        time.sleep(0.01)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return

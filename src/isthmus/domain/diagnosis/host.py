"""Whether the machine on which one asks is well: its local clusters, its disks, and its own way to Slurm."""

from collections.abc import Iterator
from typing import Final

from isthmus.domain.bridge.explain import ago
from isthmus.domain.diagnosis.facts import Facts, HostFacts, LocalClusterFact
from isthmus.domain.diagnosis.finding import Finding, Fix
from isthmus.domain.languages.prose import some

_HERE: Final = "this machine"


def check_host(facts: Facts) -> Iterator[Finding]:
    host = facts.host
    yield from _disks(host)
    yield from _watches(host)
    for cluster in host.clusters:
        yield from _cluster(cluster)
    yield from _token(host)
    yield from _slurm(host)


def _disks(host: HostFacts) -> Iterator[Finding]:
    for directory, free in host.full.items():
        yield Finding(
            area="host",
            what=f"the disk of {directory} is nearly full: {free:.1f} GiB are free",
            where=_HERE,
            why="local clusters keep their images and volumes there; kubelet evicts pods from a full disk",
            remedy=(f"see what takes the space: du -xhd1 {directory}", "remove clusters: isthmus down --name NAME"),
        )


def _watches(host: HostFacts) -> Iterator[Finding]:
    if host.watches is not None:
        yield Finding(
            area="host",
            what=f"the kernel allows a user {host.watches} inotify instances",
            where=_HERE,
            why="a local cluster takes 40; daemons that get none do not start, or miss changes of files",
            remedy=("sysctl fs.inotify.max_user_instances=1024",),
            fix=Fix("watches", "set fs.inotify.max_user_instances to 1024 until the next boot"),
        )


def _cluster(cluster: LocalClusterFact) -> Iterator[Finding]:
    off = [it.name for it in cluster.nodes if it.machine == "off"]
    cut = [it.name for it in cluster.nodes if it.machine == "cut off"]
    stopped = [f"{part} on {it.name}" for it in cluster.nodes for part in it.stopped]
    broken = [
        *([cluster.trouble] if cluster.trouble else []),
        *([f"{some(off)} off"] if off else []),
        *([f"{some(stopped)} not running"] if stopped else []),
        *([] if cluster.published else ["its ports on localhost lead nowhere"]),
    ]
    if broken:
        yield Finding(
            area="host",
            what=f"local cluster {cluster.name}: {'; '.join(broken)}",
            where=_HERE,
            why="the machine was booted again, a process was killed, or a node was stopped by: isthmus node stop",
            remedy=(f"isthmus up --name {cluster.name}",),
            fix=Fix("up", f"start what does not run of the local cluster {cluster.name}", cluster.name),
        )
    if cut:
        yield Finding(
            area="host",
            what=f"local cluster {cluster.name}: the network of {some(cut)} is cut",
            where=_HERE,
            why="somebody cut it: isthmus node cut",
            remedy=(f"isthmus node heal {cut[0]} --name {cluster.name}",),
        )


def _token(host: HostFacts) -> Iterator[Finding]:
    if host.token_left is not None and host.token_left <= 0:
        yield Finding(
            area="host",
            what=f"the token in SLURM_JWT expired {ago(-host.token_left)} ago",
            where="the environment of this shell",
            why="slurmrestd refuses it, so commands that ask SLURM_REST_API fail",
            remedy=("export $(scontrol token lifespan=3600)", "or: unset SLURM_JWT"),
        )


def _slurm(host: HostFacts) -> Iterator[Finding]:
    if host.ping is None or host.ping.ok:
        return
    said = host.ping.text.strip().splitlines()
    yield Finding(
        area="host",
        what="slurmctld does not answer this machine",
        where=f"{_HERE}: scontrol ping",
        why=said[-1] if said else "it said nothing",
        remedy=(
            "see which slurmctld is meant: scontrol show config | grep -i SlurmctldHost",
            "its name has to resolve, clocks have to agree, and the key or munge has to be the cluster's",
        ),
    )

"""Whether the daemons of a cluster find and trust each other, and have room to write."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Final

from isthmus.domain.diagnosis.configuration import is_on_its_way
from isthmus.domain.diagnosis.facts import ClusterFacts, Facts, InsideFact
from isthmus.domain.diagnosis.finding import Finding
from isthmus.domain.diagnosis.known import Known
from isthmus.domain.languages.prose import some

_MAX_SKEW_S: Final = 60.0
"""Seconds by which clocks may differ: credentials hold for five minutes, and a part of that is for the way."""

_FULL: Final = 95


def check_names(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find pods that are not in DNS, and pods that cannot resolve names."""
    del facts, known
    namespace = cluster.key.namespace
    deaf = [it.pod for it in cluster.insides if it.unresolved and not it.resolved]
    if deaf:
        yield Finding(
            area="names",
            what=f"{some(deaf)} cannot resolve any name in DNS",
            where=f"pods of {cluster.key}",
            why="no name resolves: the cluster's DNS does not answer, or its domain differs",
            remedy=(
                "kubectl get pods -n kube-system -l k8s-app=kube-dns",
                f"kubectl exec -n {namespace} {deaf[0]} -- cat /etc/resolv.conf",
            ),
            subjects=tuple(f"pod {it}" for it in deaf),
        )
    missing: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for inside in cluster.insides:
        if inside.unresolved and inside.resolved:
            missing[inside.unresolved].append(inside.pod)
    for names, pods in missing.items():
        yield Finding(
            area="names",
            what=f"{some(pods)} cannot resolve {some(names)} in DNS",
            where=f"pods of {cluster.key}",
            why="these pods have no address yet, or the headless Service does not select them",
            remedy=(
                f"kubectl get endpointslices -n {namespace}",
                f"kubectl exec -n {namespace} {pods[0]} -- cat /etc/resolv.conf",
            ),
            subjects=tuple(f"pod {it}" for it in names),
        )


def check_clocks(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find clocks that are too far apart for credentials to hold."""
    del facts, known
    dated = [it for it in cluster.insides if it.clock is not None]
    worst: tuple[float, InsideFact, InsideFact] | None = None
    for one, other in combinations(dated, 2):
        apart = abs((one.clock or 0.0) - (other.clock or 0.0)) - one.doubt - other.doubt
        if apart > _MAX_SKEW_S and (worst is None or apart > worst[0]):
            worst = (apart, one, other)
    if worst is None:
        return
    apart, one, other = worst
    places = {pod.name: pod.node for pod in cluster.pods}
    yield Finding(
        area="clock",
        what=f"the clocks of {one.pod} and {other.pod} are {apart:.0f} s apart",
        where=f"nodes {places.get(one.pod) or 'unknown'} and {places.get(other.pod) or 'unknown'}",
        why=(
            "credentials of auth/slurm and munge contain the time: those that are too old or from the "
            "future are rejected"
        ),
        remedy=("synchronize the clocks of these nodes with NTP (chrony, systemd-timesyncd)",),
        subjects=(f"pod {one.pod}", f"pod {other.pod}"),
    )


def check_keys(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find keys that differ, and pods without one. While one is changed, kubelets bring it at different moments."""
    del facts, known
    if is_on_its_way(cluster):
        return
    files = sorted({name for it in cluster.insides for name in it.keys})
    for name in files:
        holders: dict[str, list[str]] = {}
        for inside in cluster.insides:
            if name in inside.keys:
                holders.setdefault(inside.keys[name], []).append(inside.pod)
        if len(holders) < 2:  # noqa: PLR2004 - all have the same
            continue
        main = max(holders.values(), key=len)
        others = sorted(pod for pods in holders.values() if pods is not main for pod in pods)
        yield Finding(
            area="auth",
            what=f"{some(others)} and {some(sorted(main))} have different keys ({name})",
            where=f"pods of {cluster.key}",
            why="the Secret was changed and some pods have not loaded it, so they reject what others sign",
            remedy=(
                f"see its progress: kubectl describe -n {cluster.key.namespace} controller {cluster.controller}",
                f"recreate a pod that stays behind: kubectl delete -n {cluster.key.namespace} pod {others[0]}",
            ),
            subjects=tuple(f"pod {it}" for it in others),
        )
    asked = [it for it in cluster.insides if it.component in {"controller", "worker", "login"} and not it.trouble]
    without = sorted(it.pod for it in asked if not it.keys)
    if files and without:
        yield Finding(
            area="auth",
            what=f"{some(without)} has no key of Slurm or munge",
            where=f"pods of {cluster.key}",
            why="the Secret with the key is not mounted there",
            remedy=(f"kubectl get secret -n {cluster.key.namespace} {cluster.controller}-auth",),
            subjects=tuple(f"pod {it}" for it in without),
        )


def check_disks(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find file systems that are full."""
    del facts, known
    seen: set[str] = set()
    for inside in cluster.insides:
        for disk in inside.disks:
            shared = disk.path in {"/home", "/mnt/jail"}
            if max(disk.space, disk.files) < _FULL or (shared and disk.path in seen):
                continue
            seen.add(disk.path)
            what = "space" if disk.space >= _FULL else "files (inodes)"
            yield Finding(
                area="storage",
                what=f"{disk.path} of {inside.pod} is full: {max(disk.space, disk.files)} % of its {what}",
                where=f"pod {cluster.key.namespace}/{inside.pod}",
                why=(
                    "users' files, and what is installed for all"
                    if shared
                    else "slurmctld stops when it cannot write its state; slurmd drains its node"
                ),
                remedy=(
                    f"kubectl exec -n {cluster.key.namespace} {inside.pod} -- du -xhd1 {disk.path}",
                    "remove files that are not needed, or enlarge the claim (spec.resources.requests.storage)",
                ),
                subjects=() if shared else (f"pod {inside.pod}",),
            )

#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""The health of nodes: decisions, the process `soperatorchecks` with many nodes, and a check of every node.

decision    1,000 nodes that are found to be bad at the same moment, and the same when nothing has changed
rest        1,000 nodes with 10 checks: what the process costs while nothing changes
drain       from a finding, of a check or of a problem detector, to the drain in Slurm
every_node  a check of every node: calls to Slurm, from its manifest to the results

Servers are real. In `rest` and `drain` the worker pods are made by the operator and placed by kube-scheduler, but
nobody runs them, and their nodes in Slurm have no slurmd. In `every_node` each node has one, and jobs really run.
"""

import asyncio
import os
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from bench import operator_ground as ground
from bench import workload
from bench.bridge_ground import slurm_client, slurm_writes
from bench.harness import Figure, Options, figure, main, note
from bench.operator_ground import NAMESPACE, NODESET, Ground, Requests
from bench.process import Kind, Process, running
from bench.stopwatch import measured
from isthmus.domain.health.actions import Drain, Record
from isthmus.domain.health.decision import decide
from isthmus.domain.health.view import ClusterView, NodeView, Observation
from isthmus.domain.operator.nodeset import identity
from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.model.activecheck import ACTIVE_CHECKS
from isthmus.model.health import HEALTH_POLICIES, HealthPolicySpec, NodeHealth, NodeHealthSpec, NodeHealthStatus
from isthmus.model.meta import Condition, Key, ObjectMeta
from isthmus.model.node import NODES, Node, NodeStatus
from isthmus.model.pod import PODS
from isthmus.model.slurm import Node as SlurmNode
from isthmus.operator import crds
from isthmus.runtime import logs, loop
from isthmus.slurm.client import Client as SlurmClient
from tests.bed import faults
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.health.checks_bed import ON_FAILURE, ChecksBed, working
from tests.flows.operator.nodesets_bed import CONTROLLER

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_NODES = 1_000
_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "KernelDeadlock")
_SETTINGS = {"limits": {"maxUnavailable": "100%", "storm": {"share": "100%", "within": "1s", "cooldown": "1s"}}}
"""With these, every node is drained: what costs most."""

_KIND = Kind(flags=())
_CHECKS = 10
_HELD = 10
_COOL = 12.0
"""For so long Slurm is asked often after a change of ours, and Events may still be counted up."""

_WINDOW = 60.0
_FINDINGS = 20
_LOOK = 0.02
_WITHIN = 120.0
_RUN_WITHIN = 400.0
_MOST_SLURMDS = 250
"""For so many a bed of Slurm has addresses."""

_NUMBER = re.compile(r"(?<=/)[0-9]+")


def _view(count: int, health: dict[str, NodeHealthStatus], *, drained: bool) -> ClusterView:
    """A cluster of which every node was found to be bad a minute ago, each for a reason of its own."""

    def node(number: int) -> NodeView:
        name = f"node-{number}"
        reason = f"[node_problem] gpu: job {number} [slurm_job]"
        told = tuple(Condition(type=it, status="False") for it in _CONDITIONS)
        shown = Condition(type="SoperatorChecksNodeDegraded", status="True", reason="NodeDraining")
        status = health.get(name)
        return NodeView(
            name=name,
            slurm=SlurmNode(
                name=name,
                state=("MIXED", "DRAIN") if drained else ("MIXED",),
                reason=reason if drained else "",
                alloc_cpus=8,
            ),
            nodeset=f"set-{number % 4}",
            block=f"block-{number % 50}",
            machine=Node(
                metadata=ObjectMeta(name=f"machine-{number}", uid=str(number)),
                status=NodeStatus(conditions=(*told, shown) if drained else told),
            ),
            health=NodeHealth(spec=NodeHealthSpec(cluster="c", node=name), status=status) if status else None,
            observations=(
                Observation(
                    source="check",
                    check="gpu",
                    evidence="XID 79",
                    at=_NOW - timedelta(minutes=1),
                    wants="drain",
                    reason=reason,
                    test=True,
                    in_slurm=True,
                ),
            ),
        )

    nodes = {it.name: it for it in map(node, range(count))}
    policy = msgspec.convert(_SETTINGS, HealthPolicySpec)
    return ClusterView(cluster=Key("default", "c"), now=_NOW, policy=policy, nodes=nodes, slurm_in_touch=True)


def decision(options: Options) -> Iterator[Figure]:
    """Decide about all at once."""
    count = _NODES // 10 if options.quick else _NODES
    view = _view(count, {}, drained=False)
    with measured("all found at once") as first:
        actions = decide(view)
    drains = sum(len(it.nodes) for it in actions if isinstance(it, Drain))
    note(f"{len(actions)} actions, {drains} nodes drained")
    records = {it.node: it.status for it in actions if isinstance(it, Record)}
    view = _view(count, records, drained=True)
    records |= {it.node: it.status for it in decide(view) if isinstance(it, Record)}
    view = _view(count, records, drained=True)
    with measured("nothing has changed") as rest:
        actions = decide(view)
    note(f"{len(actions)} actions when nothing has changed")
    yield figure("1,000 findings at once: decided within", "≤ 1 s", first.elapsed)
    yield figure("1,000 bad nodes of which nothing changes: decided within", "≤ 0.2 s", rest.elapsed)


def rest(options: Options) -> Iterator[Figure]:
    """Leave many nodes alone: first when nothing was found, then with some that are held."""
    nodes, cool, window = (50, 2.0, 5.0) if options.quick else (_NODES, _COOL, _WINDOW)
    told = f"{nodes:,} nodes with {_CHECKS} checks at rest"
    with _ground(nodes) as there, _soperatorchecks(there) as process:
        _await_rest(process, cool)
        yield from _at_rest(there, process, told, window)
        loop.run(_hold(there))
        _await_rest(process, cool)
        yield from _at_rest(there, process, f"{told}, {_HELD} of them held", window)
        note(f"memory at most: {process.most_memory / 1e6:.0f} MB")


def drain(options: Options) -> Iterator[Figure]:
    """Find nodes to be bad one by one, at moments of no pattern."""
    nodes, count = (50, 4) if options.quick else (_NODES, _FINDINGS)
    with _ground(nodes) as there, _soperatorchecks(there) as process:
        _await_rest(process, 0.0)
        by_check, by_condition = loop.run(_drains(there, count))
    for source, delays in (("a check", by_check), ("a condition", by_condition)):
        note(f"found by {source}: {statistics.median(delays):.2f} s in the median, {max(delays):.2f} s at most")
    yield figure(
        f"One of {nodes:,} nodes is found to be bad: drained in Slurm within, worst of {count}",
        "≤ 3 s",
        max(by_check + by_condition),
    )


def every_node(options: Options) -> Iterator[Figure]:
    """Run a check on every node that a bed can have."""
    nodes = 20 if options.quick else _MOST_SLURMDS
    logs.configure()  # what runs in this process would write its log between the lines of --json
    with SlurmBed(nodes=nodes, accounting=False) as slurm, ControlPlaneBed() as plane:
        calls = loop.run(_check_every_node(plane, slurm, nodes))
    yield figure(f"Check of every node, {nodes} slurmd and not 500: calls to Slurm for each", "≤ 2", calls)


# The process and what it looks after


@contextmanager
def _ground(nodes: int) -> Iterator[Ground]:
    """Start the servers, with a NodeSet made by the operator, checks, and a policy that only drains."""
    with ground.ground(nodes, quick=True) as there:
        with there.operator():
            loop.run(_make_workers(there, nodes))
        loop.run(_make_checks(there))
        yield there


async def _make_workers(there: Ground, nodes: int) -> None:
    async with ground.watching(there) as watched:
        await watched.make(nodes)
        await watched.until_settled(nodes)


async def _make_checks(there: Ground) -> None:
    spec = {
        "slurmClusterRefName": CONTROLLER,
        "checkType": "slurmJob",
        "slurmJobSpec": {"sbatchScript": "#!/bin/sh\ntrue\n", "eachWorkerJobs": True},
        "failureReactions": ON_FAILURE,
        "suspend": False,
        "runAfterCreation": False,
    }
    async with Client(load(there.plane.kubeconfig)) as kube:
        for number in range(_CHECKS):
            await kube.create(ACTIVE_CHECKS, {"metadata": _meta(_check(number)), "spec": spec})
        # Repairs would go on for as long as anything is measured.
        policy = {"slurmClusterRefName": CONTROLLER, "rules": [{"action": "drain"}]}
        await kube.create(HEALTH_POLICIES, {"metadata": _meta("policy"), "spec": policy})


def _soperatorchecks(there: Ground) -> AbstractContextManager[Process]:
    """Run the process as its users do."""

    def words(place: Path) -> Sequence[str | Path]:
        del place
        return ("soperatorchecks", f"--kubeconfig={there.plane.kubeconfig}")

    return running(words, kind=_KIND)


def _await_rest(process: Process, cool: float) -> None:
    loop.run(ground.until_quiet(process))
    time.sleep(cool)


def _at_rest(there: Ground, process: Process, told: str, window: float) -> Iterator[Figure]:
    """See what it costs while nothing happens; writes are counted by itself and by slurmctld."""
    _note_load()
    changes, before = _slurm_writes(there), Requests.of(process)
    processor, began = process.processor, time.monotonic()
    time.sleep(window)
    share = (process.processor - processor) / (time.monotonic() - began)
    sent = Requests.of(process) - before
    note(f"{sent} in {window:.0f} s")
    yield figure(f"{told}: of one core", "≤ 3 %", share * 100)
    yield figure(f"{told}: writes to Kubernetes and Slurm", "≤ 0", sent.writes + _slurm_writes(there) - changes)


def _slurm_writes(there: Ground) -> int:
    async def ask() -> int:
        async with slurm_client(there.slurm) as client:
            return await slurm_writes(client)

    return loop.run(ask())


# Findings


async def _fail(kube: Client, nodes: Sequence[str]) -> None:
    """Let the last run of a check have failed on exactly these nodes."""
    told = [
        {"node": it, "result": "Failed", "jobId": "17", "evidence": "exit code 1", "at": _now()} for it in nodes
    ]
    key = Key(NAMESPACE, _check(0))
    await kube.merge_patch(ACTIVE_CHECKS, key, {"status": {"nodes": told}}, subresource="status")


async def _break(kube: Client, machine: str) -> None:
    """Say of a machine what a problem detector would."""
    told = {"type": "KernelDeadlock", "status": "True", "reason": "DockerHung", "message": "for a benchmark"}
    body = {"metadata": {"name": machine}, "status": {"conditions": [{**told, "lastTransitionTime": _now()}]}}
    await kube.apply(NODES, body, manager="problem-detector", force=True, subresource="status")


async def _machines(kube: Client) -> dict[str, str]:
    """Find out where the pods of nodes are."""
    pods = (await kube.list(PODS, namespace=NAMESPACE)).items
    return {identity.slurm_name(it): identity.node_of(it) for it in pods}


async def _hold(there: Ground) -> None:
    """Let some machines be broken for good, and wait until they are drained: a failed check would be run again."""
    async with Client(load(there.plane.kubeconfig)) as kube, slurm_client(there.slurm) as slurm:
        machines = await _machines(kube)
        for node in (f"{NODESET}-{number}" for number in range(_HELD)):
            await _break(kube, machines[node])
            await _drained(slurm, node)


async def _drains(there: Ground, count: int) -> tuple[list[float], list[float]]:
    """Find nodes by a check and by a condition in turns; tell how long each took until slurmctld had its drain."""
    by_check: list[float] = []
    by_condition: list[float] = []
    failed: list[str] = []
    async with Client(load(there.plane.kubeconfig)) as kube, slurm_client(there.slurm) as slurm:
        machines = await _machines(kube)
        _note_load()
        for number in range(count):
            node = f"{NODESET}-{number}"
            await asyncio.sleep(random.uniform(0.5, 3.0))  # noqa: S311 - meets every phase of the process's rounds
            if number % 2:
                by_condition.append(await _timed(slurm, node, _break(kube, machines[node])))
            else:
                failed.append(node)
                by_check.append(await _timed(slurm, node, _fail(kube, failed)))
    return by_check, by_condition


async def _timed(slurm: SlurmClient, node: str, finding: Awaitable[None]) -> float:
    began = time.monotonic()
    await finding
    await _drained(slurm, node)
    return time.monotonic() - began


async def _drained(slurm: SlurmClient, node: str) -> None:
    deadline = time.monotonic() + _WITHIN
    while "DRAIN" not in (found := await slurm.node(node)).state:
        if time.monotonic() > deadline:
            raise Terminal(f"{node} is not drained after {_WITHIN:.0f} s: {found}")
        await asyncio.sleep(_LOOK)


# A check of every node


async def _check_every_node(plane: ControlPlaneBed, slurm: SlurmBed, nodes: int) -> float:
    """Count what passes between us and slurmrestd, polling included, until a check has told how every node did."""
    async with Client(load(plane.kubeconfig)) as kube, faults.in_front_of(slurm.rest_url) as proxy:
        await crds.install(kube)
        await workload.make_namespace(kube, NAMESPACE)
        async with working(plane, NAMESPACE, slurm, url=proxy.url) as bed:
            await _until(lambda: bed.caches.operator.slurms.in_touch(bed.key(CONTROLLER)), "Slurm answers")
            _note_load()
            first, began = proxy.count(), time.monotonic()
            await bed.check(_check(0), "true")
            await _until(lambda: _is_over(bed), "the check is over")
            asked = proxy.seen[first:]
            note(f"{nodes} nodes were checked in {time.monotonic() - began:.1f} s")
            status = bed.get(_check(0)).status
    if status.passed != nodes:
        raise Terminal(f"{status.passed} of {nodes} nodes passed: {status}")
    kinds = Counter(f"{it.method} {_NUMBER.sub('ID', it.path.partition('?')[0])}" for it in asked)
    note(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    return len(asked) / nodes


def _is_over(bed: ChecksBed) -> bool:
    return bed.run(_check(0)).last_run_status not in {None, "InProgress"}


async def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _RUN_WITHIN
    while not holds():
        if time.monotonic() > deadline:
            raise Terminal(f"not within {_RUN_WITHIN:.0f} s: {what}")
        await asyncio.sleep(_LOOK)


def _check(number: int) -> str:
    return f"check-{number}"


def _meta(name: str) -> dict[str, str]:
    return {"namespace": NAMESPACE, "name": name}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _note_load() -> None:
    note(f"load of the machine: {os.getloadavg()[0]:.1f}")


MEASUREMENTS = {"decision": decision, "rest": rest, "drain": drain, "every_node": every_node}

if __name__ == "__main__":
    sys.exit(main(MEASUREMENTS, about=__doc__))

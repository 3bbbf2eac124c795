"""Where a pod, or the pods of a job, stand: gathers the facts as the scheduler does, and has them judged."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from isthmus.bridge.cache.feasible import FeasibleNodes
from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.ledger import Ledger
from isthmus.bridge.cache.owners import Owners
from isthmus.bridge.cache.world import World, job_ids
from isthmus.bridge.config import Config
from isthmus.bridge.scheduler.gang import gang_of, job_options
from isthmus.domain.bridge import explain, jobstates
from isthmus.domain.bridge.explain import Facts, Gate, Trouble
from isthmus.domain.bridge.groups import GroupKey, group_of
from isthmus.domain.bridge.placement import Demand
from isthmus.domain.bridge.podclaims import devices_of
from isthmus.domain.kube import feasibility, selectors, volumes
from isthmus.domain.kube.blocks import block_of
from isthmus.domain.languages import hostlist
from isthmus.errors import IsthmusError, Terminal
from isthmus.inspect.snapshot import Snapshot
from isthmus.model.meta import Key
from isthmus.model.pod import Pod

_SLURM_GATES: Final = ("submitted", "queue", "allocated")


class Explanation(msgspec.Struct, frozen=True):
    """A pod and its gates."""

    pod: str
    group: str
    """Empty for a pod by itself."""
    job_id: int | None
    gates: tuple[Gate, ...]
    siblings: tuple[str, ...] = ()
    """The other pods of its group, and where they are."""


class _Group(msgspec.Struct, frozen=True):
    demand: Demand | None = None
    trouble: Trouble | None = None
    refusal: Trouble | None = None


async def explain_pod(snapshot: Snapshot, config: Config, key: Key, *, now: float) -> Explanation:
    pod = snapshot.world.pods.get(key)
    if pod is None:
        why = snapshot.troubles.get("pods")
        raise Terminal(
            f"there is no pod {key}" if why is None else f"pods cannot be read: {why}",
            remedy="find it with kubectl get pods -A, and give its namespace with -n",
        )
    facts = await _facts(snapshot, config, pod, now=now)
    others = sorted(it.metadata.key for it in facts.members if it.metadata.key != key)
    return Explanation(
        pod=str(key),
        group="" if facts.group.single else str(facts.group),
        job_id=facts.job.job_id if facts.job else next(iter(job_ids(pod)), None),
        gates=explain.gates(facts),
        siblings=tuple(f"{it} {_where(snapshot.world.pods.get(it))}" for it in others),
    )


async def explain_job(snapshot: Snapshot, config: Config, job_id: int, *, now: float) -> Explanation:
    """Where the pods of a job stand: of one that waits, if there is one."""
    world = snapshot.world
    ours = world.jobs.get(job_id)
    if ours is None and "slurm" not in snapshot.troubles:
        known = any(job.job_id == job_id for job in snapshot.jobs)
        raise Terminal(
            f"job {job_id} does not belong to this Kubernetes cluster"
            if known
            else f"Slurm does not know job {job_id} (any more)",
            remedy=f"see scontrol show job {job_id}" if known else "see sacct for past jobs",
        )
    pods = world.pods.by("job", job_id) or (world.members(ours.marker.group) if ours else ())
    if not pods:
        gone = ", ".join(ours.marker.pods) if ours else "unknown"
        raise Terminal(f"the pods of job {job_id} no longer exist: {gone}", remedy=f"end it: scancel {job_id}")
    chosen = min(pods, key=lambda pod: (pod.bound, pod.metadata.key))
    return await explain_pod(snapshot, config, chosen.metadata.key, now=now)


async def _facts(snapshot: Snapshot, config: Config, pod: Pod, *, now: float) -> Facts:
    world = snapshot.world
    group = group_of(pod)
    members = world.members(group)
    if not world.ours(pod):
        return Facts(
            pod=pod,
            scheduler_name=world.scheduler_name,
            now=now,
            group=group,
            managed=_managed(world, config, pod.metadata.namespace),
        )
    found = await _group(world, group, pod, members)
    wanted = _volumes(world, pod)
    constraints = _constraints(world, pod, wanted)
    fit, nodes = _nodes(world, constraints, blind="slurm" in snapshot.troubles)
    ours = _job(world, group, pod)
    job = ours.job if ours else None
    given = tuple(hostlist.expand(job.nodes or "")) if job and jobstates.running(job.job_state) else ()
    kube_nodes = {name: world.map.kube_name(name) or "" for name in given}
    return Facts(
        pod=pod,
        scheduler_name=world.scheduler_name,
        now=now,
        group=group,
        members=members,
        demand=found.demand,
        gang=found.trouble,
        policy=world.grant(pod.metadata.namespace, pod.spec.service_account_name).policy,
        refusal=found.refusal,
        fit=fit,
        nodes=nodes,
        job=job,
        place=explain.place_in_queue(job, snapshot.jobs) if job else None,
        kube_nodes=kube_nodes,
        blocks=_blocks(world, kube_nodes),
        volumes=wanted.waiting,
        devices=_devices(world, pod),
        room=_lack(world, pod, kube_nodes[given[0]]) if len(given) == 1 else "",
        blind=_blind(snapshot.troubles),
    )


def _managed(world: World, config: Config, namespace: str) -> bool:
    if config.managed_namespace_selector is None:
        return namespace in config.managed_namespaces
    found = world.namespaces.get(Key("", namespace))
    return found is not None and selectors.matches(config.managed_namespace_selector, found.metadata.labels)


async def _group(world: World, group: GroupKey, pod: Pod, members: tuple[Pod, ...]) -> _Group:
    """Read what the scheduler would read, and keep its errors."""
    owners = Owners(world.kube)
    pods = members or (pod,)
    try:
        gang = await gang_of(group, pods, owners)
    except IsthmusError as error:
        return _Group(trouble=Trouble(error.what, error.remedy))
    try:
        await job_options(group, gang, pods, world, owners)
    except IsthmusError as error:
        return _Group(gang.demand, refusal=Trouble(error.what, error.remedy))
    return _Group(gang.demand)


def _volumes(world: World, pod: Pod) -> volumes.Volumes:
    return volumes.volumes_of(
        pod,
        claims=world.claims.get,
        volumes=lambda name: world.volumes.get(Key("", name)),
        classes=lambda name: world.classes.get(Key("", name)),
    )


def _blocks(world: World, kube_nodes: Mapping[str, str]) -> dict[str, str]:
    found = {
        name: block_of(world.slurm_nodes.get(name), world.nodes.get(Key("", kube)))
        for name, kube in kube_nodes.items()
    }
    return {name: block for name, block in found.items() if block}


def _devices(world: World, pod: Pod) -> explain.Devices | None:
    try:
        claims = world.devices.of_pod(pod)
    except Terminal as error:
        return explain.Devices(waiting=error.what, remedy=error.remedy)
    if claims.waiting:
        return explain.Devices(waiting=claims.waiting, remedy="see kubectl describe pod, and its ResourceClaims")
    if not (claims.needs or claims.settled):
        return None
    held = [it for claim in (*claims.open, *claims.settled, claims.extended_claim) for it in devices_of(claim)]
    return explain.Devices(
        held=", ".join(f"{it.name} of {it.driver}" for it in held),
        waiting="they are chosen when Slurm has given it a node",
    )


def _constraints(world: World, pod: Pod, wanted: volumes.Volumes) -> feasibility.Constraints:
    """Which nodes a pod may run on, without its claims on devices where those are what is wrong."""
    try:
        return world.constraints(pod)
    except IsthmusError:
        return feasibility.constraints_of(pod, wanted.terms)


def _nodes(world: World, constraints: feasibility.Constraints, *, blind: bool) -> tuple[int, str]:
    """How many nodes fit and why others do not: of Slurm's, or of Kubernetes' where Slurm is away."""
    if not blind:
        nodes = FeasibleNodes(world.nodes, world.map, world.slurm_nodes, world.capacity, world.devices)
        excluded = nodes.excluded(constraints)
        return excluded.feasible, excluded.why
    looked = (
        feasibility.misfit(constraints, node) or world.capacity.misfit(constraints, node)
        for node in world.nodes.values()
    )
    misfits = Counter(filter(None, looked))
    return len(world.nodes) - misfits.total(), feasibility.summary(misfits, len(world.nodes))


def _job(world: World, group: GroupKey, pod: Pod) -> OurJob | None:
    """Find the job that a pod has, or that its group waits for."""
    for job_id in job_ids(pod):
        return world.jobs.get(job_id)
    jobs = [ours for ours in world.jobs.of_group(group) if not group.single or ours.marker.uid == pod.metadata.uid]
    found = [ours for ours in jobs if jobstates.living(ours.job.job_state)] or jobs
    # Of a heterogeneous job, the component that has a place for it.
    found = [ours for ours in found if pod.metadata.uid in ours.marker.uids] or found
    return next(reversed(found), None)


def _lack(world: World, pod: Pod, node: str) -> str:
    return (
        Ledger(world.pods, world.nodes, backs=world.devices.backs).lack(node, pod) or ""
        if node and not pod.bound
        else ""
    )


def _blind(troubles: Mapping[str, str]) -> dict[str, str]:
    blind: dict[str, str] = {}
    if why := troubles.get("slurm") or troubles.get("cluster"):
        blind |= dict.fromkeys(_SLURM_GATES, why)
    if why := troubles.get("nodes"):
        blind |= {"nodes": why, "room": why}
    if why := troubles.get("policies"):
        blind["allowed"] = why
    if why := troubles.get("claims") or troubles.get("volumes") or troubles.get("storage classes"):
        blind["volumes"] = why
    return blind


def _where(pod: Pod | None) -> str:
    if pod is None:
        return "is gone"
    if pod.finished:
        return f"has {pod.status.phase.lower()}"
    return f"is on {pod.spec.node_name}" if pod.bound else "waits"

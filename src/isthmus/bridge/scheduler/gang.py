"""A gang: what makes a group of pods one job, how many there must be, and what they ask of Slurm.

All of it is gathered from the pods and from the objects that stand above them.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from isthmus.bridge.cache.owners import Owner, Owners
from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler.conditions import NotYet
from isthmus.domain.bridge import groups, joboptions, tenancy
from isthmus.domain.bridge.demand import demand_of, kueue_demand
from isthmus.domain.bridge.groups import GroupKey
from isthmus.domain.bridge.joboptions import JobOptions
from isthmus.domain.bridge.placement import ALONE, Demand
from isthmus.model.pod import Pod
from isthmus.model.workload import Job


class Gang(msgspec.Struct, frozen=True):
    """The object behind a group, as far as placement cares: who it is, and how many pods it wants."""

    uid: str
    demand: Demand
    object: Any = None


async def gang_of(group: GroupKey, pods: Sequence[Pod], owners: Owners, *, fresh: bool = False) -> Gang:
    """Find what makes these pods one group, `fresh` or as it was half a minute ago. A single pod has none."""
    if group.single:
        return Gang(pods[0].metadata.uid, ALONE)
    if group.kind == groups.KUEUE_GROUP:
        # Its name is all that its pods have in common: one that is made anew under it takes the place of the old.
        return Gang(str(group.object), kueue_demand(pods))
    found = await owners.group(group, fresh=fresh)
    if found is None:
        key = group.object
        raise NotYet(
            f"{group.kind} {key} does not exist",
            reason="WaitingForGang",
            remedy=f"create it, or remove the reference to it from the pods of {group.namespace}",
        )
    uid = found.metadata.uid
    if group.kind == groups.LEADER_WORKER_SET:
        uid = f"{uid}/{group.name.rpartition('-')[2]}"
    return Gang(uid, demand_of(found, pods), found)


async def job_options(
    group: GroupKey, gang: Gang, pods: Sequence[Pod], world: World, owners: Owners
) -> tuple[JobOptions, int]:
    """Gather the options of the job, within what is allowed; and the time limit in seconds, 0 for none.

    Raises `Terminal` with what is wrong.
    """
    first = pods[0]
    chain = await owners.of(first)
    layers = [_read(source) for source in await _sources(group, gang, first, chain, owners)]
    grant = world.grant(group.namespace, first.spec.service_account_name)
    limits = [owner.object.spec.active_deadline_seconds for owner in chain if isinstance(owner.object, Job)]
    limits += [pod.spec.active_deadline_seconds for pod in pods]
    return tenancy.apply(grant, joboptions.merge(*layers)), min((limit for limit in limits if limit), default=0)


async def _sources(group: GroupKey, gang: Gang, pod: Pod, chain: Sequence[Owner], owners: Owners) -> list[Owner]:
    """The objects whose annotations count, in the order of `domain.bridge.joboptions`: the last one wins."""
    known = {owner.object.metadata.uid for owner in chain}
    own = [] if gang.object is None or gang.object.metadata.uid in known else [Owner(group.kind, gang.object)]
    inner = own if group.kind == groups.BUILTIN_POD_GROUP else []
    outer = [] if inner else own
    above = await owners.above_group(group, gang.object)
    return [Owner("Pod", pod), *inner, *reversed(chain), *outer, *above]


def _read(source: Owner) -> JobOptions:
    return joboptions.parse(source.object.metadata.annotations, where=f"{source.kind} {source.object.metadata.key}")

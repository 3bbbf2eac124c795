"""Which Jobs fill or refresh the shared root of a SlurmCluster, and when.

    populate-jail   once, beside everything else; nobody waits for it but the pods that need the root. It stays as
                    a record. One that has not come to its end is recreated when its specification changes.
    refresh-jail    brings a filled root up to the image that the specification names. By itself in maintenance
                    alone, when everything is scaled down; otherwise on request: isthmus cluster refresh.

A newer image in the specification changes nothing but a condition.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from isthmus import names
from isthmus.model.pod import Pod
from isthmus.model.soperator import SlurmCluster
from isthmus.model.workload import OwnJob

DELETE: Final = "downscaleAndDeletePopulateJail"
OVERWRITE: Final = "downscaleAndOverwritePopulateJail"
SKIP: Final = "skipPopulateJail"


class SeenRoot(msgspec.Struct, frozen=True, kw_only=True):
    """What is there: the Jobs, and all pods of them."""

    populate: OwnJob | None = None
    refresh: OwnJob | None = None
    pods: tuple[Pod, ...] = ()


class Step(NamedTuple):
    action: Literal["populate", "refresh"]
    does: Literal["make", "remove"]


class Hashes(NamedTuple):
    """Of the Jobs as they would be made now."""

    populate: str
    refresh: str


def steps(cluster: SlurmCluster, seen: SeenRoot, hashes: Hashes, *, at_rest: bool) -> list[Step]:
    """Decide which Jobs to make or remove. `at_rest`: everything is scaled down."""
    return [*_populating(cluster, seen.populate, hashes), *_refreshing(cluster, seen, hashes, at_rest=at_rest)]


def _populating(cluster: SlurmCluster, job: OwnJob | None, hashes: Hashes) -> Iterator[Step]:
    mode = cluster.spec.maintenance
    if mode == DELETE:
        if _can_go(job):
            yield Step("populate", "remove")
    elif mode == SKIP:
        return
    elif job is None:
        yield Step("populate", "make")
    elif not job.complete and _hash(job) != hashes.populate and _can_go(job):
        yield Step("populate", "remove")


def _refreshing(cluster: SlurmCluster, seen: SeenRoot, hashes: Hashes, *, at_rest: bool) -> Iterator[Step]:
    job = seen.refresh
    ours = job is not None and _owner(job) == cluster.metadata.uid
    ended = job is not None and bool(job.complete or job.failure)
    if cluster.spec.maintenance != OVERWRITE:
        # Of a maintenance that is over; one that a user requested stays.
        if ours and ended and _can_go(job):
            yield Step("refresh", "remove")
        return
    if not at_rest or seen.populate is None or not seen.populate.complete:
        return
    if job is None:
        yield Step("refresh", "make")
    elif ended and _can_go(job) and (not ours or _hash(job) != hashes.refresh):
        yield Step("refresh", "remove")


def _can_go(job: OwnJob | None) -> bool:
    return job is not None and job.metadata.deletion_timestamp is None


def _hash(job: OwnJob) -> str:
    return job.metadata.annotations.get(names.JAIL_HASH_ANNOTATION, "")


def _owner(job: OwnJob) -> str:
    owner = job.metadata.controller
    return owner.uid if owner else ""

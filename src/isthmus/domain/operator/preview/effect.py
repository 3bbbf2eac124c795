"""An effect of a change, and what there is now that it has an effect on."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Literal, TypeVar

import msgspec

from isthmus.domain.languages.prose import some
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job
from isthmus.model.slurm import Node as SlurmNode
from isthmus.names import COMPONENT_LABEL, INSTANCE_LABEL

P = TypeVar("P")

Mark = Literal["drain", "restart", "less", "more", "config", "note"]


class NodeJobs(msgspec.Struct, frozen=True):
    """A node that is to be emptied, and the jobs that are waited for."""

    name: str
    jobs: tuple[int, ...] = ()
    users: tuple[str, ...] = ()
    until: float | None = None
    """When the last of them ends at the latest; None without jobs, or where one has no limit."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    mark: Mark
    what: str
    lines: tuple[str, ...] = ()
    nodes: tuple[NodeJobs, ...] = ()


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """What there is now beside custom resources."""

    pods: tuple[Pod, ...] = ()
    nodes: Mapping[str, SlurmNode] | None = None
    """Of Slurm; None if it did not say."""
    jobs: tuple[Job, ...] = ()
    now: datetime

    def of(self, component: str, instance: str) -> tuple[Pod, ...]:
        """The pods of a custom resource."""
        return tuple(
            it
            for it in self.pods
            if it.metadata.labels.get(COMPONENT_LABEL) == component
            and it.metadata.labels.get(INSTANCE_LABEL) == instance
            and not it.leaving
        )


def pairs(old: Mapping[str, P], new: Mapping[str, P]) -> Iterator[tuple[str, P | None, P | None]]:
    for name in dict.fromkeys((*old, *new)):
        yield name, old.get(name), new.get(name)


def named(pods: tuple[Pod, ...]) -> str:
    return f" ({some(it.metadata.name for it in pods)})" if pods else ""

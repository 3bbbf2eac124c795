"""What is known of a NodeSet at one moment: its pods, and beside each its nodes in Kubernetes and in Slurm.

Every decision about a NodeSet is a pure function of a `View`. It holds what both sides said last; who decides
something that could cost a job asks `slurm_in_touch` first, because what Slurm said an hour ago proves nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.kube.removal import Notice, notice_of
from isthmus.domain.operator.nodeset.actions import ReviseRecord
from isthmus.domain.operator.nodeset.identity import Mode
from isthmus.model.meta import Key
from isthmus.model.node import Node
from isthmus.model.pod import Pod
from isthmus.model.slinky import NodeSet
from isthmus.model.slurm import Job, Reservation
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.storage import Claim

BUSY_STATES: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
"""A node in one of these runs a job, or has not yet cleaned up after one."""


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """One worker pod, with what Slurm says of the node that runs in it."""

    pod: Pod
    mode: Mode
    slurm_name: str
    """The name that its slurmd registers under."""
    ordinal: int | None = None
    """Its number, in StatefulSet mode."""
    hash: str = ""
    """Of the specification that it was made from."""
    ready: bool = False
    available: bool = False
    """Ready for as long as minReadySeconds asks."""
    let_go: bool = False
    """We have deleted it already, and the cache does not show it yet."""
    kube_node: Node | None = None
    """Where it runs; None while it has no node, or if that one is gone."""
    slurm: SlurmNode | None = None
    """What Slurm said last; None if it did not know the node. Proves nothing unless `View.slurm_in_touch`."""

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def key(self) -> Key:
        return self.pod.metadata.key

    @property
    def uid(self) -> str:
        """Which pod of this name it is."""
        return self.pod.metadata.uid

    @property
    def node_name(self) -> str:
        """Where it runs in Kubernetes; empty while it has no node."""
        return self.pod.spec.node_name

    @property
    def leaving(self) -> bool:
        """Whether it was deleted and has not gone yet."""
        return self.let_go or self.pod.leaving

    @property
    def finished(self) -> bool:
        """Whether it ended for good, which no worker pod should."""
        return self.pod.finished

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.pod.metadata.annotations

    @property
    def cordoned(self) -> bool:
        """Whether an annotation asks that it takes no more jobs. We only read it."""
        return self.annotations.get(names.POD_CORDON_ANNOTATION) == "true"

    @property
    def protected(self) -> bool:
        """Whether it carries the label that keeps evictions away."""
        return self.pod.metadata.labels.get(names.POD_PROTECT_LABEL) == "true"

    @property
    def kube_cordoned(self) -> bool:
        """Whether its Kubernetes node takes no more pods."""
        return self.kube_node is not None and self.kube_node.spec.unschedulable

    @property
    def notice(self) -> Notice | None:
        """Why its machine is about to go; None if it stays."""
        return notice_of(self.kube_node)

    @property
    def kube_going(self) -> bool:
        """Whether somebody wants its machine to be empty."""
        return self.kube_cordoned or self.notice is not None

    def slurm_has(self, *states: str) -> bool:
        """Whether Slurm said that its node is in one of these states."""
        return self.slurm is not None and not set(self.slurm.state).isdisjoint(states)

    @property
    def busy(self) -> bool:
        """Whether Slurm said that jobs run on it, or that it still cleans up after one."""
        if self.slurm is None:
            return False
        return self.slurm.alloc_cpus > 0 or not BUSY_STATES.isdisjoint(self.slurm.state)

    @property
    def draining(self) -> bool:
        """Whether Slurm said that it gets no more jobs."""
        return self.slurm is not None and "DRAIN" in self.slurm.state and "UNDRAIN" not in self.slurm.state

    @property
    def drained(self) -> bool:
        """Whether Slurm said that it gets no more jobs and has none. A node that Slurm does not know is not."""
        return self.draining and not self.busy


class Registration(msgspec.Struct, frozen=True):
    """How many nodes should have registered by now, and how many of them Slurm does not know."""

    settled: int = 0
    unknown: int = 0


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A NodeSet, and everything that bears on it."""

    nodeset: NodeSet
    pods: tuple[PodView, ...]
    """All that the NodeSet owns, also those of the other mode and those that leave; by mode, ordinal and name."""
    now: datetime
    hash: str
    """Of the specification that pods are made from now."""
    desired: int
    """How many pods there should be: the replicas, or the Kubernetes nodes that fit; 0 once it is deleted."""
    kube_nodes: Mapping[str, Node]
    slurm_answers: bool = False
    slurm_in_touch: bool = False
    """Whether what is said here of Slurm holds now: it answers, and has answered since we last wrote to it."""
    slurm_trouble: str = ""
    """Why Slurm cannot be asked; empty if it can."""
    slurm_nodes: Mapping[str, SlurmNode] = {}
    """Every node that Slurm knows, also those of others."""
    slurm_nodes_read: bool = False
    """Whether they were read for this decision, and are not those of the last poll."""
    elsewhere: Registration = Registration()
    """Of the cluster's other NodeSets; counted only where Slurm does not know a node of this one."""
    jobs: tuple[Job, ...] | None = None
    """The jobs of Slurm; None unless they were read for this, which costs and is done only where needed."""
    jobs_in: float = 0.0
    """In how many seconds jobs may be asked for, as they were a moment ago; what was read then is old."""
    reservations: tuple[Reservation, ...] | None = None
    """Those of Slurm; None unless they were read for this, as a ScheduledUpdate or our finalizer needs."""
    coming: frozenset[str] = frozenset()
    """Slurm names of pods that are made now, or were and are not among `pods` yet."""
    unwanted: frozenset[str] = frozenset()
    """Pods to delete whatever the replicas: on a node that no longer fits, of the other mode, duplicates."""
    claims: Mapping[Key, Claim] = {}
    """Of the namespace; only where the NodeSet has templates for claims."""
    has_template: bool = True
    """Whether a pod can be rendered; False only while the NodeSet is being deleted."""
    has_keys: bool = True
    """Whether the Secret is there that pods mount."""
    create_after: float = 0.0
    """In how many seconds pods may be created: the API server refused one a moment ago."""
    refusal: str = ""
    """Why it did."""
    deletion_tried: frozenset[str] = frozenset()
    """Records that Slurm was asked to delete within the last minute."""
    revision_tried: frozenset[ReviseRecord] = frozenset()
    """Updates of records within the last minute."""
    wrong: tuple[str, ...] = ()
    """What prevents its pods, such as settings of sshd or missing keys."""

    @property
    def name(self) -> str:
        """The name of the NodeSet, which is a feature of its nodes in Slurm."""
        return self.nodeset.metadata.name

    @property
    def deleting(self) -> bool:
        """Whether the NodeSet was deleted and waits for its nodes."""
        return self.nodeset.metadata.deletion_timestamp is not None

    def unheard_of(self, pod: PodView) -> bool:
        """Whether a pod may have jobs that we have not read yet, as when we have just started."""
        return not self.slurm_in_touch and pod.slurm is None and bool(pod.node_name) and not pod.finished

    def outdated(self, pod: PodView) -> bool:
        """Whether a pod was made from another specification."""
        return pod.hash != self.hash

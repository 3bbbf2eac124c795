"""What is known of a Slurm cluster on Kubernetes when it is examined: values only, read by the checks beside it."""

from collections.abc import Mapping

import msgspec

from isthmus.model.base import EMPTY
from isthmus.model.health import HealthPolicy, NodeHealth
from isthmus.model.meta import Condition, Key
from isthmus.model.policy import BridgePolicy


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what is known. What could not be found out is None or empty, and nothing is concluded from it."""


class KindFact(Fact, frozen=True):
    """A custom kind as the API server has it; `lacks` are fields of ours that it does not know."""

    name: str
    served: bool = True
    lacks: tuple[str, ...] = ()


class OperatorFact(Fact, frozen=True):
    """Who leads the operator. `renewed` is in seconds ago."""

    holder: str = ""
    renewed: float | None = None
    patience: float = 15.0
    """After so many seconds without a sign it counts as gone."""

    @property
    def alive(self) -> bool:
        """Whether one leads and has said so in time."""
        return bool(self.holder) and self.renewed is not None and self.renewed <= self.patience


class Hold(Fact, frozen=True):
    """A container that does not start, and why."""

    container: str
    reason: str
    message: str = ""
    image: str = ""


class Ending(Fact, frozen=True):
    """How a container ended the last time, and how often it was started again."""

    container: str
    code: int
    restarts: int
    reason: str = ""
    message: str = ""


class PodFact(Fact, frozen=True):
    name: str
    component: str
    part: str = ""
    """The name of the custom resource that it is of."""
    main: str = ""
    """The container that commands run in unless they name one."""
    ready: bool = False
    phase: str = "Running"
    node: str = ""
    host: str = ""
    """Its host name: what a worker is called in Slurm."""
    unplaced: str = ""
    """Why it has no node, in the words of the Kubernetes scheduler."""
    unmounted: str = ""
    """Why its volumes are not there, in the words of kubelet."""
    holds: tuple[Hold, ...] = ()
    endings: tuple[Ending, ...] = ()
    leaving: bool = False
    age: float | None = None
    """For how many seconds kubelet has known it."""


class ClaimFact(Fact, frozen=True):
    """A volume claim that pods of the cluster use."""

    name: str
    phase: str = "Bound"
    modes: tuple[str, ...] = ()
    shared: bool = False
    """Whether pods of several nodes need it."""
    storage_class: str = ""
    note: str = ""
    """The last warning about it."""


class PartFact(Fact, frozen=True):
    """A custom resource of the cluster, with its conditions."""

    kind: str
    name: str
    generation: int = 0
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    age: float | None = None
    """For how many seconds it has been there."""


class DiskFact(Fact, frozen=True):
    """How full a file system is, in percent of its space and of its files."""

    path: str
    space: int
    files: int = 0


class InsideFact(Fact, frozen=True):
    """What a pod sees from inside."""

    pod: str
    component: str
    clock: float | None = None
    """By how many seconds its clock is ahead of ours."""
    doubt: float = 0.0
    """How wrong that may be, because asking takes time."""
    keys: Mapping[str, str] = EMPTY
    """A fingerprint of each key of Slurm or munge that it has, by the name of the file."""
    unresolved: tuple[str, ...] = ()
    """Names of other pods that it does not find in DNS."""
    resolved: tuple[str, ...] = ()
    config: str = ""
    """A fingerprint of the slurm.conf that it runs with."""
    disks: tuple[DiskFact, ...] = ()
    trouble: str = ""
    """Why it could not be looked at."""


class Answer(Fact, frozen=True):
    """What a command of Slurm said."""

    code: int
    text: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0


class SlurmNodeFact(Fact, frozen=True):
    name: str
    states: tuple[str, ...]
    reason: str = ""


class ClusterFacts(Fact, frozen=True):
    key: Key
    kind: str = "SlurmCluster"
    """What its users call it: SlurmCluster, or Controller where it was put together by hand."""
    controller: str = ""
    parts: tuple[PartFact, ...] = ()
    pods: tuple[PodFact, ...] = ()
    claims: tuple[ClaimFact, ...] = ()
    insides: tuple[InsideFact, ...] = ()
    ping: Answer | None = None
    """Of `scontrol ping`, asked by a login pod or, where there is none, by slurmctld's own."""
    database: Answer | None = None
    """Of `sacctmgr show cluster`; None where the cluster has no accounting."""
    nodes: tuple[SlurmNodeFact, ...] | None = None
    """As Slurm lists them; None if it did not."""
    config: str = ""
    """A fingerprint of the slurm.conf that the cluster should run with."""
    config_age: float | None = None
    """For how many seconds it has been that one."""
    slurmdbd_log: str = ""
    """The last lines of slurmdbd's log; empty unless accounting does not answer."""
    now: float | None = None
    """When all this was found out, in seconds since 1970."""


class ReturnedFact(Fact, frozen=True):
    """A pod whose node went back to Slurm because Kubernetes could not use it, and why."""

    pod: str
    why: str


class SecretFact(Fact, frozen=True):
    """A Secret with something that expires: a certificate, or a token."""

    key: Key
    trouble: str = ""
    """Why what is in it cannot be used."""
    left: float | None = None
    """For how many seconds it is still good; None for what does not expire."""


class WebhookFact(Fact, frozen=True):
    kind: str
    name: str
    trusts: bool = True
    """Whether the API server trusts the authority that signs for the bridge."""


class BridgeFacts(Fact, frozen=True):
    """An installation of the bridge."""

    key: Key
    """Its namespace, and the prefix of its names."""
    pods: tuple[PodFact, ...] = ()
    """`component` is scheduler, controllers, admission or all."""
    webhooks: tuple[WebhookFact, ...] = ()
    certificate: SecretFact | None = None
    token: SecretFact | None = None
    slurm: str = ""
    """The URL of its slurmrestd."""


class LocalNodeFact(Fact, frozen=True):
    """A node of a local cluster: whether its machine is on, and what should run there and does not."""

    name: str
    machine: str = "on"
    stopped: tuple[str, ...] = ()


class LocalClusterFact(Fact, frozen=True):
    """A cluster of this machine."""

    name: str
    nodes: tuple[LocalNodeFact, ...] = ()
    published: bool = True
    """Whether its ports lead somewhere."""
    trouble: str = ""
    """Why it could not be looked at."""


class HostFacts(Fact, frozen=True):
    """What is known of the machine on which the doctor runs."""

    clusters: tuple[LocalClusterFact, ...] = ()
    full: Mapping[str, float] = {}
    """GiB that are free, by directory, where they are too few."""
    watches: int | None = None
    """How many inotify instances a user may have, where that is too few for local clusters."""
    token_left: float | None = None
    """For how many seconds SLURM_JWT is still good."""
    ping: Answer | None = None
    """Of `scontrol ping`, where this machine has Slurm's commands."""


class CheckFact(Fact, frozen=True):
    """An ActiveCheck; `error` is why its last run says nothing about nodes."""

    key: Key
    error: str = ""


class StrayFact(Fact, frozen=True):
    """A custom resource that is of no cluster."""

    namespace: str
    part: PartFact


class Facts(Fact, frozen=True):
    kinds: tuple[KindFact, ...] = ()
    operators: tuple[OperatorFact, ...] | None = None
    clusters: tuple[ClusterFacts, ...] = ()
    strays: tuple[StrayFact, ...] = ()
    taints: Mapping[str, tuple[str, ...]] = {}
    """Taints that keep pods away, by Kubernetes node."""
    unready: Mapping[str, str] = EMPTY
    """Kubernetes nodes that are not ready, and what is said of them."""
    returned: tuple[ReturnedFact, ...] = ()
    """Of the last hour."""
    bridges: tuple[BridgeFacts, ...] | None = None
    external: tuple[str, ...] = ()
    """Kubernetes nodes that are labelled as external nodes of Slurm, by their names there."""
    miscounted: Mapping[str, str] = EMPTY
    """Kubernetes nodes whose devices Slurm counts otherwise than their drivers, and how."""
    unserved: tuple[str, ...] = ()
    """Pods for Slurm that wait while there is no bridge."""
    bridge_policies: tuple[BridgePolicy, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels by namespace."""
    host: HostFacts = HostFacts()
    checkers: tuple[OperatorFact, ...] | None = None
    """Who leads soperatorchecks."""
    checks: tuple[CheckFact, ...] = ()
    healths: tuple[NodeHealth, ...] = ()
    policies: tuple[HealthPolicy, ...] = ()
    troubles: Mapping[str, str] = EMPTY
    """What could not be read, and why."""

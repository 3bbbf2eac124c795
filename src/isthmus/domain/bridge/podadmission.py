"""What a pod must look like for Slurm to place it: how admission changes it, and why it is refused.

    mutate            on CREATE alone: the scheduler's name, the toleration, no node, the gang of its workload
    validate_create   asks that cannot be read, kept or allowed, and marks that only the bridge sets
    validate_update   the same for asks that change; nobody else changes the marks, and nothing is resized

Messages that slurm-bridge has too are in its words. Who is refused is told all that is wrong, not only the first.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.domain.bridge import joboptions, tenancy
from isthmus.domain.bridge.groups import GANG_ANNOTATION, GROUP_ANNOTATIONS, GROUP_LABELS, group_of
from isthmus.domain.bridge.joboptions import JobOptions
from isthmus.domain.bridge.tenancy import Grant
from isthmus.domain.kube import feasibility
from isthmus.domain.kube.deviceclaims import need_of
from isthmus.domain.languages.gresnames import CPU_DEVICE, DEVICE_CLASS
from isthmus.errors import Terminal
from isthmus.model.dra import ClaimSpec
from isthmus.model.pod import Container, Pod, Toleration

DEFAULT_SCHEDULER: Final = "default-scheduler"
_MIRROR: Final = "kubernetes.io/config.mirror"
"""On the API server's copy of a pod that a kubelet runs by itself."""

OWNED_ANNOTATIONS: Final = (
    names.POD_NODE_ANNOTATION,
    names.POD_JOB_ANNOTATION,
    names.POD_SLURM_NODE_ANNOTATION,
)
"""What only the binding writes, beside the label with the job's id."""

_TRAIN_JOB: Final = "TrainJob "
_ID: Final = "external jobid label"
_NODE: Final = "external node annotation"
_ONLY_US: Final = "only the bridge writes it"
_NO_CLAIMS: Final[Mapping[str, ClaimSpec]] = MappingProxyType({})

Patch = list[dict[str, Any]]


class Rules(msgspec.Struct, frozen=True):
    """What admission depends on. `bridge_users` are the names by which the API server knows the bridge itself."""

    scheduler_name: str = names.SCHEDULER_NAME
    taint_effect: str = ""
    """Of the managed taint; empty tolerates it with every effect."""
    exclusive: bool = True
    bridge_users: Collection[str] = ()


class Source(msgspec.Struct, frozen=True):
    """An object above the pod whose annotations count, such as "Job batch/train"."""

    name: str
    annotations: Mapping[str, str]


def captured(pod: Pod, rules: Rules, *, managed: bool) -> bool:
    """Whether Slurm is to place a pod: it says so, or its namespace does (`managed`) and it does not object.

    Those of DaemonSets and of kubelets themselves belong to one node already. In a managed namespace they are left
    alone; who wants Slurm to account for a DaemonSet writes the scheduler's name into it.
    """
    if pod.spec.scheduler_name == rules.scheduler_name:
        return True
    undecided = pod.spec.scheduler_name in {"", DEFAULT_SCHEDULER}
    return managed and undecided and not _of_one_node(pod)


def wants_gang_of_owner(pod: Pod) -> bool:
    """Whether the pod's Job, or the JobSet above it, decides whether pods start together."""
    owner = pod.metadata.controller
    return owner is not None and owner.kind == "Job" and GANG_ANNOTATION not in pod.metadata.annotations


def mutate(pod: Pod, rules: Rules, *, owners: Sequence[Source] = ()) -> Patch:
    """Make the JSON patch that hands a new pod to Slurm; `owners` are those above it, the nearest first."""
    patch: Patch = []
    if pod.spec.scheduler_name != rules.scheduler_name:
        patch.append({"op": "add", "path": "/spec/schedulerName", "value": rules.scheduler_name})
    if pod.spec.node_name:
        patch.append({"op": "remove", "path": "/spec/nodeName"})
    wanted = Toleration(names.MANAGED_TAINT, "Equal", rules.scheduler_name, rules.taint_effect)
    if not any(_covers(has, wanted) for has in pod.spec.tolerations):
        written = {"key": wanted.key, "operator": wanted.operator, "value": wanted.value}
        written |= {"effect": wanted.effect} if wanted.effect else {}
        patch.append(_append("/spec/tolerations", written, there=bool(pod.spec.tolerations)))
    if GANG_ANNOTATION not in pod.metadata.annotations and any(_is_gang(owner) for owner in owners):
        patch.append(_annotate(GANG_ANNOTATION, "true", there=bool(pod.metadata.annotations)))
    return patch


def validate_create(
    pod: Pod,
    rules: Rules,
    *,
    owners: Sequence[Source] = (),
    grant: Grant,
    claims: Mapping[str, ClaimSpec] = _NO_CLAIMS,
) -> list[str]:
    """Refuse a pod that Slurm could not place as it is (`Terminal`), or return warnings for its author.

    `claims` are those of its claims on devices that are there already, or will be made for it.
    """
    wrong: list[str] = []
    if pod.metadata.labels.get(names.JOB_ID_LABEL):
        wrong.append(f"can't create a pod with a slurm {_ID}")
    if pod.metadata.annotations.get(names.POD_NODE_ANNOTATION):
        wrong.append(f"can't create a pod with a slurm {_NODE}")
    wrong += [
        f"can't create a pod with the annotation {key}: {_ONLY_US}"
        for key in (names.POD_JOB_ANNOTATION, names.POD_SLURM_NODE_ANNOTATION)
        if pod.metadata.annotations.get(key)
    ]
    wrong += _devices(pod)
    options, errors = _options(pod, owners, grant)
    exclusive = rules.exclusive if options is None or options.exclusive is None else options.exclusive
    wrong += _unsupported(pod, exclusive=exclusive)
    errors += _unplaceable(claims, exclusive=exclusive)
    _refuse(wrong, errors)
    # Controllers read no warnings: they are for people who create pods by hand.
    if pod.metadata.controller:
        return []
    return [*feasibility.ignored_preferences(pod), *([grant.warning] if grant.warning else [])]


def validate_update(
    old: Pod,
    new: Pod,
    rules: Rules,
    *,
    user: str,
    resize: bool = False,
    owners: Sequence[Source] = (),
    grant: Grant,
) -> list[str]:
    """Refuse a change that would part a pod from its job (`Terminal`), or return warnings."""
    if resize:
        raise Terminal(
            "can't resize a Slurm Bridge-managed pod",
            remedy="its Slurm job has the size that it was submitted with: create the pod again",
        )
    wrong = [] if user in rules.bridge_users else _changed_marks(old, new)
    wrong += _changed_group(old, new)
    before, after = _asked(old), _asked(new)
    if before == after:
        _refuse(wrong, [])
        return []
    _, errors = _options(new, owners, grant)
    _refuse(wrong, errors)
    if new.bound:
        return ["this does not change the pod's Slurm job: annotations take effect when the job is submitted"]
    return []


def _of_one_node(pod: Pod) -> bool:
    owner = pod.metadata.controller
    return _MIRROR in pod.metadata.annotations or (owner is not None and owner.kind == "DaemonSet")


def _covers(has: Toleration, wanted: Toleration) -> bool:
    if has.effect and has.effect != wanted.effect:
        return False
    if has.operator == "Exists":
        return has.key in {"", wanted.key}
    return (has.key, has.value) == (wanted.key, wanted.value)


def _is_gang(owner: Source) -> bool:
    # The pods of a TrainJob always start together, but say nothing about it: its JobSet makes them.
    said = owner.annotations.get(GANG_ANNOTATION, "true" if owner.name.startswith(_TRAIN_JOB) else "")
    return said.strip().lower() == "true"


def _append(path: str, value: object, *, there: bool) -> dict[str, Any]:
    return (
        {"op": "add", "path": f"{path}/-", "value": value}
        if there
        else {"op": "add", "path": path, "value": [value]}
    )


def _annotate(key: str, value: str, *, there: bool) -> dict[str, Any]:
    path = "/metadata/annotations"
    if not there:
        return {"op": "add", "path": path, "value": {key: value}}
    return {"op": "add", "path": f"{path}/{key.replace('~', '~0').replace('/', '~1')}", "value": value}


def _options(pod: Pod, owners: Sequence[Source], grant: Grant) -> tuple[JobOptions | None, list[Terminal]]:
    """Read the requested options, within what is allowed. The outermost owner wins."""
    layers: list[JobOptions] = []
    errors: list[Terminal] = []
    for source in (Source("", pod.metadata.annotations), *owners):
        try:
            layers.append(joboptions.parse(source.annotations, where=source.name))
        except Terminal as error:
            errors.append(error)
    if errors:
        return None, errors
    try:
        return tenancy.apply(grant, joboptions.merge(*layers)), []
    except Terminal as error:
        return None, [error]


def _unsupported(pod: Pod, *, exclusive: bool) -> list[str]:
    """What Slurm cannot promise; what slurm-bridge refuses too is refused in its words."""
    found = []
    spec = pod.spec
    if any(it.when_unsatisfiable == "DoNotSchedule" for it in spec.topology_spread_constraints):
        found.append(
            "spec.topologySpreadConstraints is not supported by the slurm-bridge scheduler: Slurm spreads jobs by"
            " its own topology; remove it, or set whenUnsatisfiable to ScheduleAnyway, which is a preference"
        )
    rest = msgspec.structs.replace(spec, topology_spread_constraints=())
    return found + feasibility.unsupported(msgspec.structs.replace(pod, spec=rest), exclusive=exclusive)


def _devices(pod: Pod) -> list[str]:
    """Devices that are requested by class or claim, and by an annotation as well."""
    found = []
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    for name in sorted({it for each in containers for it in _resources(each) if it.startswith(DEVICE_CLASS)}):
        if name == CPU_DEVICE:
            found += _conflict(pod, f'CPU DRA resource "{name}"', annotation="cpu-per-task")
        else:
            found += _conflict(pod, f'DRA resource "{name}"')
    return found + [it for use in pod.spec.resource_claims for it in _conflict(pod, f'resource claim "{use.name}"')]


def _unplaceable(claims: Mapping[str, ClaimSpec], *, exclusive: bool) -> Iterator[Terminal]:
    for name, spec in claims.items():
        told = f'resource claim "{name}"'
        try:
            need = need_of(spec)
        except Terminal as error:
            yield Terminal(f"{told}: {error.what}", remedy=error.remedy)
            continue
        choices = [it for request in need.requests for it in request.choices]
        if not exclusive and any(it.every and not it.admin for it in choices):
            yield Terminal(
                f"{told}: all devices of a node are only for pods that have it to themselves",
                remedy=f"ask for a number of them, or set {names.JOB_ANNOTATIONS}exclusive to true",
            )


def _conflict(pod: Pod, what: str, *, annotation: str = "gres") -> list[str]:
    annotation = f"{names.JOB_ANNOTATIONS}{annotation}"
    if not pod.metadata.annotations.get(annotation):
        return []
    return [f'annotation "{annotation}" conflicts with {what}: explicit DRA requests are authoritative']


def _resources(container: Container) -> set[str]:
    return {*container.resources.requests, *container.resources.limits}


def _changed_marks(old: Pod, new: Pod) -> list[str]:
    running = old.status.phase == "Running"
    wrong = []
    if old.metadata.labels.get(names.JOB_ID_LABEL) != new.metadata.labels.get(names.JOB_ID_LABEL):
        wrong.append(
            f"can't update a running pod's {_ID}" if running else f"can't update a pod's {_ID}: {_ONLY_US}"
        )
    for key in OWNED_ANNOTATIONS:
        if old.metadata.annotations.get(key) == new.metadata.annotations.get(key):
            continue
        if key != names.POD_NODE_ANNOTATION:
            wrong.append(f"can't update a pod's annotation {key}: {_ONLY_US}")
        else:
            wrong.append(
                f"can't update a running pod's {_NODE}" if running else f"can't update a pod's {_NODE}: {_ONLY_US}"
            )
    return wrong


def _changed_group(old: Pod, new: Pod) -> list[str]:
    """Refuse to part a pod from its job, with which it would no longer end. Before its gates open, it has none."""
    before, after = group_of(old), group_of(new)
    if before == after or old.spec.scheduling_gates:
        return []
    labels, annotations = old.metadata.labels, old.metadata.annotations
    changed = [f"label {key}" for key in GROUP_LABELS if labels.get(key) != new.metadata.labels.get(key)]
    changed += [
        f"annotation {key}"
        for key in GROUP_ANNOTATIONS
        if annotations.get(key) != new.metadata.annotations.get(key)
    ]
    return [f"can't update the {' and the '.join(changed)}: the pod's Slurm job is that of {before}"]


def _asked(pod: Pod) -> dict[str, str]:
    return {
        key: value
        for key, value in pod.metadata.annotations.items()
        if key.startswith((names.JOB_ANNOTATIONS, names.JOB_ANNOTATIONS_OLD)) and key not in OWNED_ANNOTATIONS
    }


def _refuse(wrong: Sequence[str], errors: Sequence[Terminal]) -> None:
    """Raise one error for everything, if there is anything."""
    if wrong or errors:
        remedies = dict.fromkeys(error.remedy for error in errors if error.remedy)
        raise Terminal("; ".join([*wrong, *(error.what for error in errors)]), remedy="; ".join(remedies))

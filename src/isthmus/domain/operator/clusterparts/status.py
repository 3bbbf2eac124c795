"""The status of a SlurmCluster, summed up from that of its parts."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec

from isthmus.domain.kube import conditions
from isthmus.domain.kube.conditions import no, yes
from isthmus.domain.kube.podtrouble import Trouble
from isthmus.domain.operator.clusterparts.cluster import Parts
from isthmus.domain.operator.clusterparts.daemons import resting
from isthmus.domain.operator.clusterparts.rootjobs import OVERWRITE
from isthmus.domain.operator.clusterparts.rootstatus import RootView, mode_condition
from isthmus.model.meta import Condition, ObjectMeta, condition
from isthmus.model.slinky import Accounting, Controller, LoginSet, NodeSet, RestApi
from isthmus.model.soperator import NodeSet as NebiusNodeSet
from isthmus.model.soperator import SlurmCluster

PENDING = "Pending"
AVAILABLE = "Available"
NOT_AVAILABLE = "Not available"

ACCEPTED = "Accepted"
WITHOUT_EFFECT = "FieldsWithoutEffect"
REFS_RESOLVED = "NodeSetRefsResolved"
WRITER_AVAILABLE = "SConfigControllerAvailable"
EXPORTER_AVAILABLE = "ExporterAvailable"


class _Status(Protocol):
    @property
    def conditions(self) -> tuple[Condition, ...]: ...

    @property
    def observed_generation(self) -> int: ...


class Part(Protocol):
    """A custom resource with conditions."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def status(self) -> _Status: ...


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a cluster as they are now; None where there is none."""

    controller: Controller | None = None
    accounting: Accounting | None = None
    restapi: RestApi | None = None
    login: LoginSet | None = None
    nodesets: tuple[NodeSet, ...] = ()
    root: RootView | None = None
    """How the shared root is, if there is one."""
    writer: "View | None" = None
    """How sconfigcontroller is, which writes files onto it."""
    ready_writers: int = 0
    exporter: "View | None" = None
    """How the exporter is, if there is one."""
    stale: frozenset[str] = frozenset()
    """Kinds of parts that were changed just now, and that the cache still shows as they were."""
    unmade: Trouble = Trouble()
    """Parts that could not be applied."""


class View(msgspec.Struct, frozen=True):
    """One part: whether it is ready, and if not, what is wrong or missing."""

    name: str
    ready: bool
    wrong: str = ""
    missing: str = ""
    remark: str = ""
    """What to report about a part that is ready."""

    def as_condition(self, type_: str) -> Condition:
        if self.ready:
            remark = f" ({self.remark})" if self.remark else ""
            return yes(type_, "Available", f"{self.name} is ready{remark}")
        return no(type_, "NotAvailable", self.wrong or self.missing)


def look_at(name: str, part: Part | None, *, stale: bool = False) -> View:
    """The state of a part. A report about an older specification does not count."""
    if part is None:
        return View(name, ready=False, missing=f"{name} is being created")
    told = part.status
    if stale or told.observed_generation < part.metadata.generation:
        doing = "changed" if told.observed_generation else "made"
        return View(name, ready=False, missing=f"{name} is being {doing}")
    ready = condition(told.conditions, conditions.READY)
    degraded = condition(told.conditions, conditions.DEGRADED)
    if degraded and degraded.status == "True":
        return View(name, ready=False, wrong=f"{name}: {degraded.message}")
    if ready and ready.status == "True":
        return View(name, ready=True)
    why = f": {ready.message}" if ready and ready.message else ""
    return View(name, ready=False, missing=f"{name} is not ready{why}")


def cluster_status(
    cluster: SlurmCluster, parts: Parts, family: ClusterView, *, prefix: str
) -> tuple[dict[str, Any], list[Condition]]:
    ready = sum(it.status.ready_replicas for it in family.nodesets)
    fields: dict[str, Any] = {
        "namePrefix": prefix,
        "readyLogin": family.login.status.ready_replicas if family.login else 0,
        "readyWorkers": ready,
        "workers": f"{ready}/{parts.workers}",
        "readySConfigController": family.ready_writers,
        "slurmVersion": family.controller.status.slurm_version if family.controller else "",
    }
    held = list(_about_spec(parts))
    if family.root is not None:
        fields |= {
            "jailImage": family.root.image,
            "jailFilledAt": family.root.since,
            "jailImageWanted": family.root.wanted,
        }
        held += [mode_condition(cluster), family.root.as_condition()]
    if parts.problems:
        wrong = "; ".join(parts.problems)
        phase = NOT_AVAILABLE if family.controller else PENDING
        return fields | {"phase": phase}, [*held, *conditions.summary(wrong=wrong, settled="")]
    if resting(cluster):
        return fields | {"phase": NOT_AVAILABLE}, [*held, *_at_rest(cluster, family)]
    views = _views(cluster, family)
    held += [view.as_condition(type_) for type_, view in views.items()]
    unmade = View("every part", ready=family.unmade == Trouble(), **family.unmade._asdict())
    shown = [unmade, *views.values(), *([_root(family.root)] if family.root else [])]
    summary = _summary(shown, settled=f"{ready} of {parts.workers} workers are ready")
    available = conditions.holds(summary, conditions.READY)
    if family.exporter is not None:
        held.append(family.exporter.as_condition(EXPORTER_AVAILABLE))
        summary = _with_exporter(summary, family.exporter)
    return fields | {"phase": AVAILABLE if available else NOT_AVAILABLE}, [*held, *summary]


def _with_exporter(
    summary: tuple[Condition, Condition, Condition], exporter: View
) -> tuple[Condition, Condition, Condition]:
    """Say what is wrong with the exporter. A cluster works without it, so it is as ready as it was."""
    ready, progressing, degraded = summary
    if exporter.wrong:
        degraded = yes(
            degraded.type, "NeedsAttention", "; ".join(it for it in (degraded.message, exporter.wrong) if it)
        )
    return ready, progressing, degraded


def leaving_status(family: ClusterView, *, prefix: str) -> tuple[dict[str, Any], list[Condition]]:
    """Make the status of a cluster that is being deleted: it says what it waits for."""
    ready = sum(it.status.ready_replicas for it in family.nodesets)
    left = [f"{it.status.replicas} workers of NodeSet {it.metadata.name}" for it in family.nodesets]
    text = (
        f"before the cluster is deleted, these are drained: {', '.join(left)}"
        if left
        else "the cluster is being deleted"
    )
    fields: dict[str, Any] = {"phase": NOT_AVAILABLE, "namePrefix": prefix, "readyWorkers": ready}
    return fields, [
        no(conditions.READY, "Deleting", text),
        yes(conditions.PROGRESSING, "Deleting", text),
        no(conditions.DEGRADED, "AsExpected"),
    ]


def nodeset_status(
    nodeset: NebiusNodeSet,
    part: NodeSet | None,
    *,
    problems: Iterable[str] = (),
    ignored: Iterable[str] = (),
    waits: str = "",
) -> tuple[dict[str, Any], list[Condition]]:
    """Make the status of a NodeSet of slurm.nebius.ai. `waits` says why there cannot be a part yet."""
    told = part.status if part else None
    fields: dict[str, Any] = {
        "replicas": told.ready_replicas if told else 0,
        "labelSelector": told.selector if told else "",
    }
    held = list(_about_spec(Parts((), (), problems=tuple(problems), ignored=tuple(ignored))))
    view = look_at("the NodeSet", part)
    if wrong := "; ".join(problems):
        summary = conditions.summary(wrong=wrong, settled="")
    elif waits:
        summary = conditions.summary(missing=waits, settled="")
    else:
        summary = _summary([view], settled=f"{fields['replicas']} of {nodeset.spec.replicas} workers are ready")
    if conditions.holds(summary, conditions.READY):
        phase, pods = "Ready", yes("PodsReady", "NodeSetReady")
    else:
        phase = "Degraded" if view.wrong or wrong else "Provisioning" if part else PENDING
        pods = no("PodsReady", "NodeSetNotReady", summary[0].message)
    return fields | {"phase": phase}, [*held, pods, *summary]


def _about_spec(parts: Parts) -> Iterator[Condition]:
    """Conditions about the specification itself."""
    if parts.problems:
        yield no(ACCEPTED, "CannotBeMade", "; ".join(parts.problems))
    else:
        yield yes(ACCEPTED, "AsExpected")
    if parts.ignored:
        yield yes(WITHOUT_EFFECT, "NotSupported", f"these fields have no effect: {'; '.join(parts.ignored)}")
    if parts.unresolved:
        yield no(REFS_RESOLVED, "IgnoredNodeSetRefs", f"there is no NodeSet {', '.join(parts.unresolved)}")
    else:
        yield yes(REFS_RESOLVED, "AllNodeSetRefsResolved")


def at_rest(cluster: SlurmCluster, family: ClusterView) -> bool:
    """Whether a cluster that is to be scaled down is."""
    left = sum(it.status.replicas for it in family.nodesets)
    login = family.login is not None and (
        family.login.status.replicas > 0
        or family.login.status.observed_generation < family.login.metadata.generation
    )
    return resting(cluster) and not left and not login and family.controller is None


def _root(view: RootView) -> View:
    return View(
        "the shared root", ready=not view.wrong and not view.missing, wrong=view.wrong, missing=view.missing
    )


def _at_rest(cluster: SlurmCluster, family: ClusterView) -> list[Condition]:
    mode = cluster.spec.maintenance
    left = sum(it.status.replicas for it in family.nodesets)
    refreshing = family.root is not None and family.root.reason in {"Refreshing", "Filling"}
    working = not at_rest(cluster, family) or refreshing
    doing = f"{left} workers are being drained" if left else "everything is scaled down"
    text = f"maintenance is {mode}: {doing}"
    if mode == OVERWRITE and family.root is not None and not left:
        text = f"{text}; {family.root.text}"
    wrong = "; ".join(it for it in (family.unmade.wrong, family.root.wrong if family.root else "") if it)
    types = ["CommonAvailable", "ControllersAvailable", "LoginAvailable", "WorkersAvailable"]
    if cluster.spec.slurm_nodes.accounting.enabled:
        types.append("AccountingAvailable")
    if family.root is not None:
        types.append(WRITER_AVAILABLE)
    if cluster.spec.slurm_nodes.exporter.enabled:
        types.append(EXPORTER_AVAILABLE)
    return [
        *(no(type_, "Maintenance", text) for type_ in types),
        no(conditions.READY, "Maintenance", text),
        yes(conditions.PROGRESSING, "ScalingDown", text)
        if working
        else no(conditions.PROGRESSING, "Settled", text),
        yes(conditions.DEGRADED, "NeedsAttention", wrong) if wrong else no(conditions.DEGRADED, "AsExpected"),
    ]


def _views(cluster: SlurmCluster, family: ClusterView) -> dict[str, View]:
    def look(name: str, part: Part | None, kind: str) -> View:
        return look_at(name, part, stale=kind in family.stale)

    views = {
        "ControllersAvailable": look("slurmctld", family.controller, "Controller"),
        "CommonAvailable": look("slurmrestd", family.restapi, "RestApi"),
        "LoginAvailable": look("login", family.login, "LoginSet"),
        "WorkersAvailable": _workers(family),
    }
    if cluster.spec.slurm_nodes.accounting.enabled:
        views["AccountingAvailable"] = look("slurmdbd", family.accounting, "Accounting")
    if family.writer is not None:
        views[WRITER_AVAILABLE] = family.writer
    return views


def _workers(family: ClusterView) -> View:
    stale = "NodeSet" in family.stale
    views = [look_at(f"NodeSet {it.metadata.name}", it, stale=stale) for it in family.nodesets]
    wrong = "; ".join(view.wrong for view in views if view.wrong)
    missing = "; ".join(view.missing for view in views if view.missing)
    return View("every worker", ready=not wrong and not missing, wrong=wrong, missing=missing)


def _summary(views: Iterable[View], *, settled: str) -> tuple[Condition, Condition, Condition]:
    seen = list(views)
    return conditions.summary(
        wrong="; ".join(view.wrong for view in seen if view.wrong),
        missing="; ".join(view.missing for view in seen if view.missing),
        settled=settled,
    )

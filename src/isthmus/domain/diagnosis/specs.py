"""Whether custom resources can be applied, and are: by their own conditions.

The last checks let the doctor agree with the status: what is Degraded, or not ready, is told in any case.
"""

import re
from collections.abc import Iterator
from typing import Final

from isthmus.domain.diagnosis.facts import ClusterFacts, Facts, PartFact
from isthmus.domain.diagnosis.finding import Finding
from isthmus.domain.diagnosis.known import Known, about, lacks_slurmctld
from isthmus.domain.kube.conditions import DEGRADED, READY
from isthmus.domain.kube.podtrouble import UNCREATED
from isthmus.domain.languages.prose import some
from isthmus.domain.operator.clusterparts.status import ACCEPTED, WITHOUT_EFFECT
from isthmus.domain.operator.manifests import sssd
from isthmus.model.meta import Condition, condition

_NEW: Final = 60.0
"""Seconds in which parts of a cluster may still be on their way."""
_DAEMONS: Final = frozenset({"Controller", "Accounting", "RestApi"})

_REMEDIES: Final = (
    (
        "already allocated",
        "choose another port, 0 for any: slurmNodes.login.sshdServiceNodePort (service.nodePort of a LoginSet)",
    ),
    ("there is no Secret", "create it with the key that is named; it is checked again automatically"),
    (
        "which passwordKeyRef names",
        "it is the password of the database: see storageConfig, or externalDB of a cluster",
    ),
    ("exceeded quota", "raise the quota, or ask for less: kubectl describe -n {namespace} resourcequota"),
    ("failed quota", "the quota requires pods to request resources: set them (resources), or change the quota"),
    (
        "violates PodSecurity",
        (
            "allow such pods in the namespace:"
            " kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged --overwrite"
        ),
    ),
    ("", "kubectl describe -n {namespace} {kind} {name}"),
)

_REFUSER: Final = re.compile(
    r'(exceeded|failed) quota: [^,:]+|admission webhook "[^"]+"|violates PodSecurity "[^"]+"'
)
"""What refuses pods; what follows differs from pod to pod."""


def check_specification(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Check what custom resources say of their specifications."""
    del known
    for part in cluster.parts:
        refused = condition(part.conditions, ACCEPTED)
        if refused and refused.status == "False":
            yield Finding(
                area="parts",
                what=f"{part.kind} {part.name} cannot be applied as it is written",
                where=where(part, cluster.key.namespace),
                why=refused.message,
                remedy=(f"kubectl edit -n {cluster.key.namespace} {part.kind.lower()} {part.name}",),
                subjects=(about(part),),
            )
        yield from _without_effect(cluster, part)
    kinds = {part.kind for part in cluster.parts}
    away = facts.operators is not None and not any(it.alive for it in facts.operators)
    if "Controller" in kinds and "RestApi" not in kinds and not away and not _is_new(cluster):
        yield Finding(
            area="parts",
            what="there is no RestApi: the operator cannot reach Slurm, so it does not drain or scale in",
            where=f"{cluster.kind} {cluster.key}",
            why="no RestApi of this cluster exists",
            remedy=(
                f"kubectl get -n {cluster.key.namespace} controllers,nodesets,loginsets,accountings,restapis",
                "the operator creates one for a SlurmCluster; otherwise apply one (examples/operator)",
            ),
            subjects=("RestApi",),
        )


def _without_effect(cluster: ClusterFacts, part: PartFact) -> Iterator[Finding]:
    ignored = condition(part.conditions, WITHOUT_EFFECT)
    if ignored and ignored.status == "True":
        yield Finding(
            area="parts",
            what=f"fields of {part.kind} {part.name} have no effect",
            where=where(part, cluster.key.namespace),
            why=ignored.message,
            remedy=("remove them, or accept that they are ignored",),
            grave=False,
        )
    directory = condition(part.conditions, sssd.AVAILABLE)
    if directory and directory.status == "False":
        yield Finding(
            area="parts",
            what=f"LoginSet {part.name} runs without SSSD: users of the directory cannot log in",
            where=where(part, cluster.key.namespace),
            why=directory.message,
            remedy=("use an image that has sssd, or remove sssdConfRef (docs/images.md)",),
            grave=False,
        )


def check_creation(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find parts whose pods Kubernetes refuses to create: those that one cause refuses together."""
    del facts
    groups: dict[str, list[tuple[PartFact, str]]] = {}
    for part in _unexplained(cluster, known):
        _, refused, why = wrong_with(part).partition(f"{UNCREATED}: ")
        if refused and part.kind != "SlurmCluster":
            groups.setdefault(found[0] if (found := _REFUSER.search(why)) else why, []).append((part, why))
    for refused_parts in groups.values():
        parts = [part for part, _ in refused_parts]
        part, why = refused_parts[0]
        yield Finding(
            area="parts",
            what=f"Kubernetes creates no pods of {some(map(about, parts))}",
            where=where(part, cluster.key.namespace) if len(parts) == 1 else f"{cluster.kind} {cluster.key}",
            why=why,
            remedy=_remedies(part, cluster.key.namespace, why),
            subjects=tuple(map(about, parts)),
        )


def check_daemons(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Which daemons are Degraded, on which all others depend."""
    del facts
    yield from (degraded(it, cluster.key.namespace) for it in _unexplained(cluster, known) if it.kind in _DAEMONS)


def check_degraded(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Which other parts are Degraded; of the cluster as a whole, what none of its parts says."""
    del facts
    told = False
    for part in _unexplained(cluster, known):
        if part.kind != "SlurmCluster":
            told = True
            yield degraded(part, cluster.key.namespace)
    for part in cluster.parts:
        if part.kind != "SlurmCluster" or not (wrong := wrong_with(part)) or known.explains(part):
            continue
        rest = _of_its_own(part, wrong)
        if rest or not (told or known.anything):
            yield degraded(part, cluster.key.namespace, rest or wrong)


def check_settled(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """What is merely on its way, where nothing is known to be in its way."""
    del facts
    if known.anything:
        return
    for part in cluster.parts:
        if part.observed_generation and part.observed_generation < part.generation:
            yield Finding(
                area="parts",
                what=f"the operator has not applied the last change of {part.kind} {part.name} yet",
                where=where(part, cluster.key.namespace),
                why=f"the spec has generation {part.generation}, and {part.observed_generation} is applied",
                remedy=(
                    "this takes seconds; if it persists, see the operator's log",
                    "kubectl logs -n isthmus-system deployment/isthmus-operator --tail=50",
                ),
                grave=False,
            )
            return
    for part in cluster.parts:
        ready = condition(part.conditions, READY)
        if part.kind == cluster.kind and ready and ready.status == "False":
            yield Finding(
                area="parts",
                what=f"{part.kind} {part.name} is not ready",
                where=where(part, cluster.key.namespace),
                why=ready.message or ready.reason,
                remedy=(f"isthmus cluster status {cluster.key.name} -n {cluster.key.namespace}",),
                grave=False,
            )


def _unexplained(cluster: ClusterFacts, known: Known) -> Iterator[PartFact]:
    seen: set[str] = set()
    for part in cluster.parts:
        if part.kind == "RestApi" and UNCREATED not in wrong_with(part) and lacks_slurmctld(cluster):
            continue
        if wrong_with(part) and about(part) not in seen and not known.explains(part):
            seen.add(about(part))
            yield part


def wrong_with(part: PartFact) -> str:
    """Why it is Degraded, in its own words; empty if it is not."""
    held = condition(part.conditions, DEGRADED)
    return (held.message or held.reason) if held and held.status == "True" else ""


def _of_its_own(part: PartFact, wrong: str) -> str:
    """Take what parts say of themselves out of what the cluster says; what is left is its own."""
    others: list[Condition] = [it for it in part.conditions if it.type not in {DEGRADED, READY, "Progressing"}]
    for text in sorted((it.message for it in others if it.message), key=len, reverse=True):
        wrong = wrong.replace(text, "")
    return wrong.strip("; ")


def degraded(part: PartFact, namespace: str, why: str = "") -> Finding:
    why = why or wrong_with(part)
    return Finding(
        area="accounting" if part.kind == "Accounting" else "parts",
        what=f"{part.kind} {part.name} is degraded",
        where=where(part, namespace),
        why=why,
        remedy=_remedies(part, namespace, why),
        subjects=(about(part),),
    )


def _remedies(part: PartFact, namespace: str, why: str) -> tuple[str, ...]:
    words = {"namespace": namespace, "kind": part.kind.lower(), "name": part.name}
    return tuple(text.format(**words) for mark, text in _REMEDIES if mark in why)


def _is_new(cluster: ClusterFacts) -> bool:
    ages = [it.age for it in cluster.parts if it.kind == cluster.kind and it.age is not None]
    return bool(ages) and min(ages) < _NEW


def where(part: PartFact, namespace: str) -> str:
    return f"{part.kind} {namespace}/{part.name}"

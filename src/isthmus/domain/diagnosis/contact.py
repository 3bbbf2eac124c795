"""Whether Slurm answers: slurmctld, slurmdbd with its database, and slurmrestd, by which the operator asks."""

import re
from collections.abc import Iterator
from typing import Final

from isthmus.domain.diagnosis.facts import ClusterFacts, Facts
from isthmus.domain.diagnosis.finding import Finding
from isthmus.domain.diagnosis.known import Known, stands_in
from isthmus.domain.kube.conditions import READY, holds
from isthmus.domain.operator.manifests.accounting import WAITS
from isthmus.model.meta import condition

_AUTH_WORDS: Final = (
    "authentication",
    "credential",
    "munge",
    "unauthorized",
    "sack",
    "access/permission denied",
)
_CLOCK_WORDS: Final = ("expired", "rewound", "replayed", "clock", "in the future")
_NAME_WORDS: Final = ("resolve", "name or service not known", "unable to contact", "temporary failure")
_STARTING: Final = 60.0
"""Seconds in which a daemon starts."""
_TROUBLE: Final = re.compile(r"(?:fatal|error): .*")


def check_accounting(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Check whether slurmdbd answers; where slurmctld does not either, only slurmdbd's own log counts."""
    del facts
    if cluster.database is None or cluster.database.ok or known.explains_kind("Accounting"):
        return
    part = next((it for it in cluster.parts if it.kind == "Accounting"), None)
    works = part is not None and holds(part.conditions, READY)
    if known.has("names", "clock", "auth") or (works and not (cluster.ping and cluster.ping.ok)):
        return
    if _is_starting(cluster, "accounting"):
        return
    namespace = cluster.key.namespace
    what, why = _of_accounting(cluster)
    yield Finding(
        area="accounting",
        what=what,
        where=f"Accounting of {cluster.key}",
        why=why,
        remedy=(
            f"kubectl get pods -n {namespace} -l 'app.kubernetes.io/component in (accounting, database)'",
            f"kubectl logs -n {namespace} -l app.kubernetes.io/component=accounting --tail=20",
        ),
        subjects=(f"Accounting {part.name if part else cluster.controller}",),
    )


def _of_accounting(cluster: ClusterFacts) -> tuple[str, str]:
    """What is wrong with accounting, and why, by what slurmdbd wrote last."""
    what = "accounting does not answer; jobs run, and their records wait in slurmctld"
    lines = [line.strip() for line in cluster.slurmdbd_log.splitlines() if line.strip()]
    if lines and lines[-1].startswith(WAITS):
        address = lines[-1].removeprefix(WAITS).strip()
        return f"the database of accounting does not answer at {address}", "slurmdbd waits for it before it starts"
    database = [pod for pod in cluster.pods if pod.component == "database"]
    if database and not any(pod.ready for pod in database):
        return what, f"the database is not available: pod {database[0].name} is not ready"
    for line in reversed(lines):
        if found := _TROUBLE.search(line):
            return what, f"slurmdbd: {found[0]}"
    said = cluster.database.text.strip() if cluster.database else ""
    return what, said.splitlines()[-1] if said else "slurmdbd does not answer"


def check_ping(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Check whether slurmctld answers, unless it is known why it does not."""
    del facts
    if cluster.ping is None or cluster.ping.ok or known.slurmctld or known.has("names", "clock", "auth"):
        return
    if _is_starting(cluster, "controller"):
        return
    said = cluster.ping.text
    words = said.lower()
    namespace = cluster.key.namespace
    controllers = [pod for pod in cluster.pods if pod.component == "controller" and not stands_in(pod)]
    name = controllers[0].name if controllers else "controller-0"
    logs = f"kubectl logs -n {namespace} {name} -c slurmctld --tail=50"
    if any(word in words for word in _CLOCK_WORDS):
        area, why = "clock", "a credential came too early or too late: clocks differ, or a pod was frozen"
    elif any(word in words for word in _AUTH_WORDS):
        area, why = "auth", "slurmctld does not accept the credential: the keys differ, or munge does not run"
    elif any(word in words for word in _NAME_WORDS):
        area, why = "names", "slurmctld was not found or is not reachable"
    else:
        area, why = "starting", "slurmctld does not answer"
    if controllers and not any(pod.ready for pod in controllers):
        why = f"{name} is not ready; {why}"
    yield Finding(
        area=area,  # type: ignore[arg-type] # one of the four above
        what="slurmctld does not answer the cluster's own tools",
        where=f"{cluster.kind} {cluster.key}",
        why=f"{why} ({said.strip().splitlines()[-1] if said.strip() else 'it printed nothing'})",
        remedy=(logs,),
        subjects=(f"Controller {cluster.controller}",),
    )


def check_rest(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Check whether the operator can ask Slurm."""
    del facts
    if known.slurmctld or known.explains_kind("RestApi") or known.has("starting", "names", "clock", "auth"):
        return
    asked = [it for it in cluster.parts if it.kind in {"Controller", "RestApi"}]
    if any((ready := condition(it.conditions, READY)) and ready.status == "False" for it in asked):
        return  # they say themselves what they wait for
    for part in asked:
        told = condition(part.conditions, "SlurmReachable")
        if told is None or told.status != "False":
            continue
        refused = "token" in told.message.lower() or "401" in told.message or "denied" in told.message.lower()
        yield Finding(
            area="rest",
            what="slurmrestd rejects the operator's token" if refused else "the operator cannot reach Slurm",
            where=f"{part.kind} {cluster.key.namespace}/{part.name}",
            why=told.message or told.reason,
            remedy=(
                f"kubectl get pods -n {cluster.key.namespace} -l app.kubernetes.io/component=restapi",
                "the JWT key in the Secret and the one that slurmctld has must be the same:"
                f" kubectl describe -n {cluster.key.namespace} controller {cluster.controller}"
                if refused
                else f"kubectl logs -n {cluster.key.namespace} -l app.kubernetes.io/component=restapi --tail=20",
            ),
        )
        return


def _is_starting(cluster: ClusterFacts, component: str) -> bool:
    """Whether no pod of a component is ready, and one has just started: it need not answer yet."""
    pods = [it for it in cluster.pods if it.component == component and not stands_in(it)]
    new = any(it.age is not None and it.age < _STARTING for it in pods)
    return new and not any(it.ready for it in pods)

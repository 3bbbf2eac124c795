"""Whether nodes are watched, and which of them wait for a human."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from isthmus.domain.diagnosis.facts import ClusterFacts, Facts
from isthmus.domain.diagnosis.finding import Finding
from isthmus.domain.diagnosis.known import Known
from isthmus.domain.languages.prose import some
from isthmus.model.health import HealthPolicy, NodeHealth
from isthmus.model.meta import Key

_LATEST = datetime.max.replace(tzinfo=UTC)
_CHART = '"$(isthmus chart path soperatorchecks)"'
_INSTALL = f"helm upgrade --install soperatorchecks {_CHART} --namespace isthmus-system"


def held_nodes(facts: Facts, cluster: Key) -> Mapping[str, str]:
    """The reasons with which node health drained nodes of a cluster, by their names."""
    return {it.spec.node: it.status.reason for it in _of(facts, cluster) if it.status.reason}


def check_out_of_service(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find nodes that only a human can return."""
    del known
    out = [it for it in _of(facts, cluster.key) if it.status.phase == "OutOfService"]
    if not out:
        return
    first = out[0]
    count = f"{len(out)} nodes are" if len(out) > 1 else "1 node is"
    yield Finding(
        area="health",
        what=f"{count} out of service: {some(sorted(it.spec.node for it in out))}",
        where=f"Slurm of {cluster.key}",
        why=first.status.message or _checks(first),
        remedy=(
            f"see what was found and tried: isthmus health {first.spec.node} -n {cluster.key.namespace}",
            f"when it is repaired: isthmus health release {first.spec.node} -n {cluster.key.namespace}",
        ),
        grave=False,
    )


def check_checks(facts: Facts) -> Iterator[Finding]:
    """Find checks that nobody runs, and those that say nothing."""
    if not facts.checks:
        return
    if facts.checkers is not None and not any(it.alive for it in facts.checkers):
        last = min((it.renewed for it in facts.checkers if it.renewed is not None), default=None)
        yield Finding(
            area="health",
            what=f"soperatorchecks does not run: {_number(facts.checks)} not run, and bad nodes stay in use",
            where="Deployment soperatorchecks",
            why=f"the last one has not renewed its Lease for {last:.0f} s"
            if last is not None
            else "it has no Lease",
            remedy=(
                "look for it: kubectl get pods -A -l app.kubernetes.io/name=soperatorchecks",
                f"or install it: {_INSTALL}",
            ),
        )
        return  # that checks have no results follows from it
    for check in facts.checks:
        if check.error:
            yield Finding(
                area="health",
                what=f"the check {check.key.name} itself has an error, so its results say nothing about nodes",
                where=f"ActiveCheck {check.key}",
                why=check.error,
                remedy=(
                    f"kubectl describe activecheck {check.key.name} -n {check.key.namespace}",
                    f"after a fix: isthmus health run {check.key.name} --wait -n {check.key.namespace}",
                ),
                grave=False,
            )


def check_policies(facts: Facts) -> Iterator[Finding]:
    """Find policies that contradict each other, and checks that condemned too many nodes at once."""
    claims: dict[tuple[str, str], list[HealthPolicy]] = {}
    for policy in facts.policies:
        claims.setdefault((policy.metadata.namespace, policy.spec.slurm_cluster_ref_name), []).append(policy)
    for (namespace, cluster), rivals in sorted(claims.items()):
        if len(rivals) > 1:
            names = [it.metadata.name for it in sorted(rivals, key=_age)]
            target = f"the cluster {cluster}" if cluster else "every cluster"
            yield Finding(
                area="health",
                what=f"{len(names)} policies claim {target} of {namespace}: only {names[0]} has effect",
                where=f"HealthPolicies {some(names)}",
                why="one policy governs a cluster; of several, the oldest",
                remedy=(f"delete the others, or name their clusters: kubectl edit healthpolicies -n {namespace}",),
                grave=False,
            )
    for policy in facts.policies:
        for storm in policy.status.storms:
            yield Finding(
                area="health",
                what=f"a storm: {storm}",
                where=f"HealthPolicy {policy.metadata.key}",
                why="a check that fails on many nodes at once is itself suspect, so its findings are ignored",
                remedy=(
                    f"see what it found: isthmus health -n {policy.metadata.namespace}",
                    "fix the check or what it depends on; repair resumes limits.storm.cooldown after it ends",
                ),
            )


def _age(policy: HealthPolicy) -> tuple[datetime, str]:
    return policy.metadata.creation_timestamp or _LATEST, policy.metadata.name


def _of(facts: Facts, cluster: Key) -> list[NodeHealth]:
    return [it for it in facts.healths if (it.metadata.namespace, it.spec.cluster) == cluster]


def _checks(health: NodeHealth) -> str:
    return some(it.check or it.source for it in health.status.findings)


def _number(checks: tuple[object, ...]) -> str:
    return f"{len(checks)} checks are" if len(checks) > 1 else "1 check is"

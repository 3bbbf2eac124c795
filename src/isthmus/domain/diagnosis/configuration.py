"""Whether Slurm runs with the configuration that it should have, and JailedConfigs are written."""

from collections.abc import Iterator
from typing import Final

from isthmus.domain.diagnosis.facts import ClusterFacts, Facts, PartFact
from isthmus.domain.diagnosis.finding import Finding, Fix
from isthmus.domain.diagnosis.known import Known, about
from isthmus.domain.diagnosis.sharedroot import waits_for_root
from isthmus.domain.languages.prose import some
from isthmus.domain.operator.jailedconfigs import updates
from isthmus.model.meta import Condition, condition

_APPLIED: Final = "ConfigApplied"
_DELIVERING: Final = "Delivering"
_REFUSED: Final = "Slurm rejects its new configuration and keeps the old one"
_NOT_APPLIED: Final = {
    _DELIVERING: "some daemons have not loaded the new configuration",
    "Invalid": "cannot render the configuration of {part}",
}
"""What is wrong, by the reason of the condition ConfigApplied."""
_ON_ITS_WAY: Final = 120.0
"""Seconds in which a configuration reaches every daemon: kubelet takes up to a minute unless its pod is touched."""


def check_configuration(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Check whether Slurm takes its configuration, and every daemon has it. It is on its way for a while."""
    del facts, known
    if is_on_its_way(cluster):
        return
    namespace = cluster.key.namespace
    for part in cluster.parts:
        applied = condition(part.conditions, _APPLIED)
        if applied and applied.status == "False":
            yield Finding(
                area="configuration",
                what=_NOT_APPLIED.get(applied.reason, _REFUSED).format(part=f"{part.kind} {part.name}"),
                where=f"{part.kind} {namespace}/{part.name}",
                why=applied.message or applied.reason,
                remedy=(
                    f"correct it: kubectl edit -n {namespace} {cluster.kind.lower()} {cluster.key.name}",
                    (
                        f"see the log of slurmctld: kubectl logs -n {namespace}"
                        f" -l app.kubernetes.io/component=controller -c slurmctld --tail=20"
                    ),
                ),
                subjects=(about(part),),
            )
            return
    if cluster.config_age is not None and cluster.config_age < _ON_ITS_WAY:
        return
    behind = sorted(it.pod for it in cluster.insides if cluster.config and it.config not in {"", cluster.config})
    if behind:
        yield Finding(
            area="configuration",
            what=f"{some(behind)} does not have the cluster's current slurm.conf",
            where=f"ConfigMap {namespace}/{cluster.controller}-config",
            why="it was changed minutes ago: reconfiguring failed, or kubelet does not update the pod's files",
            remedy=(
                f"isthmus cluster exec {cluster.key.name} -n {namespace} -- scontrol reconfigure",
                f"kubectl logs -n {namespace} {behind[0]} --all-containers --tail=20",
            ),
            fix=Fix("reconfigure", f"let Slurm of {cluster.key} read its configuration again", str(cluster.key)),
        )


def is_on_its_way(cluster: ClusterFacts) -> bool:
    """Whether files and keys are merely being delivered, and not for too long."""
    applied = (condition(part.conditions, _APPLIED) for part in cluster.parts)
    return any(it is not None and _is_new(it, cluster) for it in applied)


def _is_new(applied: Condition, cluster: ClusterFacts) -> bool:
    since = applied.last_transition_time
    if applied.status != "False" or applied.reason != _DELIVERING:
        return False
    return cluster.now is None or since is None or cluster.now - since.timestamp() < _ON_ITS_WAY


def check_jailed_configs(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find files that do not reach the shared root, or that Slurm does not read."""
    del facts
    if waits_for_root(cluster) or known.explains_kind("SlurmCluster"):
        return
    for part in cluster.parts:
        if part.kind == "JailedConfig" and (found := _of_jailed_config(part)):
            what, why = found
            namespace = cluster.key.namespace
            yield Finding(
                area="configuration",
                what=what,
                where=f"JailedConfig {namespace}/{part.name}",
                why=why,
                remedy=(
                    f"kubectl describe -n {namespace} jailedconfig {part.name}",
                    f"their writer: kubectl logs -n {namespace} -l app.kubernetes.io/component=sconfigcontroller",
                ),
                subjects=(about(part),),
            )


def _of_jailed_config(part: PartFact) -> tuple[str, str] | None:
    """What is wrong with a JailedConfig, and why; None if nothing is, or it is on its way."""
    failure = updates.failure(part.conditions)
    if failure and failure.type == updates.COMPLETED:
        return f"Slurm does not read the files of JailedConfig {part.name}", failure.message
    if failure:
        return f"the files of JailedConfig {part.name} are not written", failure.message
    if condition(part.conditions, updates.WRITTEN) is None and part.age is not None and part.age > _ON_ITS_WAY:
        return f"the files of JailedConfig {part.name} are not written", "it has not been processed yet"
    return None

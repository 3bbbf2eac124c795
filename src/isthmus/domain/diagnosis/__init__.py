"""What is wrong with a Slurm cluster on Kubernetes, why, and what to do about it.

    findings = diagnose(facts)

One function per trouble, over facts that were gathered before; each finding says what is wrong, where, why,
and which command to run next. What follows from something that was found is not found again: a worker that cannot
be placed is not also reported as missing in Slurm.
"""

from typing import Final

from isthmus.domain.diagnosis.bridge import check_bridging
from isthmus.domain.diagnosis.configuration import check_configuration, check_jailed_configs
from isthmus.domain.diagnosis.contact import check_accounting, check_ping, check_rest
from isthmus.domain.diagnosis.daemons import check_clocks, check_disks, check_keys, check_names
from isthmus.domain.diagnosis.facts import ClusterFacts, Facts
from isthmus.domain.diagnosis.finding import Finding, Fix
from isthmus.domain.diagnosis.health import check_checks, check_out_of_service, check_policies
from isthmus.domain.diagnosis.host import check_host
from isthmus.domain.diagnosis.installation import check_serving
from isthmus.domain.diagnosis.known import Check, Known
from isthmus.domain.diagnosis.pods import check_claims, check_kubernetes_nodes, check_pods
from isthmus.domain.diagnosis.sharedroot import check_root
from isthmus.domain.diagnosis.slurmnodes import check_registration, check_states
from isthmus.domain.diagnosis.specs import (
    check_creation,
    check_daemons,
    check_degraded,
    check_settled,
    check_specification,
)
from isthmus.domain.diagnosis.strays import check_strays

__all__ = ["ClusterFacts", "Facts", "Finding", "Fix", "diagnose"]

_CHECKS: Final[tuple[Check, ...]] = (
    check_specification,
    check_kubernetes_nodes,
    check_claims,
    check_root,
    check_creation,
    check_pods,
    check_configuration,
    check_jailed_configs,
    check_daemons,
    check_names,
    check_clocks,
    check_keys,
    check_disks,
    check_accounting,
    check_ping,
    check_rest,
    check_registration,
    check_states,
    check_out_of_service,
    check_degraded,
    check_settled,
)
"""Causes before what follows from them: each check knows what the ones before it have found."""


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Find what is wrong, in the order in which it should be fixed."""
    found = [*check_host(facts), *check_serving(facts)]
    for cluster in facts.clusters:
        mine: list[Finding] = []
        for check in _CHECKS:
            mine += check(cluster, facts, Known(cluster, mine))
        found += mine
    found += [*check_strays(facts, found)]
    found += check_bridging(facts)
    found += check_checks(facts)
    found += check_policies(facts)
    return tuple(found)

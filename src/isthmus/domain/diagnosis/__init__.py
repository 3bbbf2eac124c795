"""What is wrong with a Slurm cluster on Kubernetes, why, and what to do about it.

    findings = diagnose(facts)

One function per trouble, over facts that somebody else has gathered; each finding says what is wrong, where, why,
and with which command to go on. What follows from something that was found is not found again: a worker that cannot
be placed is not also reported as missing in Slurm.
"""

from isthmus.domain.diagnosis.bridging import check_bridging
from isthmus.domain.diagnosis.facts import ClusterFacts, Facts
from isthmus.domain.diagnosis.finding import Finding
from isthmus.domain.diagnosis.rooting import check_root
from isthmus.domain.diagnosis.running import check_running
from isthmus.domain.diagnosis.serving import check_serving
from isthmus.domain.diagnosis.starting import check_starting

__all__ = ["ClusterFacts", "Facts", "Finding", "diagnose"]


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Find what is wrong, in the order in which it should be mended."""
    found = list(check_serving(facts))
    for cluster in facts.clusters:
        found += check_root(cluster)
        found += check_starting(cluster, facts)
        found += check_running(cluster)
    found += check_bridging(facts)
    return tuple(found)

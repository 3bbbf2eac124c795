"""Whether Slurm gives the bridge nodes that Kubernetes can use."""

from collections.abc import Iterator

from isthmus.domain.diagnosis.facts import Facts
from isthmus.domain.diagnosis.finding import Finding

_NAMED = 3


def check_bridging(facts: Facts) -> Iterator[Finding]:
    """Check that no allocation went back."""
    if not facts.returned:
        return
    yield Finding(
        area="bridge",
        what=f"{len(facts.returned)} allocations were returned to Slurm in the last hour",
        where=", ".join(f"pod {it.pod}" for it in facts.returned[:_NAMED]),
        why="; ".join(it.why for it in facts.returned[:_NAMED]),
        remedy=(
            "see what occupies the named node: kubectl describe node NODE",
            "keep pods that Slurm does not place off its nodes: config.taint=NoSchedule of the chart slurm-bridge",
        ),
        grave=False,
    )

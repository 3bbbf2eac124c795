"""Custom resources that are of no cluster: a slip in a name, or kinds that belong to none, such as Token.

Nothing else looks at them, so what they say of themselves is told here.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from isthmus.domain.diagnosis.facts import Facts, PartFact
from isthmus.domain.diagnosis.finding import Finding
from isthmus.domain.diagnosis.known import about
from isthmus.domain.diagnosis.specs import degraded, where, wrong_with
from isthmus.domain.kube.conditions import READY
from isthmus.domain.operator.jailedconfigs.updates import COMPLETED
from isthmus.model.meta import condition

_NEW: Final = 60.0
"""Seconds in which what it waits for may still come."""


def check_strays(facts: Facts, found: Iterable[Finding]) -> Iterator[Finding]:
    """Tell what is Degraded, and what waits in vain; not what follows from something that was found."""
    known = [it.why for it in found if it.grave]
    for stray in facts.strays:
        part, namespace = stray.part, stray.namespace
        if wrong := wrong_with(part):
            if not any(wrong in why for why in known):
                yield degraded(part, namespace)
        elif (waits := _waits_for(part)) and part.age is not None and part.age > _NEW:
            yield Finding(
                area="parts",
                what=f"{part.kind} {part.name} waits, and belongs to no cluster",
                where=where(part, namespace),
                why=waits,
                remedy=(f"kubectl describe -n {namespace} {part.kind.lower()} {part.name}",),
                subjects=(about(part),),
            )


def _waits_for(part: PartFact) -> str:
    """What it says that it waits for. JailedConfigs have other conditions than the rest."""
    for type_ in (READY, COMPLETED):
        held = condition(part.conditions, type_)
        if held and held.status == "False":
            return held.message or held.reason
    return ""

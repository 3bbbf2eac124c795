"""Whether Kubernetes serves our kinds, and an operator reconciles them."""

from collections.abc import Iterator

from isthmus.domain.diagnosis.facts import Facts
from isthmus.domain.diagnosis.finding import Finding
from isthmus.domain.languages.prose import some

_CHART = '"$(isthmus chart path isthmus-operator)"'
_INSTALL = f"helm upgrade --install isthmus-operator {_CHART} --namespace isthmus-system"


def check_serving(facts: Facts) -> Iterator[Finding]:
    """Check what every cluster depends on."""
    yield from _access(facts)
    yield from _kinds(facts)
    yield from _operator(facts)


def _access(facts: Facts) -> Iterator[Finding]:
    for what, why in facts.troubles.items():
        yield Finding(
            area="access",
            what=f"{what} cannot be read",
            where="the Kubernetes API",
            why=why,
            remedy=("give a kubeconfig that may read them: isthmus doctor --kubeconfig FILE",),
        )


def _kinds(facts: Facts) -> Iterator[Finding]:
    missing = [it.name for it in facts.kinds if not it.served]
    if missing:
        yield Finding(
            area="kinds",
            what=f"Kubernetes does not know {some(missing, 4)}",
            where="CustomResourceDefinitions",
            why="the operator's custom resource definitions are not installed, or not all of them",
            remedy=(f"install them: {_INSTALL}",),
        )
    for kind in facts.kinds:
        if kind.served and kind.lacks:
            yield Finding(
                area="kinds",
                what=f"{kind.name} is older than this program: it lacks {some(kind.lacks, 4)}",
                where=f"CustomResourceDefinition {kind.name}",
                why="the installed chart is older; missing fields are rejected",
                remedy=(f"update it: {_INSTALL}",),
            )


def _operator(facts: Facts) -> Iterator[Finding]:
    if facts.operators is None or any(it.alive for it in facts.operators):
        return
    if not facts.operators:
        why = "it has no Lease: it was never installed here, or never started"
    else:
        last = min(facts.operators, key=lambda it: it.renewed if it.renewed is not None else float("inf"))
        since = (
            f"has not renewed its Lease for {last.renewed:.0f} s"
            if last.renewed is not None
            else "never renewed its Lease"
        )
        why = f"the last one, {last.holder or 'nobody'}, {since}"
    yield Finding(
        area="operator",
        what="the operator does not run: changes have no effect, and existing pods keep running",
        where="Deployment isthmus-operator",
        why=why,
        remedy=(
            "look for it: kubectl get pods -A -l app.kubernetes.io/name=isthmus-operator",
            f"or install it: {_INSTALL}",
        ),
    )

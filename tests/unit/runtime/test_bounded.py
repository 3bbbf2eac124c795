"""Label sets from users: so many series and no more, whatever users make up."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from isthmus.runtime import bounded
from isthmus.runtime.bounded import Bounded


def bounded_counter(*, limit: int) -> tuple[CollectorRegistry, Bounded[Counter]]:
    registry = CollectorRegistry()
    counter = Counter("seen_total", "Seen.", ["namespace", "account", "kind"], registry=registry)
    folded = Gauge("folded", "Folded.", registry=registry)
    return registry, Bounded(counter, kept=1, folded=folded, limit=limit)


def test_label_sets_beyond_the_limit_are_counted_together_and_keep_their_kind() -> None:
    registry, seen = bounded_counter(limit=2)
    for namespace in ("a", "b", "c", "d", "c"):
        seen.of(namespace, "physics", "Job").inc()
    seen.of("a", "physics", "Job").inc()
    seen.of("e", "", "Pod").inc()

    def value(*labels: str) -> float | None:
        named = dict(zip(("namespace", "account", "kind"), labels, strict=True))
        return registry.get_sample_value("seen_total", named)

    assert value("a", "physics", "Job") == 2
    assert value("b", "physics", "Job") == 1
    assert value("c", "physics", "Job") is None
    assert value("other", "other", "Job") == 3
    assert value("other", "other", "Pod") == 1
    assert registry.get_sample_value("folded") == 3, "c, d and e, each once"


def test_a_hundred_thousand_label_sets_cost_no_more_than_the_limit() -> None:
    registry, seen = bounded_counter(limit=bounded.MAX_SERIES)
    for number in range(100_000):
        seen.of(f"ns-{number}", 'a"\n', "Pod").inc()
    values = [it.value for family in registry.collect() for it in family.samples if it.name == "seen_total"]
    assert len(values) == bounded.MAX_SERIES + 1
    assert sum(values) == 100_000
    assert registry.get_sample_value("folded") == 10_000, "it does not remember more than so many"

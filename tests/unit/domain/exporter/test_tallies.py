from prometheus_client.parser import text_string_to_metric_families

from isthmus.domain.exporter import catalog
from isthmus.domain.exporter.exposition import histogram_text
from isthmus.domain.exporter.tallies import Histogram, Tally

PHYSICS, BIOLOGY = ("main", "physics", "normal"), ("main", "biology", "normal")


def test_what_is_written_follows_each_change() -> None:
    tally, histogram = Tally(catalog.JOBS_STARTED, limit=9), Histogram(catalog.JOB_WAIT, limit=9)
    assert tally.text() == histogram.text() == ""
    for labels in (PHYSICS, BIOLOGY, PHYSICS):
        tally.add(labels)
        histogram.observe(labels, 60)
        assert tally.text() == catalog.JOBS_STARTED.text(tally.rows.items())
        assert sorted(histogram.text().splitlines()) == sorted(
            histogram_text(catalog.JOB_WAIT, histogram.rows).splitlines()
        )
    tally.drop("main")
    histogram.drop("main")
    assert tally.text() == histogram.text() == ""


def test_a_value_on_a_bound_is_within_it() -> None:
    histogram = Histogram(catalog.JOB_WAIT, limit=9)
    for value in (60, 61, 10**9):
        histogram.observe(PHYSICS, value)
    (family,) = text_string_to_metric_families(histogram.text())
    counts = {sample.labels["le"]: sample.value for sample in family.samples if sample.name.endswith("_bucket")}
    assert (counts["15"], counts["60"], counts["300"], counts["604800"], counts["+Inf"]) == (0, 1, 2, 2, 3)


def test_nothing_is_no_row() -> None:
    tally = Tally(catalog.JOBS_STARTED, limit=9)
    tally.add(PHYSICS, 0)
    assert not tally.rows


def test_only_labels_that_people_invent_are_folded() -> None:
    tally = Tally(catalog.NODE_FAILS, limit=1)
    for node, reason in (("n1", "fan"), ("n1", "fans"), ("n2", "fan")):
        tally.add((node, "IDLE", "true", "false", "false", reason))
    assert [(labels[0], labels[-1]) for labels in tally.rows] == [("n1", "fan"), ("n1", "other"), ("n2", "other")]

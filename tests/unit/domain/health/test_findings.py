from datetime import timedelta

from msgspec.structs import replace

from isthmus.domain.health.findings import MAX_FINDINGS, active, dismissed, merge, passed, sanitised
from tests.unit.domain.health.scene import NOW, ago, failed, finding


def test_what_is_seen_first_is_recorded_with_the_time_of_its_source() -> None:
    (found,) = merge((), [failed(at=ago(minutes=3))], now=NOW)
    assert (found.source, found.check, found.count) == ("check", "gpu", 1)
    assert found.first_seen == found.last_seen == ago(minutes=3)
    assert (found.wants, found.proof) == ("drain", "slurmTest")


def test_a_finding_that_lasts_is_not_written_again() -> None:
    recorded = merge((), [failed()], now=ago(minutes=1))
    assert merge(recorded, [failed(evidence="other words")], now=NOW) == recorded


def test_a_later_time_counts_again_and_renews_the_evidence() -> None:
    recorded = merge((), [failed(at=ago(minutes=9))], now=NOW)
    (found,) = merge(recorded, [failed(at=ago(minutes=2), evidence="new")], now=NOW)
    assert (found.count, found.evidence) == (2, "new")
    assert (found.first_seen, found.last_seen) == (ago(minutes=9), ago(minutes=2))


def test_what_is_no_longer_seen_is_cleared_once() -> None:
    cleared = merge((finding(),), [], now=NOW)
    assert cleared[0].cleared == NOW
    assert merge(cleared, [], now=NOW + timedelta(hours=1)) == cleared


def test_silence_proves_nothing_for_a_held_node_or_while_slurm_is_away() -> None:
    assert merge((finding(),), [], now=NOW, held=True)[0].cleared is None
    assert merge((finding(proof="gone"),), [], now=NOW, held=True)[0].cleared == NOW
    assert merge((finding(proof="gone"),), [], now=NOW, listening=False)[0].cleared is None


def test_a_cleared_finding_comes_back_uncounted_if_it_was_only_not_shown() -> None:
    cleared = merge((finding(),), [], now=NOW)
    (found,) = merge(cleared, [failed(at=ago(minutes=1))], now=NOW)
    assert (found.cleared, found.count) == (None, 1)


def test_a_dismissed_finding_counts_only_when_newly_seen() -> None:
    over = (dismissed(finding(), ago(seconds=30)),)
    assert merge(over, [failed(at=ago(minutes=1))], now=NOW) == over
    assert merge(over, [failed(at=ago(seconds=31))], now=NOW) == over
    (found,) = merge(over, [failed(at=ago(seconds=5))], now=NOW)
    assert (found.cleared, found.dismissed, found.count, found.first_seen) == (None, False, 2, ago(seconds=5))


def test_a_drain_by_a_check_is_new_after_it_was_lifted_whatever_the_clocks_say() -> None:
    over = (dismissed(finding(), ago(seconds=30)),)
    (found,) = merge(over, [failed(at=ago(minutes=1), by_drain=True)], now=NOW)
    assert (found.cleared, found.count) == (None, 2)


def test_at_most_sixteen_are_kept_the_active_and_the_newest() -> None:
    recorded = tuple(finding(f"old{it}", cleared=NOW, last_seen=ago(days=it + 1)) for it in range(MAX_FINDINGS))
    found = merge(recorded, [failed("a"), failed("b")], now=NOW)
    assert len(found) == MAX_FINDINGS
    assert {"a", "b", "old0", "old13"} <= {it.check for it in found}
    assert not {"old14", "old15"} & {it.check for it in found}


def test_more_than_sixteen_that_last_change_nothing() -> None:
    seen = [failed(f"c{it}", at=ago(minutes=it % 5)) for it in range(20)]
    first = merge((), seen, now=NOW)
    assert merge(first, seen, now=NOW + timedelta(minutes=1)) == first


def test_of_two_ways_to_see_one_thing_the_later_counts() -> None:
    (found,) = merge((), [failed(at=ago(minutes=5)), failed(at=ago(minutes=2)), failed(at=ago(minutes=4))], now=NOW)
    assert (found.last_seen, found.count) == (ago(minutes=2), 1)


def test_devices_that_change_are_recorded_without_a_later_time() -> None:
    recorded = merge((), [failed(devices=("gpu-1",))], now=NOW)
    (found,) = merge(recorded, [failed(devices=("gpu-1", "gpu-0"))], now=NOW)
    assert (found.devices, found.count) == (("gpu-0", "gpu-1"), 1)


def test_evidence_becomes_one_printable_line() -> None:
    assert sanitised("a\x1b[31mb\x1b[0m\nc\x00\td") == "ab c d"
    assert len(sanitised("x " * 100_000)) <= 512
    (found,) = merge((), [failed(evidence="bad\n\ncells", devices=("g\n0",))], now=NOW)
    assert (found.evidence, found.devices) == ("bad cells", ("g 0",))


def test_a_check_that_passes_later_ends_its_finding() -> None:
    found = (finding(), finding("other"), finding("gone", proof="gone"))
    after = passed(found, {"gpu": NOW, "other": ago(hours=1), "gone": NOW}, now=NOW)
    assert [it.check for it in active(after)] == ["other", "gone"]
    assert after[0] == replace(found[0], cleared=NOW, dismissed=True)

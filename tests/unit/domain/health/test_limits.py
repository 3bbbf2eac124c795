from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from isthmus.domain.health.limits import MACHINE_CLAIM, Budget, closed_because, share_of, storms
from isthmus.domain.health.policies import compiled
from isthmus.model.health import Finding, HealthPolicySpec, Window
from tests.unit.domain.health.scene import NOW, ago, finding, held, node


def budget(limits: dict[str, Any], *nodes: Any) -> Budget:
    return Budget(compiled(msgspec.convert({"limits": limits}, HealthPolicySpec)), nodes)


@pytest.mark.parametrize(
    ("setting", "total", "most"),
    [("20%", 10, 2), ("20%", 4, 1), ("20%", 14, 2), ("0%", 10, 0), (3, 2, 3), (0, 9, 0)],
)
def test_a_share_is_rounded_down_but_is_at_least_one(setting: int | str, total: int, most: int) -> None:
    assert share_of(setting, total) == most


def test_nodes_that_we_hold_count_for_their_nodeset() -> None:
    nodes = [node("n1", status=held()), node("n2"), node("n3"), node("n4"), node("o1", nodeset="others")]
    made = budget({"maxUnavailable": "50%"}, *nodes)
    assert made.refusal(nodes[1]) == ""
    made.take(nodes[1])
    assert "at most 2 nodes of NodeSet workers" in made.refusal(nodes[2])
    assert made.refusal(nodes[4]) == ""


def test_a_node_that_recovered_counts_until_its_drain_is_gone() -> None:
    nodes = [node("n1", status=held("Recovered")), node("n2")]
    assert budget({"maxUnavailable": 1}, *nodes).refusal(nodes[1])
    nodes = [node("n1", status=held("Recovered", reason="")), node("n2")]
    assert not budget({"maxUnavailable": 1}, *nodes).refusal(nodes[1])


def test_a_node_whose_pod_is_away_counts_for_the_nodeset_it_had() -> None:
    nodes = [node("n1", status=held("Repairing"), nodeset="", pod=None), node("n2"), node("n3")]
    assert "at most 1 nodes of NodeSet workers" in budget({"maxUnavailable": 1}, *nodes).refusal(nodes[1])


def test_a_block_has_its_own_limit() -> None:
    nodes = [node(f"n{it}", block="b1" if it < 4 else "") for it in range(8)]
    made = budget({"maxUnavailable": "100%", "maxUnavailablePerBlock": "25%"}, *nodes)
    made.take(nodes[0])
    assert "block b1" in made.refusal(nodes[1])
    assert made.refusal(nodes[7]) == ""


@pytest.mark.parametrize(
    ("window", "now", "opened"),
    [
        ({"start": "08:00", "end": "10:00"}, "2026-03-04T09:59", True),
        ({"start": "08:00", "end": "10:00"}, "2026-03-04T10:00", False),
        ({"start": "22:00", "end": "02:00", "days": ("Tue",)}, "2026-03-04T01:59", True),  # Wednesday night
        ({"start": "22:00", "end": "02:00", "days": ("Tue",)}, "2026-03-03T01:00", False),
        ({"start": "22:00", "end": "02:00", "days": ("Tue",)}, "2026-03-03T22:00", True),
        ({"start": "06:00", "end": "06:00", "days": ("Wed",)}, "2026-03-05T05:59", True),
        ({"start": "09:00", "end": "10:00", "time_zone": "Europe/Berlin"}, "2026-03-04T08:30", True),
        ({"start": "09:00", "end": "10:00", "time_zone": "Europe/Berlin"}, "2026-07-04T07:30", True),
        ({"start": "09:00", "end": "10:00", "time_zone": "Europe/Berlin"}, "2026-07-04T08:30", False),
    ],
)
def test_windows(window: dict[str, Any], now: str, *, opened: bool) -> None:
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert (closed_because((Window(**window),), moment) == "") is opened


def test_without_windows_all_times_are_good_and_an_unknown_zone_is_told() -> None:
    assert closed_because((), NOW) == ""
    wrong = Window(start="00:00", end="23:59", time_zone="Mars/Olympus")
    assert "Mars/Olympus" in closed_because((wrong,), NOW)
    assert closed_because((wrong, Window(start="00:00", end="23:59")), NOW) == ""


def found_by(times: list[datetime], check: str = "gpu", **fields: Any) -> dict[str, tuple[Finding, ...]]:
    return {f"n{it}": (finding(check, first_seen=at, last_seen=at, **fields),) for it, at in enumerate(times)}


def suspects(found: dict[str, tuple[Finding, ...]], total: int, **storm: str) -> dict[str, datetime]:
    made = compiled(msgspec.convert({"limits": {"storm": storm}}, HealthPolicySpec))
    return storms(made, found, total=total, now=NOW)


def test_a_check_that_condemns_a_third_within_minutes_is_suspect_until_it_is_quiet() -> None:
    times = [ago(minutes=1 + it / 10) for it in range(4)]
    assert suspects(found_by(times), 13) == {}
    assert suspects(found_by(times), 13, share="4%")
    assert suspects(found_by(times), 12) == {"gpu": ago(minutes=1) + timedelta(minutes=30)}


def test_fewer_than_three_nodes_are_no_storm() -> None:
    assert suspects(found_by([ago(minutes=1)] * 2), 2) == {}
    assert suspects(found_by([ago(minutes=1)] * 3), 3)


def test_what_comes_slowly_is_no_storm() -> None:
    assert suspects(found_by([ago(minutes=6 * it) for it in range(5)]), 6) == {}


def test_a_storm_ends_after_its_cooldown() -> None:
    assert suspects(found_by([ago(minutes=29)] * 5), 6)
    assert suspects(found_by([ago(minutes=30)] * 5), 6) == {}


def test_each_check_is_judged_by_itself_and_humans_are_not() -> None:
    mixed = found_by([ago(minutes=1)] * 2) | {
        f"m{it}": found for it, found in enumerate(found_by([ago(minutes=1)] * 2, "disk").values())
    }
    assert suspects(mixed, 6) == {}
    assert suspects(found_by([ago(minutes=1)] * 6, "bob", source="human"), 6) == {}
    assert suspects(found_by([ago(minutes=1)] * 6, MACHINE_CLAIM), 6) == {}

from typing import Any

import msgspec
import pytest

from isthmus.domain.health.policies import compiled, conflict, governing, seconds
from isthmus.model.health import HealthPolicy, HealthPolicySpec
from isthmus.model.meta import Key, ObjectMeta
from tests.unit.domain.health.scene import ago, finding

CLUSTER = Key("default", "c")


def policy(name: str, *, days: int, ref: str = "", namespace: str = "default") -> HealthPolicy:
    meta = ObjectMeta(name=name, namespace=namespace, creation_timestamp=ago(days=days))
    return HealthPolicy(metadata=meta, spec=HealthPolicySpec(slurm_cluster_ref_name=ref))


def spec(**fields: Any) -> HealthPolicySpec:
    return msgspec.convert(fields, HealthPolicySpec)


def test_a_policy_that_names_the_cluster_counts_before_older_ones_for_all() -> None:
    general, named, other = policy("a", days=9), policy("b", days=1, ref="c"), policy("d", days=5, ref="x")
    assert governing([general, named, other], CLUSTER) is named
    assert governing([general, other], CLUSTER) is general
    assert governing([other, policy("z", days=3, namespace="elsewhere")], CLUSTER) is None


def test_of_two_with_the_same_right_the_oldest_counts_and_the_other_is_told() -> None:
    young, old = policy("a", days=1), policy("b", days=2)
    assert governing([young, old], CLUSTER) is old
    assert conflict(old, [young, old], CLUSTER) == ""
    assert "HealthPolicy b is older" in conflict(young, [young, old], CLUSTER)
    assert conflict(policy("n", days=0, ref="other"), [young, old], CLUSTER) == ""


@pytest.mark.parametrize(
    ("found", "action"),
    [
        (finding(wants="drain"), "repair"),
        (finding(wants="comment"), "comment"),
        (finding(wants=""), "record"),
        (finding(wants="drain", evidence="[user_problem] x"), "drain"),
        (finding(source="prolog", wants=""), "repair"),
        (finding(source="healthcheck", evidence="[user_problem] alloc_gpus_busy [hc_program]"), "drain"),
        (finding(source="condition"), "repair"),
        (finding(source="notReady"), "repair"),
        (finding(source="device", wants="drain"), "repair"),
        (finding(source="device", wants=""), "record"),
        (finding(source="maintenance"), "drain"),
        (finding(source="human", evidence="[user_problem] x"), "record"),
    ],
)
def test_built_in_rules(found: Any, action: str) -> None:
    rule = compiled(HealthPolicySpec()).rule_for(found)
    assert rule.action == action
    assert [it.rung for it in rule.ladder] == ["restartPod"]


def test_the_first_rule_that_matches_counts() -> None:
    rules = [
        {"action": "ignore", "match": {"sources": ["check"], "checks": ["gpu-*", "nccl"]}},
        {"action": "comment", "match": {"evidence": "XID 63"}, "confirmations": 3},
        {
            "action": "repair",
            "match": {"sources": ["human"]},
            "jobDeadline": "1h30m",
            "ladder": [{"rung": "reboot"}],
        },
    ]
    made = compiled(spec(rules=rules))
    assert made.rule_for(finding("gpu-burn")).action == "ignore"
    assert made.rule_for(finding("nccl")).action == "ignore"
    assert made.rule_for(finding("nccl2")).action == "repair"
    assert made.rule_for(finding(evidence="saw XID 63 twice")).confirmations == 3
    last = made.rule_for(finding("bob", source="human"))
    assert (last.job_deadline, last.ladder[0].rung, last.ladder[0].timeout) == (5400.0, "reboot", 900.0)


def test_a_rule_without_a_ladder_has_the_policys_and_an_empty_one_has_none() -> None:
    ladder = [{"rung": "reboot", "timeout": "10m"}]
    rules = [{"action": "repair", "match": {"checks": ["a"]}}, {"action": "repair", "ladder": []}]
    made = compiled(spec(ladder=ladder, rules=rules))
    assert [it.rung for it in made.rule_for(finding("a")).ladder] == ["reboot"]
    assert made.rule_for(finding("b")).ladder == ()


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90), ("1h30m", 5400), ("7d", 604800), ("250ms", 0.25), ("1.5h", 5400)]
)
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


def test_a_policy_is_read_once() -> None:
    assert compiled(spec(paused=True)) is compiled(spec(paused=True))

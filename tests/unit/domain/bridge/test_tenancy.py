from itertools import permutations
from typing import Any

import pytest

from isthmus.domain.bridge.joboptions import JobOptions
from isthmus.domain.bridge.tenancy import Grant, Mode, Tenancy, apply, grant_for, idle
from isthmus.errors import Terminal
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import LabelSelector, Requirement
from isthmus.model.policy import BridgePolicy, BridgePolicySpec, Choice

EVERYWHERE = LabelSelector()


def policy(name: str, **spec: Any) -> BridgePolicy:
    return BridgePolicy(BridgePolicySpec(**spec), ObjectMeta(name=name))


def grant(*policies: BridgePolicy, account: str = "default", mode: Mode = "auto", **labels: str) -> Grant:
    return grant_for(
        policies,
        namespace="physics",
        namespace_labels=labels,
        service_account=account,
        tenancy=Tenancy(mode, "main"),
    )


def test_the_policy_that_names_a_pod_most_exactly_holds() -> None:
    policies = [
        policy("a-selector", namespace_selector=EVERYWHERE),
        policy("b-namespace", namespaces=("physics",)),
        policy("c-account", namespace_selector=EVERYWHERE, service_accounts=("runner",)),
        policy("d-both", namespaces=("physics",), service_accounts=("runner",)),
        policy("e-both", namespaces=("physics",), service_accounts=("runner",)),
        policy("f-other", namespaces=("chemistry",), service_accounts=("runner",)),
    ]
    for order in permutations(policies):
        assert grant(*order, account="runner").policy == "d-both"
    assert grant(*policies[:3], account="runner").policy == "c-account"
    assert grant(*policies).policy == "b-namespace"
    assert grant(policies[0], policies[5]).policy == "a-selector"


def test_a_pod_without_a_service_account_has_the_default_one() -> None:
    assert grant(policy("a", namespaces=("physics",), service_accounts=("default",)), account="").policy == "a"


@pytest.mark.parametrize(
    ("selector", "holds"),
    [
        (LabelSelector(match_labels={"team": "a"}), True),
        (LabelSelector(match_labels={"team": "b"}), False),
        (LabelSelector(match_expressions=(Requirement("team", "In", ("a", "b")),)), True),
        (LabelSelector(match_expressions=(Requirement("other", "NotIn", ("a",)),)), True),
        (
            LabelSelector(match_labels={"team": "a"}, match_expressions=(Requirement("team", "DoesNotExist"),)),
            False,
        ),
        (None, False),
    ],
)
def test_namespaces_are_selected_by_labels(selector: LabelSelector | None, *, holds: bool) -> None:
    assert (grant(policy("a", namespace_selector=selector), team="a").policy == "a") == holds


def test_policies_that_hold_for_nobody_are_named_with_the_reason() -> None:
    namespaces: dict[str, dict[str, str]] = {"physics": {"team": "a"}, "chemistry": {}}
    policies = (
        policy("all", namespace_selector=EVERYWHERE),
        policy("again", namespace_selector=EVERYWHERE),
        policy("gone", namespaces=("biology",)),
        policy("none", namespace_selector=LabelSelector(match_labels={"team": "z"})),
        policy("runner", namespaces=("physics",), service_accounts=("runner",)),
        policy("same", namespaces=("physics",), service_accounts=("runner",)),
    )
    assert dict(idle(policies, namespaces)) == {
        "all": "other policies override it in its namespaces: again, runner",
        "gone": "there is no namespace biology",
        "none": "it selects no namespace",
        "same": "other policies override it in its namespaces: runner",
    }


@pytest.mark.parametrize(
    "options",
    [JobOptions(user_id="alice"), JobOptions(group_id="100"), JobOptions(mcs_label="secret")],
    ids=lambda options: str(options)[11:23],
)
@pytest.mark.parametrize("policies", [(), (policy("a", namespaces=("physics",)),)])
def test_weakness_31_nobody_becomes_somebody_else_without_a_policy(
    options: JobOptions, policies: tuple[BridgePolicy]
) -> None:
    with pytest.raises(Terminal, match="needs a BridgePolicy that allows it in spec"):
        apply(grant(*policies), options)


def test_without_any_policy_all_else_passes_with_a_warning() -> None:
    options = JobOptions(account="a", partition="p", qos="q", reservation="r")
    free = grant()
    assert apply(free, options) == options
    assert "no BridgePolicy applies to namespace physics: account, partition and QOS are free" in free.warning
    assert not grant(policy("a", namespaces=("physics",))).warning


@pytest.mark.parametrize("mode", ["auto", "open", "strict"])
def test_without_a_policy_nobody_passes_over_fair_share(mode: Mode) -> None:
    with pytest.raises(Terminal, match="priority cannot be set"):
        apply(grant(mode=mode), JobOptions(priority=5))
    assert apply(grant(mode=mode), JobOptions(nice=5)) == JobOptions(
        nice=5, partition="main" if mode == "strict" else None
    )


@pytest.mark.parametrize(
    "options",
    [
        JobOptions(account="a"),
        JobOptions(partition="p"),
        JobOptions(qos="q"),
        JobOptions(reservation="r"),
        JobOptions(partition="main,p"),
    ],
)
def test_once_there_is_a_policy_a_namespace_without_one_gets_the_defaults_only(options: JobOptions) -> None:
    other = policy("b", namespaces=("chemistry",))
    for found in (grant(other), grant(mode="strict"), grant(other, mode="strict")):
        assert "jobs get the defaults only" in found.warning
        with pytest.raises(Terminal, match=r"is not allowed, .* \(no BridgePolicy applies to this namespace\)"):
            apply(found, options)
        assert apply(found, JobOptions(partition="main", time_limit=5)) == JobOptions(
            partition="main", time_limit=5
        )
        assert apply(found, JobOptions()) == JobOptions(partition="main")
    assert apply(grant(other, mode="open"), options) == options


def test_without_a_partition_of_the_bridges_own_none_can_be_chosen() -> None:
    found = grant_for([], namespace="a", namespace_labels={}, service_account="", tenancy=Tenancy("strict"))
    assert apply(found, JobOptions()) == JobOptions()
    with pytest.raises(Terminal, match="partition 'p' is not allowed, nor is any other"):
        apply(found, JobOptions(partition="p"))


@pytest.mark.parametrize("whole", [True, False])
def test_a_policy_can_enforce_whole_nodes_or_shared_ones(*, whole: bool) -> None:
    found = grant(policy("a", namespaces=("physics",), exclusive=whole, enforce_exclusive=True))
    assert apply(found, JobOptions()).exclusive == apply(found, JobOptions(exclusive=whole)).exclusive == whole
    with pytest.raises(Terminal, match=f"exclusive is always {str(whole).lower()} here"):
        apply(found, JobOptions(exclusive=not whole))


def test_a_policy_fills_in_what_nobody_asked_for() -> None:
    found = grant(
        policy(
            "a",
            namespaces=("physics",),
            users=Choice("alice"),
            accounts=Choice("physics", ("guests",)),
            qos=Choice(allowed=("high",)),
            exclusive=False,
        )
    )
    assert apply(found, JobOptions()) == JobOptions(user_id="alice", account="physics", exclusive=False)
    asked = JobOptions(user_id="alice", account="guests", qos="high", exclusive=True)
    assert apply(found, asked) == asked


def test_one_error_says_what_is_not_allowed_what_would_be_and_by_whom() -> None:
    found = grant(
        policy(
            "physics-rules",
            namespaces=("physics",),
            users=Choice("alice", ("bob",)),
            partitions=Choice("cpu", ("gpu", "cpu")),
            reservations=Choice(),
        )
    )
    with pytest.raises(Terminal) as caught:
        apply(found, JobOptions(user_id="carol", partition="gpu,big", reservation="r", priority=1))
    assert caught.value.what == (
        "user-id 'carol' is not allowed, only alice, bob; partition 'big' is not allowed, only cpu, gpu;"
        " reservation 'r' is not allowed, nor is any other;"
        " priority cannot be set, because it bypasses fair share (use nice) (BridgePolicy physics-rules)"
    )


def test_everything_may_be_allowed_but_root_has_to_be_named() -> None:
    found = grant(policy("a", namespaces=("physics",), users=Choice(allowed=("*",)), groups=Choice(allowed=("*",))))
    assert apply(found, JobOptions(user_id="dora", group_id="17"))
    for root in (JobOptions(user_id="root"), JobOptions(user_id="0"), JobOptions(group_id="0")):
        with pytest.raises(Terminal, match="root must be listed by name"):
            apply(found, root)
    named = grant(policy("a", namespaces=("physics",), users=Choice(allowed=("*", "root"))))
    assert apply(named, JobOptions(user_id="root")).user_id == "root"


def test_a_policy_can_let_priorities_be_set() -> None:
    assert apply(grant(policy("a", namespaces=("physics",), priority=True)), JobOptions(priority=9)).priority == 9

"""When Slurm is told to read its configuration again, and when everybody has."""

from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.jailedconfigs import updates
from isthmus.domain.operator.jailedconfigs.updates import Plan, Slurm
from isthmus.model.jailedconfig import JailedConfig
from isthmus.model.slurm import Node, Number

NOW = 1_800_000_000.0
AT = "2027-01-15T08:00:00.000Z"
"""As NOW."""


def config(
    name: str = "a",
    files: str = "new",
    reconfigured: str = "",
    done: str = "",
    *,
    written: str = "True",
    reason: str = "Success",
    key: str = "",
    asks: bool = True,
    at: str = AT,
    generation: int = 1,
) -> JailedConfig:
    held = [
        {"type": "FilesWritten", "status": written, "reason": reason, "observedGeneration": 1},
        *([{"type": "UpdateActionsCompleted", "status": done, "message": "as before"}] if done else []),
    ]
    status = {"filesHash": files, "reconfiguredHash": reconfigured, "conditions": held if written else held[1:]}
    labels = {"app.kubernetes.io/instance": "c"} | ({"slurm.nebius.ai/jailed-aggregation": key} if key else {})
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "ns", "labels": labels, "generation": generation},
            "spec": {"configMap": {"name": name}, "updateActions": ["Reconfigure"] if asks else []},
            "status": status | ({"reconfiguredAt": at} if reconfigured else {}),
        },
        JailedConfig,
    )


def node(name: str, start: int = 5, *state: str) -> Node:
    return Node(name=name, state=state or ("IDLE",), slurmd_start_time=Number(set=True, number=start))


def seen(*nodes: Node, read: float | None = NOW, later: float = 1.0, **more: Any) -> Slurm:
    made = {it.name: it for it in nodes}
    return Slurm(now=NOW + later, read_at=read, nodes=made, **{"owing": {}, "told_at": NOW, **more})


def told(plan: Plan, name: str = "a") -> tuple[str, str, str]:
    held = plan.told[name].completed
    return held.status, held.reason, held.message


def test_new_content_is_told_to_slurm_once_and_written_down() -> None:
    made = updates.plan([config()], seen(node("n1")), start=True)
    assert made.reconfigure
    assert told(made)[:2] == ("False", "Refresh")
    assert (made.told["a"].hash, made.told["a"].at) == ("new", "2027-01-15T08:00:01.000Z")


def test_nothing_begins_before_it_has_settled() -> None:
    made = updates.plan([config()], seen(), start=False)
    assert not made.reconfigure
    assert made.told["a"].hash == ""
    assert made.under_way


def test_the_same_content_is_never_a_reason() -> None:
    made = updates.plan([config(reconfigured="new", done="True")], seen(node("n1")), start=True)
    assert not made.reconfigure
    assert not made.under_way
    assert told(made) == ("True", "", "as before")


def test_changes_of_many_are_told_together() -> None:
    several = [config("a"), config("b", key="k"), config("c", key="k", asks=False)]
    made = updates.plan(several, seen(), start=True)
    assert made.reconfigure
    assert {it.hash for it in made.told.values()} == {"new"}
    assert updates.due(several) == {("a", "new"), ("b", "new"), ("c", "new")}


def test_who_asks_for_nothing_is_complete() -> None:
    made = updates.plan([config(asks=False)], seen(), start=True)
    assert not made.reconfigure
    assert told(made)[:2] == ("True", "MissingAction")
    assert not updates.due([config(asks=False)])


@pytest.mark.parametrize("reason", ["NotFound", "NotWritten"])
def test_without_its_files_nothing_is_told_and_its_aggregation_waits(reason: str) -> None:
    lacking = config("b", files="", written="False", reason=reason, key="k")
    made = updates.plan([config("a", key="k"), lacking], seen(), start=True)
    assert not made.reconfigure
    assert told(made, "b")[:2] == ("False", reason)
    assert told(made, "a") == (
        "False",
        "Refresh",
        "waits for JailedConfig b of the same aggregation, whose files are not written",
    )
    assert not updates.due([config("a", key="k"), lacking])


def test_others_do_not_wait_for_who_is_of_no_aggregation_with_them() -> None:
    made = updates.plan([config("a"), config("b", written="False")], seen(), start=True)
    assert made.reconfigure
    assert made.told["a"].hash == "new"
    assert made.told["b"].hash == ""


def test_what_was_written_for_an_older_wish_is_not_told() -> None:
    made = updates.plan([config(generation=2)], seen(), start=True)
    assert not made.reconfigure
    assert told(made)[1] == "Init"


def test_out_of_touch_is_unknown_and_waits() -> None:
    away = Slurm(now=NOW, trouble="Slurm does not answer: refused")
    for it in (config(), config(reconfigured="new", done="False")):
        made = updates.plan([it], away, start=True)
        assert not made.reconfigure
        assert told(made) == ("Unknown", "OutOfTouch", "Slurm does not answer: refused")
    assert told(updates.plan([config(reconfigured="new", done="True")], away, start=True))[0] == "True"


BEGUN = config(reconfigured="new", done="False")


def test_it_is_complete_when_slurmctld_has_read_and_nobody_owes() -> None:
    made = updates.plan([BEGUN], seen(node("n1", 7), node("n2", 7)), start=False)
    assert told(made) == ("True", "Success", "slurmctld and 2 nodes have read it")


def test_slurmctld_that_nobody_told_is_told() -> None:
    unread = seen(read=NOW - 100, told_at=None)
    assert updates.plan([BEGUN], unread, start=False).reconfigure
    told_just_now = seen(read=NOW - 100)
    assert not updates.plan([BEGUN], told_just_now, start=False).reconfigure
    assert told(updates.plan([BEGUN], told_just_now, start=False))[2] == "slurmctld has not read it yet"
    assert updates.plan([BEGUN], seen(read=NOW - 100, later=16), start=False).reconfigure
    # Of the same second, who has told it knows that it was read after that; another one does not.
    assert told(updates.plan([BEGUN], seen(read=NOW), start=False))[0] == "True"
    assert updates.plan([BEGUN], seen(read=NOW, told_at=None), start=False).reconfigure


def test_what_slurm_says_against_it_is_told() -> None:
    made = updates.plan([BEGUN], seen(read=NOW - 100, refusal="bad line 3"), start=False)
    assert told(made) == ("False", "Refused", "Slurm did not reread its configuration: bad line 3")
    # An answer may be lost of what was done all the same.
    assert told(updates.plan([BEGUN], seen(refusal="no answer"), start=False))[0] == "True"
    still = seen(node("n1"), owing={"n1": 5}, refusal="no answer")
    assert told(updates.plan([BEGUN], still, start=False))[1] == "Refused"


def test_nodes_that_have_not_taken_it_are_named_and_told_again() -> None:
    nodes = (node("n1"), node("n2"), node("n3", 9))
    behind = seen(*nodes, owing={"n1": 5, "n2": 5})
    made = updates.plan([BEGUN], behind, start=False)
    assert told(made) == ("False", "Refresh", "2 of 3 nodes have not loaded it yet: n[1-2]")
    assert not made.reconfigure
    assert updates.plan([BEGUN], seen(*nodes, owing={"n1": 5, "n2": 5}, later=15), start=False).reconfigure
    late = updates.plan([BEGUN], seen(*nodes, owing={"n1": 5}, later=301), start=False)
    assert told(late)[1] == "NotTaken"


def test_nodes_that_do_not_respond_are_waited_for_and_not_told_in_vain() -> None:
    silent = seen(node("n1", 5, "IDLE", "NOT_RESPONDING"), owing={"n1": 5}, later=60)
    made = updates.plan([BEGUN], silent, start=False)
    assert told(made)[2] == "1 of 1 nodes have not loaded it yet: n1; not responding: n1"
    assert not made.reconfigure


def test_nodes_that_are_away_are_named_and_hold_up_nobody() -> None:
    down = seen(node("n1", 5, "DOWN"), node("n2", 9), owing={"n1": 5})
    made = updates.plan([BEGUN], down, start=False)
    said = "slurmctld and 1 nodes have read it; absent ones read it when they start: n1"
    assert told(made) == ("True", "Success", said)
    with_pod = seen(node("n1", 5, "DOWN"), owing={"n1": 5}, with_pod=frozenset({"n1"}))
    assert told(updates.plan([BEGUN], with_pod, start=False))[0] == "False"


def test_a_node_that_comes_back_without_having_been_started_is_told() -> None:
    back = seen(node("n1"), node("n2", 9), owing={"n1": 5}, later=3600)
    made = updates.plan([config(reconfigured="new", done="True")], back, start=False)
    assert made.reconfigure
    text = "slurmctld and all nodes are being reconfigured"
    assert told(made) == ("False", "Refresh", f"{text}: these restarted without it: n1")
    assert made.told["a"].at == "2027-01-15T09:00:00.000Z"
    older = config("b", reconfigured="new", done="True", at="2027-01-15T07:00:00.000Z")
    both = updates.plan([config(reconfigured="new", done="True"), older], back, start=False)
    assert told(both, "b")[0] == "True"


def test_who_owes_is_known_by_the_start_of_its_slurmd() -> None:
    nodes = {
        it.name: it
        for it in (node("n1", 5), node("n2", 9), node("x", 5, "EXTERNAL"), node("new", 0), node("d", 5, "DOWN"))
    }
    assert updates.owing(nodes) == {"n1": 5, "n2": 9, "d": 5}
    assert updates.owing(nodes, told_at=8.7) == {"n1": 5, "d": 5}
    assert updates.owing(nodes, told_at=5.9) == {"n1": 5, "d": 5}
    assert updates.owing(nodes, told_at=4.9) == {}
    assert updates.owing(nodes, told_at=8.7, only_away=True) == {"d": 5}
    later = nodes | {"n1": node("n1", 6)}
    del later["n2"]
    assert updates.still_owing({"n1": 5, "n2": 9, "d": 5}, later) == {"d": 5}

import json
from datetime import UTC, datetime

import pytest

from isthmus.domain.bridge import marker
from isthmus.domain.bridge.groups import group_of
from isthmus.domain.bridge.outcome import Outcome, Result, in_admin_comment, in_comment, outcome
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.pod import (
    ContainerState,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Terminated,
)


def pod(name: str = "web", *, leaving: bool = False, ended: Terminated | None = None, **status: object) -> Pod:
    containers = (ContainerStatus("main", ContainerState(ended)),) if ended else ()
    return Pod(
        ObjectMeta(
            name, "team", f"uid-{name}", deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC) if leaving else None
        ),
        PodSpec(node_name="n1"),
        PodStatus(container_statuses=containers, **status),  # type: ignore[arg-type] # fields of the status
    )


@pytest.mark.parametrize(
    ("here", "result", "text"),
    [
        (pod(phase="Succeeded"), Result.SUCCEEDED, "team/web: Succeeded"),
        (pod(phase="Failed"), Result.FAILED, "team/web: Failed"),
        (
            pod(phase="Failed", ended=Terminated(3, reason="OOMKilled")),
            Result.FAILED,
            "team/web: Failed: container main exited with 3 (OOMKilled)",
        ),
        (
            pod(phase="Failed", ended=Terminated(3, reason="Error")),
            Result.FAILED,
            "team/web: Failed: container main exited with 3",
        ),
        (
            pod(phase="Failed", ended=Terminated(137, signal=9)),
            Result.FAILED,
            "team/web: Failed: container main was ended by signal 9",
        ),
        (
            pod(phase="Failed", reason="Evicted", message="The node was low\non memory."),
            Result.FAILED,
            "team/web: Failed: Evicted: The node was low on memory.",
        ),
        (
            pod(phase="Failed", reason="DeadlineExceeded", ended=Terminated(143)),
            Result.FAILED,
            "team/web: Failed: DeadlineExceeded: container main exited with 143",
        ),
        (pod(phase="Failed", leaving=True, ended=Terminated(143)), Result.DELETED, "team/web: deleted"),
        (
            pod(phase="Running", leaving=True),
            Result.DELETED,
            "team/web: deleted, and its node n1 did not confirm its end",
        ),
    ],
)
def test_what_became_of_a_pod(here: Pod, result: Result, text: str) -> None:
    assert outcome(here=[here], gone=[]) == Outcome(result, text)


@pytest.mark.parametrize(
    ("gone", "result", "text"),
    [
        (pod(phase="Succeeded"), Result.SUCCEEDED, "team/web: Succeeded"),
        (pod(phase="Failed"), Result.FAILED, "team/web: Failed"),
        (pod(phase="Running"), Result.DELETED, "team/web: deleted"),
        (
            pod(
                phase="Running",
                leaving=True,
                conditions=(PodCondition("DisruptionTarget", "True", "EvictionByEvictionAPI"),),
            ),
            Result.DELETED,
            "team/web: deleted (EvictionByEvictionAPI)",
        ),
    ],
)
def test_what_became_of_a_pod_that_is_gone(gone: Pod, result: Result, text: str) -> None:
    assert outcome(here=[], gone=[gone]) == Outcome(result, text)


def test_a_pod_that_nobody_saw_was_deleted() -> None:
    assert outcome(here=[], gone=[], missing=[Key("team", "web")]) == Outcome(Result.DELETED, "team/web: deleted")


def test_no_pod_at_all() -> None:
    assert outcome(here=[], gone=[]) == Outcome(Result.DELETED, "no pod is left for it")


def test_a_failure_speaks_for_a_gang_and_the_rest_is_counted() -> None:
    failed = pod("b", phase="Failed", ended=Terminated(3))
    good = [pod(f"c{number}", phase="Succeeded") for number in range(60)]
    told = outcome(here=[*good, failed], gone=[pod("a", phase="Running")])
    assert told.result is Result.FAILED
    assert (
        told.text == "team/b: Failed: container main exited with 3; team/a: deleted; team/c0 and 59 more: Succeeded"
    )


def test_a_gang_that_fared_alike_is_told_in_one_sentence() -> None:
    told = outcome(here=[pod(f"w{number}", phase="Succeeded") for number in range(3)], gone=[])
    assert told == Outcome(Result.SUCCEEDED, "team/w0 and 2 more: Succeeded")


def test_one_that_was_deleted_is_no_success() -> None:
    told = outcome(here=[pod("a", phase="Succeeded")], gone=[pod("b", phase="Running")])
    assert told.result is Result.DELETED


def test_text_fits_into_a_comment_whatever_kubernetes_says() -> None:
    told = outcome(here=[pod(phase="Failed", reason="Evicted", message="\x00😀 long " * 1000)], gone=[])
    assert len(told.text) <= 500
    assert told.text.isprintable()


def test_a_comment_keeps_what_was_asked_for() -> None:
    told = Outcome(Result.SUCCEEDED, "team/web: Succeeded")
    assert in_comment("team/web", told) == "team/web: Succeeded"
    assert in_comment("team/web: a note", told) == "team/web: Succeeded | team/web: a note"


@pytest.mark.parametrize("comment", ["", "team/web", "team/web: a note", "a | b"])
def test_a_comment_is_changed_once(comment: str) -> None:
    told = Outcome(Result.SUCCEEDED, "team/web: Succeeded")
    once = in_comment(comment, told)
    assert in_comment(once, told) == once


def test_the_marker_stays_a_marker() -> None:
    here = pod()
    marked = marker.mark(group_of(here), "uid-web", [here], cluster="c")
    written = in_admin_comment(marker.write(marked), Outcome(Result.SUCCEEDED, "team/web: Succeeded"))
    assert marker.read(written) == marked
    assert json.loads(written)["outcome"] == "team/web: Succeeded"

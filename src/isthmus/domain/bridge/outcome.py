"""The outcome of a job's pods, in words that fit into the job, so that Slurm's accounting shows it.

It goes into two places. People read the `comment`, which sacct only has where AccountingStoreFlags says so; the
`admin_comment` is always recorded, and holds the same text beside our marker.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from isthmus.model.meta import Key, condition
from isthmus.model.pod import Pod

_MAX_CHARS: Final = 500
"""Of the 1,024 characters of a comment."""

_SEPARATOR: Final = " | "


class Result(StrEnum):
    """What a pod came to; of several, the first in this order speaks for all."""

    FAILED = "failed"
    DELETED = "deleted"
    SUCCEEDED = "succeeded"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a job's pods, and its text."""

    result: Result
    text: str


class _Story(msgspec.Struct, frozen=True):
    key: str
    result: Result
    text: str


def outcome(*, here: Iterable[Pod], gone: Iterable[Pod], missing: Iterable[Key] = ()) -> Outcome:
    """Sum up pods: those that are still there, those that are gone as they were last seen, and those never seen."""
    stories = [
        *(_Story(str(pod.metadata.key), *_of(pod, gone=False)) for pod in here),
        *(_Story(str(pod.metadata.key), *_of(pod, gone=True)) for pod in gone),
        *(_Story(str(key), Result.DELETED, "deleted") for key in missing),
    ]
    if not stories:
        return Outcome(Result.DELETED, "no pod is left for it")
    order = list(Result)
    stories.sort(key=lambda it: (order.index(it.result), it.key))
    return Outcome(stories[0].result, _text(stories))


def _of(pod: Pod, *, gone: bool) -> tuple[Result, str]:
    status = pod.status
    if status.phase == "Succeeded":
        return Result.SUCCEEDED, "Succeeded"
    if pod.leaving or not pod.finished:
        # A container that receives a signal usually exits with an error; that does not count as a failure.
        disrupted = condition(status.conditions, "DisruptionTarget")
        why = f" ({disrupted.reason})" if disrupted and disrupted.reason else ""
        lost = "" if gone or pod.finished else f", and its node {pod.spec.node_name} did not confirm its end"
        return Result.DELETED, f"deleted{why}{lost}"
    why = f"{status.reason}: {status.message}" if status.reason and status.message else status.reason
    return Result.FAILED, ": ".join(filter(None, ["Failed", why, _broken_container(pod)]))


def _broken_container(pod: Pod) -> str:
    for container in pod.status.container_statuses:
        ended = container.state.terminated
        if ended and (ended.exit_code or ended.signal):
            how = f"was ended by signal {ended.signal}" if ended.signal else f"exited with {ended.exit_code}"
            why = f" ({ended.reason})" if ended.reason not in {"", "Error"} else ""
            return f"container {container.name} {how}{why}"
    return ""


def _text(stories: Sequence[_Story]) -> str:
    """Each thing that happened once, and to how many pods; the worst comes first."""
    alike: dict[str, list[str]] = {}
    for story in stories:
        alike.setdefault(story.text, []).append(story.key)
    told = []
    for text, (first, *others) in alike.items():
        who = f"{first} and {len(others)} more" if others else first
        told.append(f"{who}: {text}")
    return _plain("; ".join(told))[:_MAX_CHARS]


def _plain(text: str) -> str:
    """Keep to one line of what Slurm and its tools can print."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def in_comment(text: str, told: Outcome) -> str:
    """Put an outcome in front of what a comment says already."""
    original = text.rpartition(_SEPARATOR)[2]
    return told.text if told.text.startswith(original) else f"{told.text}{_SEPARATOR}{original}"


def is_told(admin_comment: str | None) -> bool:
    """Whether an outcome is written beside the marker: it is written before we end a job, and only by us."""
    return "outcome" in _content(admin_comment)


def is_taken_back(admin_comment: str | None) -> bool:
    """Whether a job is to end so that its pods get another one; not because of what they came to."""
    return _content(admin_comment).get("takenBack") is True


def _content(admin_comment: str | None) -> dict[str, Any]:
    try:
        content = msgspec.json.decode(admin_comment or "")
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def in_admin_comment(admin_comment: str, told: Outcome, *, taken_back: bool = False) -> str:
    """Put an outcome beside the marker."""
    content: dict[str, Any] = msgspec.json.decode(admin_comment)
    beside = {"outcome": told.text} | ({"takenBack": True} if taken_back else {})
    return msgspec.json.encode(content | beside).decode()

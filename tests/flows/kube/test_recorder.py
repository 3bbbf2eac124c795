"""Events on a real API server: counted, bounded, and never in the way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from isthmus.kube import recorder as recording
from isthmus.kube.client import Client
from isthmus.kube.recorder import Recorder
from isthmus.model.base import Kind
from isthmus.model.pod import PODS, Pod
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.conftest import NAMESPACES, Through, pod
from tests.flows.kube.waiting import eventually

EVENTS: Kind[dict[str, Any]] = Kind(dict[str, Any], "events.k8s.io/v1", "events", "Event")


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def recorder_of(client: Client, clock: Clock | None = None) -> Recorder:
    return Recorder(client, controller="isthmus.test/controller", instance="test-0", clock=clock or Clock())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(client: Client, clock: Clock) -> Recorder:
    return recorder_of(client, clock)


@pytest.fixture
async def about(client: Client, namespace: str) -> Pod:
    return await client.create(PODS, pod(namespace, "web"))


async def events(client: Client, namespace: str) -> list[dict[str, Any]]:
    listed = await client.list(EVENTS, namespace=namespace)
    return sorted(listed.items, key=lambda event: event["note"])


def counts(found: list[dict[str, Any]]) -> dict[str, int]:
    return {event["note"]: event.get("series", {}).get("count", 1) for event in found}


async def test_an_event_is_shown_by_kubectl_describe(
    client: Client, namespace: str, control_plane: ControlPlaneBed, about: Pod, recorder: Recorder
) -> None:
    recorder.event(PODS, about, "Placed", "Slurm gave it node n1.")
    recorder.event(PODS, about, "Refused", "Slurm took it back.", warning=True)
    await recorder.flush()
    shown = control_plane.kubectl("describe", "pod", "--namespace", namespace, "web")
    assert "Slurm gave it node n1." in shown
    assert "isthmus.test/controller" in shown
    types = {event["reason"]: event["type"] for event in await events(client, namespace)}
    assert types == {"Placed": "Normal", "Refused": "Warning"}


async def test_repetitions_count_up_one_event(
    client: Client, namespace: str, about: Pod, recorder: Recorder, clock: Clock
) -> None:
    for _ in range(3):
        recorder.event(PODS, about, "Waiting", "no node is free")
    await recorder.flush()
    assert counts(await events(client, namespace)) == {"no node is free": 3}
    recorder.event(PODS, about, "Waiting", "no node is free")
    await recorder.flush()
    assert counts(await events(client, namespace)) == {"no node is free": 3}  # written a moment ago
    clock.seconds += recording.REFRESH
    await recorder.flush()
    assert counts(await events(client, namespace)) == {"no node is free": 4}


async def test_the_last_count_is_written_before_the_end(
    client: Client, namespace: str, about: Pod, recorder: Recorder
) -> None:
    recorder.event(PODS, about, "Waiting", "still")
    await recorder.flush()
    recorder.event(PODS, about, "Waiting", "still")
    await recorder.flush(everything=True)
    assert counts(await events(client, namespace)) == {"still": 2}


async def test_after_a_quiet_time_it_is_news_again(
    client: Client, namespace: str, about: Pod, recorder: Recorder, clock: Clock
) -> None:
    recorder.event(PODS, about, "Waiting", "again")
    await recorder.flush()
    clock.seconds += recording.QUIET
    recorder.event(PODS, about, "Waiting", "again")
    await recorder.flush()
    assert [event["note"] for event in await events(client, namespace)] == ["again", "again"]


async def test_many_different_notes_of_one_reason_share_an_event(
    client: Client, namespace: str, about: Pod, recorder: Recorder
) -> None:
    for number in range(100):
        recorder.event(PODS, about, "Tried", f"attempt {number}")
    await recorder.flush()
    found = counts(await events(client, namespace))
    assert len(found) == recording.DISTINCT + 1
    assert found["(and others like it) attempt 5"] == 95


async def test_an_object_gets_no_more_events_than_the_limit(
    client: Client, namespace: str, about: Pod, recorder: Recorder, clock: Clock
) -> None:
    for number in range(40):
        recorder.event(PODS, about, f"Reason{number}", "x")
    await recorder.flush()
    assert len(await events(client, namespace)) == recording.BURST
    assert recorder.dropped == 40 - recording.BURST
    clock.seconds += recording.REFILL
    recorder.event(PODS, about, "Later", "x")
    await recorder.flush()
    assert len(await events(client, namespace)) == recording.BURST + 1


async def test_an_event_that_the_server_forgot_is_made_again(
    client: Client, namespace: str, about: Pod, recorder: Recorder, clock: Clock
) -> None:
    recorder.event(PODS, about, "Waiting", "still")
    await recorder.flush()
    await client.delete_all(EVENTS, namespace=namespace)
    recorder.event(PODS, about, "Waiting", "still")
    clock.seconds += recording.REFRESH
    await recorder.flush()
    assert counts(await events(client, namespace)) == {"still": 2}


async def test_an_object_without_a_namespace_gets_its_events_in_default(client: Client, namespace: str) -> None:
    about = await client.get(NAMESPACES, namespace)
    recorder = recorder_of(client)
    recorder.event(NAMESPACES, about, "Seen", f"namespace {namespace}")
    await recorder.flush()
    assert f"namespace {namespace}" in counts(await events(client, "default"))


async def test_what_cannot_be_written_is_dropped_with_a_line_in_the_log(
    client: Client, namespace: str, through: Through, caplog: pytest.LogCaptureFixture, about: Pod
) -> None:
    clock = Clock()
    async with through() as (proxy, config), Client(config) as behind:
        recorder = recorder_of(behind, clock)
        proxy.respond(500, path="*/events*", times=1)
        recorder.event(PODS, about, "Unlucky", "at first")
        await recorder.flush()
        clock.seconds += recording.REFRESH
        await recorder.flush()
        assert counts(await events(client, namespace)) == {"at first": 1}  # tried again
        proxy.respond(403, path="*/events*")
        recorder.event(PODS, about, "Forbidden", "for ever")
        await recorder.flush()
    assert "failed to write an Event" in caplog.text


@asynccontextmanager
async def running(recorder: Recorder) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        try:
            yield
        finally:
            task.cancel()


async def test_run_writes_as_things_happen(client: Client, namespace: str) -> None:
    about: Pod = await client.create(PODS, pod(namespace, "web"))
    recorder = Recorder(client, controller="isthmus.test/c", instance="i", now=lambda: datetime.now(UTC))
    async with running(recorder):
        for number in range(3):
            recorder.event(PODS, about, "Step", f"number {number}")
            await eventually(lambda: not recorder._pending)
            assert len(await events(client, namespace)) == number + 1

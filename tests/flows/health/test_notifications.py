"""Notifications, to a real HTTP server and a real mail server on this machine."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from isthmus import names
from isthmus.health.metrics import HealthMetrics
from isthmus.health.notifications import Addressed, Notice, Notifications
from isthmus.model.health import Receiver
from isthmus.model.meta import Key
from isthmus.runtime.metrics import Metrics
from tests.bed.metrics import counted
from tests.flows.kube.waiting import eventually

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
CLUSTER = Key("hpc", "slurm")


class Hook:
    """An HTTP server that notes what is posted to it."""

    def __init__(self) -> None:
        self.url = ""
        self.heard: list[tuple[str, Any]] = []
        self.answers: list[int] = []
        """What the next requests are answered with; 200 without."""

    async def _post(self, request: web.Request) -> web.Response:
        self.heard.append((request.path, json.loads(await request.read())))
        return web.Response(status=self.answers.pop(0) if self.answers else 200)


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    found = Hook()
    app = web.Application()
    app.router.add_post("/{path:.*}", found._post)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}"
    yield found
    await runner.cleanup()


@asynccontextmanager
async def sending(metrics: Metrics | None = None) -> AsyncIterator[Notifications]:
    """A worker that sends, until the block ends; it then sends what is left."""
    counter = HealthMetrics(metrics).notifications if metrics else None
    notifications = Notifications(counter=counter, first_pause=0.01)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(notifications.run())
        yield notifications
        notifications.drain()


def notice(node: str = "w-1", phase: str = "Draining", message: str = "gpu-check failed") -> Notice:
    return Notice(cluster=CLUSTER, node=node, phase=phase, message=message, machine="gpu-7", at=NOW)


def to(url: str, **fields: Any) -> Addressed:
    return {"ops": (Receiver(name="ops", **fields), lambda: url)}


async def test_each_format_is_what_its_receiver_reads(hook: Hook) -> None:
    async with sending() as notifications:
        notifications.put(notice(), to(f"{hook.url}/json", format="json"))
        notifications.put(notice("w-2"), to(f"{hook.url}/services/T0/B0", format="slack"))
        notifications.put(notice("w-3"), to(hook.url, format="alertmanager"))
        notifications.put(notice("w-3", "Recovered", "passed"), to(hook.url, format="alertmanager"))
    (_, plain), (path, slack), (api, (firing,)), (_, (resolved,)) = hook.heard
    assert plain == {
        "namespace": "hpc",
        "cluster": "slurm",
        "node": "w-1",
        "machine": "gpu-7",
        "phase": "Draining",
        "message": "gpu-check failed",
        "time": "2026-05-01T12:00:00.000Z",
    }
    assert (path, slack) == (
        "/services/T0/B0",
        {"text": "Node w-2 of hpc/slurm is Draining: gpu-check failed"},
    )
    assert api == "/api/v2/alerts"
    assert firing["labels"] == resolved["labels"]
    assert firing["endsAt"] > firing["startsAt"]
    assert resolved["endsAt"] == "2026-05-01T12:00:00.000Z"


async def test_a_phase_is_told_once_and_only_to_those_who_want_it(hook: Hook) -> None:
    async with sending() as notifications:
        for _ in range(3):
            notifications.put(notice(), to(hook.url))
        notifications.put(notice(phase="Testing"), to(hook.url))
        notifications.put(notice(phase="Recovered"), to(hook.url))
        notifications.put(notice(), to(hook.url))
    assert [it["phase"] for _, it in hook.heard] == ["Draining", "Recovered", "Draining"]


async def test_a_server_that_stumbles_is_asked_again_and_one_that_refuses_is_not(hook: Hook) -> None:
    metrics = Metrics()
    hook.answers = [503, 429, 200, 404]
    async with sending(metrics) as notifications:
        notifications.put(notice("w-1"), to(hook.url))
        notifications.put(notice("w-2"), to(hook.url))
    assert [it["node"] for _, it in hook.heard] == ["w-1", "w-1", "w-1", "w-2"]
    assert counted(metrics, names.NOTIFICATIONS, format="json", result="sent") == 1
    assert counted(metrics, names.NOTIFICATIONS, format="json", result="failed") == 1


async def test_an_address_may_be_known_late(hook: Hook) -> None:
    asked: list[str] = ["", "", hook.url]
    async with sending() as notifications:
        notifications.put(notice(), {"ops": (Receiver(name="ops"), lambda: asked.pop(0))})
    assert [it["node"] for _, it in hook.heard] == ["w-1"]


async def test_an_address_is_in_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    async with sending() as notifications:
        notifications.put(notice(), to("http://127.0.0.1:1/services/VERY-SECRET"))
        notifications.put(notice(), to("smtp://user:VERY-SECRET@127.0.0.1:1", format="mail", mail="a@b"))
        notifications.put(notice(), to("not a VERY-SECRET address", format="mail", mail="a@b"))
    told = capsys.readouterr()
    assert "failed to notify" in told.out + told.err
    assert "VERY-SECRET" not in told.out + told.err


async def test_a_receiver_that_hangs_delays_nobody_who_puts() -> None:
    hanging = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        await hanging.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.TaskGroup() as tasks:
        metrics = Metrics()
        notifications = Notifications(counter=HealthMetrics(metrics).notifications)
        worker = tasks.create_task(notifications.run())
        for number in range(1500):
            notifications.put(notice(f"w-{number}"), to(f"http://127.0.0.1:{port}"))
            await asyncio.sleep(0)
        assert counted(metrics, names.NOTIFICATIONS, format="json", result="dropped") >= 499
        hanging.set()
        worker.cancel()


async def test_mail_arrives() -> None:
    heard: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak as much SMTP as a letter needs."""
        writer.write(b"220 here\r\n")
        in_letter = False
        while line := (await reader.readline()).decode():
            heard.append(line.rstrip())
            if in_letter:
                in_letter = line != ".\r\n"
                if in_letter:
                    continue
            elif line.upper().startswith("DATA"):
                in_letter = True
                writer.write(b"354 go on\r\n")
                continue
            writer.write(b"221 bye\r\n" if line.upper().startswith("QUIT") else b"250 ok\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        async with sending() as notifications:
            receivers = to(f"smtp://127.0.0.1:{port}", format="mail", mail="ops@example.org")
            notifications.put(notice(phase="OutOfService", message="four repairs did not help"), receivers)
        await eventually(lambda: any(it.upper().startswith("QUIT") for it in heard))
    assert "rcpt TO:<ops@example.org>" in heard
    assert "Subject: w-1: OutOfService (hpc/slurm)" in heard
    assert "Node w-1 of hpc/slurm is OutOfService: four repairs did not help" in heard

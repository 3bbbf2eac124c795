"""Every fault of the proxy, in front of a real slurmrestd and a real API server."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.bed.control_plane import ControlPlaneBed
from tests.bed.fault_rules import Delay, Exchange, LoseAnswer
from tests.bed.faults import Faults, Proxy
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_box import wait_until
from tests.bed.slurm_conf import SLURMRESTD_PORT

PING = "/slurm/v0.0.42/ping/"
SUBMIT = "/slurm/v0.0.42/job/submit"
SILENCE = 0.3
"""Seconds without a byte after which we believe that none will come: a ping takes a hundredth of it."""


@pytest.fixture
def slurm(shared_slurm: Callable[..., SlurmBed]) -> SlurmBed:
    return shared_slurm("26.05", nodes=1, accounting=False)


@pytest.fixture
async def proxied(slurm: SlurmBed, faults: Faults) -> AsyncIterator[Proxy]:
    # The proxy lives in a task of its own: fixtures are set up and torn down in different ones.
    started: asyncio.Queue[Proxy] = asyncio.Queue()
    over = asyncio.Event()

    async def run() -> None:
        async with faults.in_front_of(slurm.rest_url) as proxy:
            await started.put(proxy)
            await over.wait()

    task = asyncio.ensure_future(run())
    yield await started.get()
    over.set()
    await task


@asynccontextmanager
async def session_for(slurm: SlurmBed, proxy: Proxy) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"X-SLURM-USER-TOKEN": slurm.token()}
    if proxy.url.startswith("http+unix://"):
        connector: aiohttp.BaseConnector = aiohttp.UnixConnector(proxy.url.removeprefix("http+unix://"))
        url = "http://localhost"
    else:
        connector, url = aiohttp.TCPConnector(), proxy.url.replace("tcp://", "http://")
    async with aiohttp.ClientSession(url, connector=connector, headers=headers) as session:
        yield session


@pytest.fixture
async def session(slurm: SlurmBed, proxied: Proxy) -> AsyncIterator[aiohttp.ClientSession]:
    async with session_for(slurm, proxied) as session:
        yield session


async def ping(session: aiohttp.ClientSession, path: str = PING) -> int:
    async with session.get(path) as answer:
        await answer.read()
        return answer.status


def held_job(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "script": "#!/bin/sh\ntrue\n",
        "hold": True,
        "current_working_directory": "/",
        "environment": ["A=B"],
    }


async def submit(session: aiohttp.ClientSession, name: str) -> int:
    async with session.post(SUBMIT, json={"job": held_job(name)}) as answer:
        await answer.read()
        return answer.status


def jobs_named(slurm: SlurmBed, name: str) -> int:
    return len(slurm.command("squeue", "-h", f"--name={name}", "-o%i").split())


async def test_without_rules_everything_passes_and_is_recorded(
    slurm: SlurmBed, proxied: Proxy, session: aiohttp.ClientSession
) -> None:
    assert await ping(session) == 200
    assert await ping(session, "/slurm/v0.0.42/nodes/?flags=DETAIL") == 200
    assert await submit(session, "passes") == 200
    assert jobs_named(slurm, "passes") == 1
    assert proxied.seen == [
        Exchange("GET", PING, 200),
        Exchange("GET", "/slurm/v0.0.42/nodes/?flags=DETAIL", 200),
        Exchange("POST", SUBMIT, 200),
    ]
    assert proxied.count(path="*/nodes/") == 1
    assert proxied.count(method="POST") == 1


async def raw_answer(host: str, port: int, request: bytes) -> bytes:
    """Say something and return all bytes that come until the other side closes."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


async def test_what_is_no_good_http_passes_byte_for_byte(slurm: SlurmBed, proxied: Proxy) -> None:
    # Without a token, slurmrestd 26.05 begins a second answer behind its first.
    request = f"GET {PING} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    direct = await raw_answer(slurm.address, SLURMRESTD_PORT, request)
    assert direct.count(b"HTTP/1.1 401") == 2
    assert await raw_answer("127.0.0.1", proxied.port, request) == direct


async def test_a_lost_answer_is_one_to_a_request_that_was_applied(
    slurm: SlurmBed, proxied: Proxy, session: aiohttp.ClientSession
) -> None:
    proxied.lose_answer(method="POST", path="*/job/submit", times=1)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await submit(session, "lost")
    assert jobs_named(slurm, "lost") == 1
    assert proxied.seen == [Exchange("POST", SUBMIT, 200, LoseAnswer())]
    assert await submit(session, "lost") == 200
    assert jobs_named(slurm, "lost") == 2


async def test_a_request_is_held_back_and_applied_later(
    slurm: SlurmBed, proxied: Proxy, session: aiohttp.ClientSession
) -> None:
    let_go = asyncio.Event()
    proxied.hold_back(let_go, method="POST", path="*/job/submit", times=1)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await submit(session, "held-back")
    assert jobs_named(slurm, "held-back") == 0
    let_go.set()
    async with asyncio.timeout(60):
        while proxied.seen[0].status != 200:  # noqa: ASYNC110 - a record, which sends no events
            await asyncio.sleep(0.01)
    assert jobs_named(slurm, "held-back") == 1


async def test_the_proxy_answers_in_the_parts_place(
    slurm: SlurmBed, proxied: Proxy, session: aiohttp.ClientSession
) -> None:
    proxied.respond(503, path="*/ping/", times=2)
    proxied.respond(429, headers={"Retry-After": "7"}, body=b"later", method="POST", times=1)
    assert [await ping(session) for _ in range(3)] == [503, 503, 200]
    async with session.post(SUBMIT, json={"job": {"name": "never"}}) as answer:
        assert answer.status == 429
        assert answer.headers["Retry-After"] == "7"
        assert await answer.read() == b"later"
    assert jobs_named(slurm, "never") == 0
    # The connection is in good order afterwards: the body that nobody else read is gone.
    assert await ping(session) == 200


@pytest.mark.parametrize("reset", [False, True])
async def test_a_cut_before_the_request_keeps_it_from_the_part(
    slurm: SlurmBed, proxied: Proxy, session: aiohttp.ClientSession, *, reset: bool
) -> None:
    proxied.cut(method="POST", times=1, reset=reset)
    with pytest.raises(aiohttp.ClientOSError if reset else aiohttp.ServerDisconnectedError):
        await submit(session, f"cut-{reset}")
    assert jobs_named(slurm, f"cut-{reset}") == 0
    assert proxied.seen[0].status is None


@pytest.mark.parametrize("reset", [False, True])
async def test_a_cut_in_the_middle_of_the_answer_leaves_so_many_bytes(
    proxied: Proxy, session: aiohttp.ClientSession, *, reset: bool
) -> None:
    proxied.cut(after_bytes=200, path="*/ping/", times=1, reset=reset)
    reader, writer = await asyncio.open_connection("127.0.0.1", proxied.port)
    token = session.headers["X-SLURM-USER-TOKEN"]
    writer.write(f"GET {PING} HTTP/1.1\r\nHost: x\r\nX-SLURM-USER-TOKEN: {token}\r\n\r\n".encode())
    answer = await reader.readexactly(200)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    if reset:
        with pytest.raises(ConnectionResetError):
            await reader.read()
    else:
        assert await reader.read() == b""
    writer.close()
    assert await ping(session) == 200


async def test_refusing_is_being_away_until_healed(proxied: Proxy, session: aiohttp.ClientSession) -> None:
    assert await ping(session) == 200
    proxied.refuse()
    with pytest.raises(aiohttp.ClientOSError):
        await ping(session)
    for _ in range(2):
        with pytest.raises(aiohttp.ClientConnectorError) as refusal:
            await ping(session)
        assert isinstance(refusal.value.os_error, ConnectionRefusedError)
    proxied.heal()
    assert await ping(session) == 200
    assert proxied.count() == 2


async def test_who_connects_at_the_very_moment_is_let_down_too(proxied: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxied.port)) as late:
        proxied._accept()
        proxied.refuse()
        late.settimeout(60)
        assert await asyncio.to_thread(late.recv, 1) == b""


async def test_a_hung_request_is_never_answered_and_others_are(
    slurm: SlurmBed, proxied: Proxy, session: aiohttp.ClientSession
) -> None:
    proxied.hang(method="POST", times=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SILENCE):
            await submit(session, "hung")
    assert await ping(session) == 200
    assert jobs_named(slurm, "hung") == 0


async def test_an_answer_hangs_in_its_middle(proxied: Proxy, session: aiohttp.ClientSession) -> None:
    proxied.hang(after_bytes=300, times=1)
    async with session.get(PING) as answer:
        assert answer.status == 200
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SILENCE):
                await answer.read()
    assert await ping(session) == 200


async def test_frozen_requests_go_on_when_healed(
    slurm: SlurmBed, proxied: Proxy, session: aiohttp.ClientSession
) -> None:
    proxied.freeze()
    async with asyncio.TaskGroup() as group:
        frozen = group.create_task(submit(session, "frozen"))
        done, _ = await asyncio.wait([frozen], timeout=SILENCE)
        assert not done
        assert jobs_named(slurm, "frozen") == 0
        proxied.heal()
        assert await frozen == 200
    assert jobs_named(slurm, "frozen") == 1


async def test_a_delay_comes_before_the_part_is_asked(proxied: Proxy, session: aiohttp.ClientSession) -> None:
    rule = proxied.delay(SILENCE, path="*/ping/")
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await ping(session) == 200
    assert loop.time() - began >= SILENCE
    assert proxied.seen[0].fault == Delay(SILENCE)
    assert rule.used == 1
    rule.remove()
    assert await ping(session) == 200
    assert proxied.seen[1].fault is None


async def test_a_duplicated_answer_stands_twice_on_the_connection(
    slurm: SlurmBed, proxied: Proxy, session: aiohttp.ClientSession
) -> None:
    proxied.duplicate(method="POST", times=1)
    token = session.headers["X-SLURM-USER-TOKEN"]
    body = json.dumps({"job": held_job("twice")})
    reader, writer = await asyncio.open_connection("127.0.0.1", proxied.port)
    writer.write(
        f"POST {SUBMIT} HTTP/1.1\r\nHost: x\r\nX-SLURM-USER-TOKEN: {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    first = await reader.readuntil(b"\r\n\r\n")
    length = int(
        next(line for line in first.split(b"\r\n") if line.lower().startswith(b"content-length:")).split()[1]
    )
    answer = first + await reader.readexactly(length)
    assert await reader.readexactly(len(answer)) == answer
    writer.close()
    assert jobs_named(slurm, "twice") == 1


async def test_waiting_for_a_request_ends_when_it_comes(proxied: Proxy, session: aiohttp.ClientSession) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(proxied.until_seen(path="*/ping/", times=2))
        assert await ping(session) == 200
        assert not waiting.done()
        assert await ping(session) == 200
        await waiting


async def test_a_part_that_is_away_resets_its_clients(slurm_bed: Callable[..., SlurmBed], faults: Faults) -> None:
    bed = slurm_bed("26.05", nodes=0, external_nodes=1, accounting=False)
    async with faults.in_front_of(bed.rest_url) as proxy, session_for(bed, proxy) as session:
        assert await ping(session) == 200
        bed.kill("slurmrestd")
        with pytest.raises(aiohttp.ClientError):
            await ping(session)
        bed.start("slurmrestd")
        assert await ping(session) == 200


async def test_it_stands_between_unix_sockets_and_tcp(slurm: SlurmBed, faults: Faults, tmp_path: Path) -> None:
    listen_on = tmp_path / "rest.sock"
    targets = (slurm.rest_url, f"http+unix://{slurm.rest_socket}", f"unix://{slurm.rest_socket}")
    for target in targets:
        async with faults.in_front_of(target) as proxy, session_for(slurm, proxy) as session:
            assert await ping(session) == 200
    for target in targets[:2]:
        async with faults.in_front_of(target, listen_on=listen_on) as proxy, session_for(slurm, proxy) as session:
            assert await ping(session) == 200
            proxy.refuse()
            for _ in range(2):
                with pytest.raises(aiohttp.ClientOSError):
                    await ping(session)
            proxy.heal()
            assert await ping(session) == 200
        assert not listen_on.exists()


async def test_without_http_rules_are_per_connection(slurm: SlurmBed, faults: Faults) -> None:
    async with faults.in_front_of(slurm.rest_url.replace("http://", "tcp://")) as proxy:
        async with session_for(slurm, proxy) as session:
            assert [await ping(session) for _ in range(3)] == [200, 200, 200]
        assert len(proxy.seen) == 1
        for rule in (proxy.cut(), proxy.cut(after_bytes=20), proxy.cut(reset=True)):
            async with session_for(slurm, proxy) as session:
                with pytest.raises(aiohttp.ClientError):
                    await ping(session)
            assert rule.used
            rule.remove()
        proxy.hang(times=1)
        async with session_for(slurm, proxy) as session:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(SILENCE):
                    await ping(session)
        async with session_for(slurm, proxy) as session:
            assert await ping(session) == 200
        with pytest.raises(ValueError, match="respond needs a proxy that reads HTTP"):
            proxy.respond(503)
        with pytest.raises(ValueError, match="a rule for a method or path needs"):
            proxy.delay(1, path="*/ping/")


# --- TLS ---------------------------------------------------------------------------------------------------------


def tls_of(control_plane: ControlPlaneBed) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Make what clients meet, and what the proxy is to the API server: its administrator."""
    authority = control_plane.plane.authority
    server = authority.issue("fault-proxy", "fault-proxy", hosts=("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    admin = authority.issue("fault-proxy-client", "fault-proxy-client", groups=("system:masters",))
    client = ssl.create_default_context(cafile=str(authority.certificate))
    client.load_cert_chain(admin.certificate, admin.key)
    return context, client


async def test_it_reads_http_inside_tls(control_plane: ControlPlaneBed, faults: Faults) -> None:
    server_tls, part_tls = tls_of(control_plane)
    async with (
        faults.in_front_of(control_plane.url, server_tls=server_tls, part_tls=part_tls) as proxy,
        aiohttp.ClientSession(proxy.url, connector=aiohttp.TCPConnector(ssl=part_tls)) as session,
    ):
        proxy.respond(500, path="/readyz", times=1)
        assert await ping(session, "/readyz") == 500
        assert await ping(session, "/readyz") == 200
        # aiohttp itself repeats a GET whose connection it had used before, so once is not enough.
        rule = proxy.cut(path="/version")
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await ping(session, "/version")
        rule.remove()
        rule = proxy.cut(path="/version", reset=True)
        with pytest.raises(aiohttp.ClientOSError):
            await ping(session, "/version")
        rule.remove()
        assert await ping(session, "/version") == 200


async def test_a_watch_goes_silent_and_comes_back(control_plane: ControlPlaneBed, faults: Faults) -> None:
    server_tls, part_tls = tls_of(control_plane)
    maps = "/api/v1/namespaces/default/configmaps"

    async def event(answer: aiohttp.ClientResponse) -> tuple[str, str]:
        seen: Any = json.loads(await answer.content.readline())
        return seen["type"], seen["object"]["metadata"]["name"]

    async with (
        faults.in_front_of(control_plane.url, server_tls=server_tls, part_tls=part_tls) as proxy,
        aiohttp.ClientSession(proxy.url, connector=aiohttp.TCPConnector(ssl=part_tls)) as session,
        session.get(f"{maps}?watch=1&fieldSelector=metadata.name=watched") as watch,
    ):
        control_plane.kubectl("create", "configmap", "watched")
        assert await event(watch) == ("ADDED", "watched")
        proxy.freeze()
        control_plane.kubectl("delete", "configmap", "watched")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SILENCE):
                await event(watch)
        proxy.heal()
        assert await event(watch) == ("DELETED", "watched")


async def test_a_client_that_leaves_a_watch_is_left_by_the_proxy(
    control_plane: ControlPlaneBed, faults: Faults
) -> None:
    server_tls, part_tls = tls_of(control_plane)
    async with faults.in_front_of(control_plane.url, server_tls=server_tls, part_tls=part_tls) as proxy:
        async with (
            aiohttp.ClientSession(proxy.url, connector=aiohttp.TCPConnector(ssl=part_tls)) as session,
            session.get("/api/v1/namespaces?watch=1") as watch,
        ):
            assert watch.status == 200
            connections = list(proxy.connections)
            assert len(connections) == 1
        await asyncio.wait(connections, timeout=60)
        assert not proxy.connections


async def test_tls_passes_as_it_is_when_no_certificate_is_given(
    control_plane: ControlPlaneBed, faults: Faults
) -> None:
    _, part_tls = tls_of(control_plane)
    async with (
        faults.in_front_of(control_plane.url) as proxy,
        aiohttp.ClientSession(proxy.url, connector=aiohttp.TCPConnector(ssl=part_tls)) as session,
    ):
        # The certificate is the API server's own, for its own address.
        async with session.get("/readyz", server_hostname=control_plane.plane.address) as answer:
            assert answer.status == 200
        assert proxy.url.startswith("https://")
        proxy.refuse()
        with pytest.raises(aiohttp.ClientOSError):
            await session.get("/readyz", server_hostname=control_plane.plane.address)


async def test_certificates_come_in_pairs(faults: Faults) -> None:
    with pytest.raises(ValueError, match="give server_tls and part_tls together"):
        async with faults.in_front_of("https://127.0.0.1:1", part_tls=ssl.create_default_context()):
            pass


def test_wait_until_says_what_did_not_happen() -> None:
    with pytest.raises(TimeoutError, match="it is not so after 0 s that pigs fly"):
        wait_until(lambda: False, what="pigs fly", within=0)

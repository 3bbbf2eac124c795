"""What becomes of requests when the way to the API server, or the proof of who we are, breaks."""

import asyncio
import json
import ssl
import stat
from base64 import b64encode
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from isthmus.errors import Retry, Terminal
from isthmus.kube.auth import Certificate, Exec, Fixed, TokenFile
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.errors import Garbled, TooManyRequests, Unauthorized, Unavailable, Unreachable
from isthmus.kube.informer import Informer
from isthmus.kube.watch import watch
from isthmus.model.base import Kind
from isthmus.model.meta import Partial
from isthmus.model.pod import PODS
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.conftest import CONFIG_MAPS, NAMESPACES, Through, config_map, token_of
from tests.flows.kube.waiting import eventually, running

ONE = "*/namespaces/default"
CLUSTER_ROLE_BINDINGS: Kind[Partial] = Kind(
    Partial, "rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


def viewer(namespace: str) -> dict[str, Any]:
    """Let the default service account of a namespace see everything."""
    return {
        "metadata": {"name": f"viewer-{namespace}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }


async def test_a_rotated_token_is_read_when_the_old_one_is_refused(
    client: Client, config: Config, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("of-yesterday")
    credentials = TokenFile(path, clock=lambda: 0.0)  # never by age: only the 401 makes it read again
    async with Client(msgspec.structs.replace(config, credentials=credentials)) as rotating:
        with pytest.raises(Unauthorized):
            await rotating.raw("/api")
        path.write_text(await token_of(client, namespace))
        assert b"versions" in await rotating.raw("/api")


async def test_a_watch_reads_a_rotated_token_too(
    client: Client, config: Config, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("of-yesterday")
    credentials = TokenFile(path, clock=lambda: 0.0)
    await client.create(CLUSTER_ROLE_BINDINGS, viewer(namespace))
    async with Client(msgspec.structs.replace(config, credentials=credentials)) as rotating:
        await credentials.headers()
        path.write_text(await token_of(client, namespace))
        async with aclosing(watch(rotating, NAMESPACES)) as batches:
            await anext(batches)
            assert (await anext(batches)).changes
    await client.delete(CLUSTER_ROLE_BINDINGS, viewer(namespace)["metadata"]["name"])


async def test_a_renewed_certificate_is_shown_on_new_connections(
    control_plane: ControlPlaneBed, tmp_path: Path
) -> None:
    plane = control_plane.plane
    stranger = plane.etcd_authority.issue("stranger", "stranger")
    friend = plane.authority.issue("friend", "friend", groups=("system:masters",))
    chain, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    chain.write_bytes(stranger.certificate.read_bytes())
    key.write_bytes(stranger.key.read_bytes())
    certificate = Certificate(chain.read_bytes(), key.read_bytes(), chain_path=chain, key_path=key)
    ca = plane.authority.certificate.read_text()
    async with Client(Config(plane.url, Fixed(certificate=certificate), ca=ca)) as client:
        with pytest.raises((Unauthorized, Unreachable)):
            await client.raw("/api")
        chain.write_bytes(friend.certificate.read_bytes())
        key.write_bytes(friend.key.read_bytes())
        assert b"versions" in await client.raw("/api")


async def test_an_exec_plugin_is_run_again_when_its_token_expires_or_is_refused(
    client: Client, config: Config, namespace: str, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    answers = tmp_path / "answers"
    answers.mkdir()
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\ncat {answers}/now\n")
    plugin.chmod(stat.S_IRWXU)

    def answer(token: str) -> None:
        status = {"token": token, "expirationTimestamp": (now + timedelta(minutes=5)).isoformat()}
        credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        (answers / "now").write_text(json.dumps(credential))

    def runs() -> int:
        return len((tmp_path / "runs").read_text().splitlines())

    clock = [now]
    answer(await token_of(client, namespace))
    credentials = Exec(str(plugin), now=lambda: clock[0])
    async with Client(msgspec.structs.replace(config, credentials=credentials)) as plugged:
        await asyncio.gather(plugged.raw("/api"), plugged.raw("/api"), plugged.raw("/api"))
        assert runs() == 1  # together, and kept
        clock[0] = now + timedelta(minutes=6)
        answer("expired-at-the-server")
        with pytest.raises(Unauthorized):
            await plugged.raw("/api")
        assert runs() >= 2
        answer(await token_of(client, namespace))
        assert b"versions" in await plugged.raw("/api")


async def test_a_busy_server_is_asked_again_after_the_time_it_names(through: Through) -> None:
    async with through() as (proxy, config), Client(config) as client:
        proxy.respond(429, headers={"Retry-After": "1"}, path=ONE, times=1)
        clock = asyncio.get_running_loop().time
        started = clock()
        assert (await client.get(NAMESPACES, "default")).metadata.name == "default"
        assert clock() - started >= 1
        assert proxy.count(path=ONE) == 2


async def test_a_server_that_is_busy_for_long_is_the_callers_business(through: Through) -> None:
    async with through() as (proxy, config), Client(config) as client:
        proxy.respond(429, headers={"Retry-After": "120"}, path=ONE)
        with pytest.raises(TooManyRequests) as caught:
            await client.get(NAMESPACES, "default")
        assert caught.value.after == 120
        assert proxy.count(path=ONE) == 1


async def test_trouble_of_the_server_is_worth_a_retry(through: Through) -> None:
    async with through() as (proxy, config), Client(config) as client:
        proxy.respond(500, body=b"oops", path=ONE, times=1)
        with pytest.raises(Unavailable, match="oops"):
            await client.get(NAMESPACES, "default")
        proxy.respond(503, path=ONE, times=1)
        with pytest.raises(Unavailable):
            await client.get(NAMESPACES, "default")


async def test_no_answer_is_unreachable(through: Through) -> None:
    async with through() as (proxy, config):
        async with Client(config, timeout=0.3) as client:
            hung = proxy.hang(path=ONE)
            with pytest.raises(Unreachable):
                await client.get(NAMESPACES, "default")
            hung.remove()
            proxy.cut(after_bytes=40, path=ONE)
            with pytest.raises(Unreachable):
                await client.get(NAMESPACES, "default")
        proxy.refuse()
        async with Client(config) as client:
            with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
                await client.get(NAMESPACES, "default")


async def test_a_write_whose_answer_is_lost_is_not_sent_twice(
    client: Client, namespace: str, through: Through
) -> None:
    async with through() as (proxy, config), Client(config) as behind:
        proxy.lose_answer(method="POST", times=1)
        with pytest.raises(Unreachable):
            await behind.create(CONFIG_MAPS, config_map(namespace, "once"))
        assert proxy.count(method="POST") == 1
    assert (await client.get(CONFIG_MAPS, f"{namespace}/once"))["metadata"]["name"] == "once"


async def test_a_connection_that_broke_while_it_rested_is_replaced_for_reading_only(
    namespace: str, through: Through
) -> None:
    async with through() as (proxy, config), Client(config) as client:
        await client.raw("/version")
        proxy.cut(path=ONE, times=1)
        assert (await client.get(NAMESPACES, "default")).metadata.name == "default"
        assert proxy.count(path=ONE) == 2
        proxy.cut(method="POST", times=1)
        with pytest.raises(Unreachable):
            await client.create(CONFIG_MAPS, config_map(namespace, "perhaps"))
        assert proxy.count(method="POST") == 1


async def test_an_answer_that_comes_twice_is_taken_once(through: Through) -> None:
    async with through() as (proxy, config), Client(config) as client:
        proxy.duplicate(path=ONE, times=1)
        for _ in range(2):
            assert (await client.get(NAMESPACES, "default")).metadata.name == "default"
        assert b"gitVersion" in await client.raw("/version")


async def test_an_answer_that_is_no_object_is_garbled(through: Through) -> None:
    async with through() as (proxy, config), Client(config) as client:
        proxy.respond(200, body=b"<html>log in first</html>", path=ONE)
        with pytest.raises(Garbled):
            await client.get(NAMESPACES, "default")


async def test_a_server_of_another_authority_is_not_trusted(control_plane: ControlPlaneBed, config: Config) -> None:
    stranger = control_plane.plane.etcd_authority.certificate.read_text()
    async with Client(msgspec.structs.replace(config, ca=stranger)) as client:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await client.raw("/version")


async def test_tls_can_be_told_the_name_or_to_look_away(control_plane: ControlPlaneBed, config: Config) -> None:
    address = control_plane.url.removeprefix("https://").rpartition(":")[0]
    wrong = msgspec.structs.replace(config, tls_server_name="elsewhere.example")
    right = msgspec.structs.replace(config, tls_server_name=address)
    blind = msgspec.structs.replace(config, ca=None, insecure=True)
    async with Client(wrong) as client:
        with pytest.raises(Unreachable):
            await client.raw("/version")
    for trusting in (right, blind):
        async with Client(trusting) as client:
            assert b"gitVersion" in await client.raw("/version")


async def test_at_most_so_many_requests_run_at_once(through: Through) -> None:
    async with through() as (proxy, config), Client(config, parallel=3) as client:
        held = proxy.hang(path=ONE)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.get(NAMESPACES, "default")) for _ in range(8)]
            await proxy.until_seen(path=ONE, times=3)
            # A request that is not held gets through only when a place is free.
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await client.raw("/version")
            assert proxy.count(path=ONE) == 3
            held.remove()
            for task in tasks:
                task.cancel()


async def test_the_token_is_in_no_error(through: Through, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with through(Fixed.token("very-secret")) as (proxy, config), Client(config) as client:
        with pytest.raises(Unauthorized) as refused:
            await client.raw("/api")
        proxy.refuse()
        with pytest.raises(Unreachable) as unreachable:
            await client.raw("/api")
    told = f"{refused.value!r}{refused.value}{unreachable.value!r}{unreachable.value}{client!r}{config!r}"
    assert "very-secret" not in told + caplog.text


async def test_credentials_that_cannot_be_had_say_why(config: Config, tmp_path: Path) -> None:
    async with Client(msgspec.structs.replace(config, credentials=Exec(str(tmp_path / "missing")))) as client:
        with pytest.raises(Terminal, match="missing"):
            await client.raw("/api")
    async with Client(msgspec.structs.replace(config, credentials=TokenFile(tmp_path / "none"))) as client:
        with pytest.raises(Retry, match="none"):
            await client.raw("/api")


async def test_requests_are_told_to_the_observer(config: Config, namespace: str) -> None:
    told: list[tuple[str, int]] = []
    async with Client(config, observe=lambda method, code, _seconds: told.append((method, code))) as client:
        await client.list(PODS, namespace=namespace)
    assert told == [("GET", 200)]


async def test_a_closed_client_says_so(config: Config) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Client(config).raw("/api")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_requests_and_watches_go_through_a_proxy(
    config: Config, control_plane: ControlPlaneBed, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Through a proxy that connects: our TLS runs end to end, within that of the proxy if it has one."""
    # The proxy's certificate is vouched for by the machine, and not by the cluster.
    authority = control_plane.plane.etcd_authority
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    pair = authority.issue("proxy", "proxy", hosts=("127.0.0.1",))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    asked: list[bytes] = []
    ended: list[bool] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b"\r\n")[0])
        host, _, port = head.split()[1].decode().rpartition(":")
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(reader, upstream_writer))
            group.create_task(pump(upstream_reader, writer))
        ended.append(True)

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls if scheme == "https" else None) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(msgspec.structs.replace(config, proxy=f"{scheme}://127.0.0.1:{port}")) as client:
            assert (await client.get(NAMESPACES, "default")).metadata.name == "default"
            assert len(await client.raw("/openapi/v2")) > 1 << 20, "many records at once"
            async with running(Informer(client, NAMESPACES)) as informer:
                assert len(informer.store) > 0
        await eventually(lambda: len(ended) == len(asked))
    address = config.server.removeprefix("https://").encode()
    assert set(asked) == {b"CONNECT " + address + b" HTTP/1.1"}


async def test_a_proxy_that_refuses_is_named(config: Config) -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        proxy = f"http://me:p%40ss@127.0.0.1:{port}"
        async with Client(msgspec.structs.replace(config, proxy=proxy)) as client:
            with pytest.raises(Unreachable, match=rf"proxy 127\.0\.0\.1:{port} responds with HTTP 407") as refused:
                await client.raw("/version")
    assert b64encode(b"me:p@ss") in asked[0]
    assert "p@ss" not in str(refused.value)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()

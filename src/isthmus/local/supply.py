"""What a cluster is made of, ready to use: binaries and images, built side by side where the cache lacks them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from isthmus.local import binaries
from isthmus.local.binaries import MODULES
from isthmus.local.images import build, store
from isthmus.local.images.build import Image
from isthmus.local.parallel import together
from isthmus.local.progress import Progress
from isthmus.local.state import Settings

PROGRAMS = ("etcd", *MODULES["kubernetes"].programs)
# Images that hold nothing but one of our built programs.
OF_ONE_PROGRAM = frozenset({"coredns", "jobset", "lws"})


@dataclass(frozen=True)
class Supply:
    """Programs by name, the images of a cluster, and the store that has them unpacked."""

    programs: dict[str, Path]
    images: list[Image]
    store: store.Store


def image_names(slurm: str) -> tuple[str, ...]:
    """The images that every node of a cluster has from the start."""
    return ("pause", "coredns", f"slurm-{slurm}", f"login-{slurm}", "mariadb", "isthmus")


def programs(settings: Settings, progress: Progress) -> dict[str, Path]:
    """The programs of a cluster's nodes."""
    return binaries.ensure(PROGRAMS, progress, given=given(settings))


def given(settings: Settings) -> Path | None:
    """The directory of ready binaries that the user named."""
    return Path(settings.binaries) if settings.binaries else None


def images(names: Iterable[str], progress: Progress, *, ready: Path | None = None) -> list[Image]:
    """Build images. Compiling keeps the processors busy, Debian packages the network: both go on at once."""
    wanted = list(names)
    found: dict[str, Path] = {}

    def build_programs() -> None:
        needed = OF_ONE_PROGRAM.intersection(wanted)
        if needed:
            found.update(binaries.ensure(needed, progress, given=ready))

    from_debian = [name for name in wanted if name not in OF_ONE_PROGRAM]
    together([build_programs, lambda: build.build(from_debian, progress)])
    return build.build(wanted, progress, binaries=found)


def prepare(settings: Settings, progress: Progress) -> Supply:
    """Everything for a cluster."""
    built: list[Image] = []
    found: dict[str, Path] = {}

    def build_images() -> None:
        built.extend(images(image_names(settings.slurm), progress, ready=given(settings)))

    together([lambda: found.update(programs(settings, progress)), build_images])
    return Supply(found, built, store.ensure(built, progress))

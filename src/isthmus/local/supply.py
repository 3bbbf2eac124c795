"""What a cluster is made of, ready to use: binaries and images, built side by side where the cache lacks them."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from isthmus.errors import Terminal
from isthmus.local import binaries, host
from isthmus.local.architecture import Architecture
from isthmus.local.binaries import MODULES
from isthmus.local.images import build, emulation, store
from isthmus.local.images.build import Image
from isthmus.local.images.recipes import running
from isthmus.local.parallel import together
from isthmus.local.progress import Progress
from isthmus.local.state import Settings

PROGRAMS = ("etcd", *MODULES["kubernetes"].programs)
# Images that hold nothing but one of our built programs.
OF_ONE_PROGRAM = frozenset({"coredns", "jobset", "lws", "metrics-server"})
MONITORING = ("prometheus", "metrics-server")


@dataclass(frozen=True)
class Supply:
    """Programs by name, the images of a cluster, and the store that has them unpacked."""

    programs: dict[str, Path]
    images: list[Image]
    store: store.Store


def image_names(slurm: str, *, monitoring: bool = False) -> tuple[str, ...]:
    """The images that every node of a cluster has from the start."""
    always = ("pause", "coredns", f"slurm-{slurm}", f"login-{slurm}", "mariadb", "isthmus")
    return (*always, *MONITORING) if monitoring else always


def programs(settings: Settings, progress: Progress) -> dict[str, Path]:
    """The programs of a cluster's nodes."""
    return binaries.ensure(PROGRAMS, progress, given=given(settings))


def given(settings: Settings) -> Path | None:
    """The directory of ready binaries that the user named."""
    return Path(settings.binaries) if settings.binaries else None


def images(
    names: Iterable[str],
    progress: Progress,
    *,
    ready: Path | None = None,
    architecture: Architecture | None = None,
) -> list[Image]:
    """Build images. Compiling keeps the processors busy, Debian packages the network: both go on at once."""
    wanted = list(names)
    found: dict[str, Path] = {}

    def build_programs() -> None:
        needed = OF_ONE_PROGRAM.intersection(wanted)
        if needed:
            found.update(binaries.ensure(needed, progress, given=ready, architecture=architecture))

    from_debian = [name for name in wanted if name not in OF_ONE_PROGRAM]
    together([build_programs, lambda: build.build(from_debian, progress, architecture=architecture)])
    return build.build(wanted, progress, binaries=found, architecture=architecture)


def images_for(
    names: Iterable[str], progress: Progress, architecture: Architecture
) -> tuple[list[Image], Terminal | None]:
    """Build images for an architecture that need not be this machine's, as far as that is possible here.

    Images whose making runs programs of their own need an emulator. When there can be none, the others are built,
    and an error is returned that names what was left out, and why.
    """
    wanted = [build.recipe_of(name) for name in names]
    left = {recipe.name: running(recipe.layer) for recipe in wanted if running(recipe.layer)}
    with ExitStack() as stack:
        obstacle: Terminal | None = None
        if left:
            try:
                host.ensure_packages(progress, also=emulation.needed(architecture))
                stack.enter_context(emulation.lent(architecture))
            except Terminal as error:
                obstacle = _left_out(left, architecture, error)
        possible = [recipe.name for recipe in wanted if not (obstacle and recipe.name in left)]
        return images(possible, progress, architecture=architecture), obstacle


def _left_out(left: Mapping[str, list[str]], architecture: Architecture, why: Terminal) -> Terminal:
    lines = "".join(f"\n    {image}: {', '.join(layers)}" for image, layers in left.items())
    return Terminal(
        f"these images are not built for {architecture.name}. The layers named run programs while they are made, to"
        f" configure packages or to compile:{lines}\n{why.what}",
        remedy=why.remedy,
    )


def prepare(settings: Settings, progress: Progress) -> Supply:
    built: list[Image] = []
    found: dict[str, Path] = {}

    def build_images() -> None:
        names = image_names(settings.slurm, monitoring=settings.monitoring)
        built.extend(images(names, progress, ready=given(settings)))

    together([lambda: found.update(programs(settings, progress)), build_images])
    return Supply(found, built, store.ensure(built, progress))

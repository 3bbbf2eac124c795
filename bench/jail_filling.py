"""Filling a shared root from the login image, beside `tar | tar` on the same disk."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.local.images import cache, layers
from isthmus.local.progress import PlainProgress
from tests.bed.slurm import VERSIONS

_COPYING = "tar -C {image} -c . | tar -C {root} -x && sync -f {root}"
_FILLING = f"{Path(sys.executable).with_name('isthmus')} jail populate --source={{image}} --root={{root}}"


def medians(rounds: int) -> tuple[float, float]:
    """Fill empty roots by tar and by us, in turns: the seconds of each until all was on the disk.

    The image is in the page cache for both. What we do besides, reading everything back from the disk, counts.
    """
    taken: dict[str, list[float]] = {_COPYING: [], _FILLING: []}
    with _login_image() as (image, scratch):
        subprocess.run(["tar", "-C", image, "-cf", "/dev/zero", "."], check=True)
        for number in range(rounds):
            for command in reversed(taken) if number % 2 else taken:
                taken[command].append(_filled(command, image, scratch / "root"))
    return statistics.median(taken[_COPYING]), statistics.median(taken[_FILLING])


@contextmanager
def _login_image() -> Iterator[tuple[Path, Path]]:
    """Mount the login image, as an image volume is, beside a directory on the same disk."""
    tree = layers.ensure(f"login-spank-{VERSIONS[0]}", PlainProgress())
    with tempfile.TemporaryDirectory(dir=cache.directory()) as name:
        image = Path(name) / "image"
        image.mkdir()
        layered = f"ro,lowerdir={layers.overlay_order(tree)}"
        subprocess.run(["mount", "-t", "overlay", "-o", layered, "overlay", image], check=True)
        try:
            yield image, Path(name)
        finally:
            subprocess.run(["umount", image], check=True)


def _filled(command: str, image: Path, root: Path) -> float:
    root.mkdir()
    os.sync()
    begun = time.perf_counter()
    subprocess.run(["sh", "-c", command.format(image=image, root=root)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begun
    shutil.rmtree(root)
    return seconds

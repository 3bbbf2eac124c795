"""Builds what the tests stand on, side by side, before the first test: python -m tests.bed.prepare

A test that had to compile Kubernetes would run into its time-out; and while the compiler keeps the processors busy,
the images can wait for the network.
"""

from isthmus.local import binaries, crds, host, supply
from isthmus.local.images import store
from isthmus.local.images.recipes import IMAGES, SLURMS
from isthmus.local.parallel import together
from isthmus.local.progress import PlainProgress, Progress
from tests.bed import chromium, device_drivers, monitor_kinds, rootfs
from tests.bed.programs import given

_PROGRAMS = (*supply.PROGRAMS, "helm", "crictl")
_ROOTS = (*(f"{it}-{version}" for it in ("slurm", "spank-tools") for version in SLURMS), "mariadb", "prometheus")


def prepare(progress: Progress) -> None:
    """Build all that the cache lacks."""
    host.check_system()
    host.ensure_packages(progress, also=chromium.PACKAGES)
    ready = given()
    from_debian = [name for name in IMAGES if name not in supply.OF_ONE_PROGRAM]

    def from_packages() -> None:
        supply.images(from_debian, progress)
        for root in _ROOTS:
            rootfs.ensure(root, progress)

    def from_modules() -> None:
        binaries.ensure({*_PROGRAMS, *supply.OF_ONE_PROGRAM}, progress, given=ready)
        crds.ensure(crds.DEFINITIONS, progress, given=ready)
        monitor_kinds.files(progress=progress)
        device_drivers.programs(progress)

    together([from_modules, from_packages])
    store.ensure(supply.images(IMAGES, progress, ready=ready), progress)


if __name__ == "__main__":
    prepare(PlainProgress())

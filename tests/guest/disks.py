"""The guest's disks, as images of ext4 file systems that `mkfs.ext4 -d` fills without mounting anything.

    system    Debian 12 and the cache of Isthmus, on one file system: nodes are made by hard links into the cache
    project   this checkout as it is now, and a virtual environment with the packages of requirements.lock

Debian comes from the mirror that apt-get on this machine is set up with, and Python packages from pip's index. The
guest has no network. Both parts of the system disk are kept, by what went into them.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from isthmus.local import binaries, host, supply
from isthmus.local.images import apt, blobs, cache, store
from isthmus.local.images.build import Image
from isthmus.local.images.enclosure import run_enclosed
from isthmus.local.paths import cache_dir
from isthmus.local.progress import Progress
from isthmus.local.shell import run
from tests.bed.programs import given

ROOT: Final = Path(__file__).parents[2]
PLACE: Final = Path("/srv/isthmus")
"""Of the checkout in the guest."""

CACHE: Final = Path("/var/cache")
"""XDG_CACHE_HOME in the guest: on the same file system as the clusters' state."""

SLURM: Final = "26.05"
_SUITE: Final = "bookworm"
_SYSTEM_SIZE: Final = "20G"
_PROJECT_SIZE: Final = "1G"

# A server as the installer leaves it, and what `isthmus up` would install: the guest has no mirror.
_PACKAGES: Final = (
    *("linux-image-cloud-amd64", "systemd-sysv", "dbus", "python3", "openssh-client", "openssh-server", "cron"),
    *host.PACKAGES,
)

# Nothing that comes up by itself, at a time of its own: it would show as a trace of the cluster.
_MASKED: Final = ("apt-daily.timer", "apt-daily-upgrade.timer", "containerd.service", "e2scrub_all.timer")

_UNIT: Final = f"""\
[Unit]
Description=Steps of make guest
After=multi-user.target
RequiresMountsFor={PLACE}
SuccessAction=poweroff
FailureAction=poweroff

[Service]
Type=exec
WorkingDirectory={PLACE}
Environment=HOME=/root XDG_CACHE_HOME={CACHE}
ExecStart={PLACE}/.venv/bin/python -m tests.guest.steps
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS1
"""

_FILES: Final = {
    "etc/fstab": f"LABEL=system / ext4 defaults 0 0\nLABEL=project {PLACE} ext4 defaults 0 0\n",
    "etc/hostname": "guest\n",
    "etc/hosts": "127.0.0.1 localhost guest\n",
    "etc/resolv.conf": "",
    "etc/apt/sources.list": "",
    "etc/systemd/system/isthmus-guest.service": _UNIT,
}


def home() -> Path:
    """Where disks are kept."""
    path = cache_dir() / "guest"
    path.mkdir(parents=True, exist_ok=True)
    return path


def system(progress: Progress) -> Path:
    """Return the directory with the system disk `disk`, its `vmlinuz` and its `initrd.img`."""
    debian = _debian(progress)
    ready = supply.images(supply.image_names(SLURM), progress, ready=given())
    programs = binaries.ensure((*supply.PROGRAMS, "coredns", "helm"), progress, given=given())
    kept = store.ensure(ready, progress)
    contents = ([image.digest for image in ready], sorted(map(str, programs.values())))
    key = cache.key_of(debian.name, *contents, _FILES, _MASKED, _SYSTEM_SIZE)
    made = home() / f"system-{key}"
    if (made / "disk").exists():
        return made
    with progress.step("System disk of the guest"), cache.replacing(made) as unfinished:
        for old in home().glob("system-*"):
            if old != unfinished:
                cache.remove(old)
        tree = unfinished / "tree"
        _link(debian / "tree", tree)
        _configure(tree)
        _fill_cache(tree / CACHE.relative_to("/") / "isthmus", programs, ready, kept)
        for name in ("vmlinuz", "initrd.img"):
            shutil.copyfile(next((debian / "tree" / "boot").glob(f"{name}-*")), unfinished / name)
        _format(tree, unfinished / "disk", label="system", size=_SYSTEM_SIZE)
        shutil.rmtree(tree)
    return made


@contextmanager
def project(directory: Path, progress: Progress) -> Iterator[Path]:
    """Make the project disk, which is gone after the block."""
    wheels = _wheels(progress)
    disk, tree = directory / "project", directory / "tree"
    with progress.step("Project disk of the guest"):
        words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = run(words, cwd=ROOT).split("\0")
        for name in (name for name in names if name and (ROOT / name).is_file()):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
        _write_environment(tree / ".venv", wheels)
        _format(tree, disk, label="project", size=_PROJECT_SIZE)
        shutil.rmtree(tree)
    try:
        yield disk
    finally:
        disk.unlink()


def _debian(progress: Progress) -> Path:
    """Make a Debian that boots."""
    made = home() / f"debian-{cache.key_of(_SUITE, _PACKAGES)}"
    if (made / "tree").exists():
        return made
    with progress.step(f"Debian {_SUITE} for the guest"), cache.replacing(made) as unfinished:
        tree = unfinished / "tree"
        words = ("mmdebstrap", "--mode=root", "--variant=important", f"--include={','.join(_PACKAGES)}")
        options = ('--aptopt=Acquire::Languages "none"', '--aptopt=APT::Install-Recommends "false"')
        run_enclosed(
            [*words, *options, _SUITE, str(tree), apt.mirror()], "make a Debian system for the guest", env={}
        )
        for scrap in (*tree.glob("var/cache/apt/archives/*.deb"), *tree.glob("var/lib/apt/lists/*_*")):
            scrap.unlink()
    return made


def _configure(tree: Path) -> None:
    """Say which disks there are, and what runs when the guest has booted."""
    for name, text in _FILES.items():
        (tree / name).unlink(missing_ok=True)  # it is a link to the one that is kept
        (tree / name).write_text(text)
    units = tree / "etc/systemd/system"
    links = dict.fromkeys(_MASKED, "/dev/null")
    links["multi-user.target.wants/isthmus-guest.service"] = "../isthmus-guest.service"
    for name, target in links.items():
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to(target)


def _fill_cache(target: Path, programs: dict[str, Path], images: list[Image], kept: store.Store) -> None:
    """Copy what `isthmus up` looks for. Of layers, that is the record only: the store has what is in them."""
    source = cache_dir()
    for directory in {path.parent for path in programs.values()}:
        _link(directory, target / directory.relative_to(source))
    with cache.locked("store"):
        root = target / kept.root.relative_to(source)
        _link(kept.root.parent, root.parent)
        # Whoever brings more images into the store writes these in place.
        for database in store._DATABASES:
            (root / database).unlink()
            shutil.copyfile(kept.root / database, root / database)
    _link(source / "images" / "records", target / "images" / "records")
    (target / "images" / "blobs").mkdir()
    for blob in {blob for image in images for blob in image.blobs}:
        path = blobs.path_of(blob)
        (target / path.relative_to(source)).hardlink_to(path)
    for record in (source / "images" / "layers").glob("*/layer.json"):
        layer = target / record.parent.relative_to(source)
        (layer / "tree").mkdir(parents=True)
        shutil.copyfile(record, layer / "layer.json")


def _link(source: Path, target: Path) -> None:
    """Copy a tree by hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    run(["cp", "--archive", "--link", source, target])


def _wheels(progress: Progress) -> Path:
    """Install the locked packages for the guest's Python, which need not be ours."""
    lock = ROOT / "requirements.lock"
    made = home() / f"wheels-{cache.key_of(lock.read_text())}"
    if made.exists():
        return made
    with progress.step("Python packages for the guest"), cache.replacing(made) as unfinished:
        words = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target")
        options = ("--no-deps", "--no-compile", "--require-hashes", "--only-binary", ":all:")
        platform = ("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64")
        python = ("--implementation", "cp", "--python-version", "3.11")
        run([*words, unfinished, *options, *platform, *python, "--requirement", lock])
    return made


def _write_environment(venv: Path, wheels: Path) -> None:
    """Write a virtual environment as `python3 -m venv` would make it in the guest."""
    packages = venv / "lib/python3.11/site-packages"
    packages.parent.mkdir(parents=True)
    (venv / "bin").mkdir()
    _link(wheels, packages)
    (packages / "isthmus.pth").write_text(f"{PLACE}/src\n")
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    for name in ("python", "python3"):
        (venv / "bin" / name).symlink_to("/usr/bin/python3")
    script = venv / "bin" / "isthmus"
    script.write_text(f"#!{PLACE}/.venv/bin/python\nfrom isthmus.cli.main import main\n\nmain()\n")
    script.chmod(0o755)


def _format(tree: Path, disk: Path, *, label: str, size: str) -> None:
    tree.chmod(0o755)
    environ = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    words = ("mkfs.ext4", "-q", "-F", "-L", label, "-E", "root_owner=0:0", "-d", tree, disk, size)
    subprocess.run(words, check=True, env=environ)

"""Whether a tree is the root of an image that jobs can live in, and what to do if it is not."""

from collections.abc import Collection
from typing import Final

# What every shared root needs, and what it is for.
_COMMAND: Final = "usr/bin/sbatch"
_PLUGIN: Final = "/isthmus_jail.so"
_ACCOUNTS: Final = "etc/passwd"
_PROGRAMS: Final = {
    "bash": "Isthmus's programs could not be started in it",
    "setpriv": "users could not log in with their own permissions",
    "sshd": "users could no longer log in",
}
"""Programs of the root itself that login nodes and workers start, and what would follow without them."""
_DIRECTORIES: Final = ("usr/bin", "usr/sbin", "bin", "sbin")
RELEASE: Final = "usr/lib/os-release"
"""What a Linux says that it is."""
_REMEDY: Final = "use the login image of the cluster's Slurm version, or one made from it"


def unfit(paths: Collection[str]) -> tuple[str, str] | None:
    """What is wrong with an image that has these paths, and the remedy; None if it is fit.

    Linear in the number of paths.
    """
    if not paths:
        return "it is empty", "mount the image there: an image volume of the pod, or an unpacked root file system"
    if _ACCOUNTS not in paths:
        if repository := _restic(paths):
            return (
                f"it holds no root file system but a backup of one, a restic repository in /{repository}",
                "such images of Soperator unpack themselves by a program of their own; here the image is a root "
                "file system itself: " + _REMEDY,
            )
        return f"it is not a root file system: it has no /{_ACCOUNTS}", _REMEDY
    if _COMMAND not in paths:
        return f"it has no Slurm: there is no /{_COMMAND}", _REMEDY
    if not any(path.endswith(_PLUGIN) for path in paths):
        return "its Slurm cannot run jobs in it: it has no isthmus_jail.so", _REMEDY
    lacks = next((it for it in _PROGRAMS if not any(f"{place}/{it}" in paths for place in _DIRECTORIES)), None)
    return (f"it has no {lacks}: {_PROGRAMS[lacks]}", _REMEDY) if lacks else None


def essential(path: str) -> bool:
    """Whether a root without this path would be none, so that it must not be said to be ready."""
    return path in {"usr", "usr/bin", "etc", _ACCOUNTS, _COMMAND} or path.endswith(_PLUGIN)


def _restic(paths: Collection[str]) -> str:
    """Find a restic repository, which always has these directories."""
    for path in paths:
        if path.rpartition("/")[2] == "snapshots":
            where = path.removesuffix("snapshots")
            if all(where + name in paths for name in ("data", "index", "keys")):
                return where.rstrip("/")
    return ""

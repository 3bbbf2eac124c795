"""Whole root file systems in a directory, for running the real Slurm without any container."""

from pathlib import Path

from isthmus.local.images import cache, enclosure, layers
from isthmus.local.progress import Progress

# The empty directory is there because an overlay wants two layers at least.
_FLATTEN = """
    mount -t overlay overlay "$MERGED" -o "ro,lowerdir=$LOWER:$EMPTY"
    cp --archive --reflink=auto "$MERGED" "$TARGET"
"""


def ensure(name: str, progress: Progress) -> Path:
    """Return the root file system of a layer and all below it, made now if need be.

    It is shared by everyone on this machine: mount an overlay over it, or bind what must be written.
    """
    top = layers.ensure(name, progress)
    final = cache.directory("roots") / f"{name}-{top.key}"
    root = final / "root"
    if _whole(final):
        return root
    with cache.locked(f"root-{final.name}"):
        if _whole(final):
            return root
        top = layers.ensure(name, progress, verify=True)
        with progress.step(f"Root file system {name}"), cache.replacing(final) as partial:
            for scratch in ("merged", "empty"):
                (partial / scratch).mkdir()
            enclosure.run_enclosed(
                ["sh", "-eu", "-c", _FLATTEN],
                f"make the root file system {name}",
                env={
                    "LOWER": layers.overlay_order(top),
                    "EMPTY": str(partial / "empty"),
                    "MERGED": str(partial / "merged"),
                    "TARGET": str(partial / "root"),
                },
            )
            (partial / "usr").write_text(layers.fingerprint(partial / "root" / "usr"))
    return root


def _whole(final: Path) -> bool:
    """Whether nothing is lost below /usr, which no daemon writes to."""
    try:
        return (final / "usr").read_text() == layers.fingerprint(final / "root" / "usr")
    except OSError:
        return False

"""How what is in the root differs from what we put there, and whether a user or the storage did it."""

from typing import Literal

from isthmus.domain.sharedroot.entry import Entry

Verdict = Literal["as it was", "changed", "owner or mode changed", "replaced", "removed", "damaged"]


def judge(listed: Entry, root: Entry | None) -> Verdict:
    """Compare a path with the manifest; a file must have been read.

    Who writes to a file changes its time. Content that differs while size and time do not is damaged.
    """
    if root is None:
        return "removed"
    if root.kind != listed.kind:
        return "replaced"
    if not root.same_content(listed):
        return "damaged" if root.kind == "file" and root.same_look(listed) else "changed"
    return "as it was" if _same_owner(listed, root) else "owner or mode changed"


def _same_owner(listed: Entry, root: Entry) -> bool:
    # Extended attributes are left out: not every file system keeps them.
    return listed.kind == "symlink" or (listed.mode, listed.uid, listed.gid) == (root.mode, root.uid, root.gid)

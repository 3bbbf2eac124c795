"""What is done with one path, given what the image has, what the root has, and what we once wrote.

    image      root                      what is done
    ─────────────────────────────────────────────────────────────────────────────
    there      not there                 place it; unless a user removed it, and not a run of ours that was killed
    there      the same                  nothing, or only owner and mode
    there      what we wrote             replace it
    there      what a user wrote         keep it; lay the image's new version beside it, if it is new
    not there  what we wrote             remove it
    not there  what a user wrote         keep it

Users' changes of owner and mode are kept on their own, whatever becomes of the content.
"""

from typing import Final, Literal

import msgspec

from isthmus.domain.sharedroot import accounts
from isthmus.domain.sharedroot.entry import Entry
from isthmus.domain.sharedroot.known import Known

Action = Literal["leave", "place", "replace", "beside", "merge", "attributes", "remove"]

BESIDE: Final = ".isthmus-new"
"""What the image's version is called when a user's is kept."""

# A newer image must not change the identity of the machine.
_IDENTITY: Final = frozenset({"etc/machine-id", "etc/hostname", "var/lib/dbus/machine-id"})
_HOST_KEYS: Final = "etc/ssh/ssh_host_"
_SETUID_SETGID: Final = 0o6000

REMOVED_BY_USERS: Final = "removed by users"
CHANGED_BY_USERS: Final = "changed by users"
NOT_OURS: Final = "not ours"
IDENTITY: Final = "part of the machine's identity"
IN_THE_WAY: Final = "not a directory, where the image has one"


class Step(msgspec.Struct, frozen=True, gc=False):
    """What is done with one path. `goal` is what the path is to be afterwards, where it is changed."""

    path: str
    action: Action
    goal: Entry | None = None
    root: Entry | None = None
    origin: str = ""
    """Where the image has it, if it has it elsewhere."""
    why: str = ""
    """Why something is kept that is not as the image has it; empty where there is nothing to report."""
    image: Entry | None = None
    """What the image has, where `goal` has an owner or a mode that a user gave it."""

    def noted(self, entry: Entry) -> Entry:
        """Give what the journal says of an entry that is put there: what a user gave it is not noted as ours."""
        if self.image is None:
            return entry
        ours = {name: getattr(self.image, name) for name in ("mode", "uid", "gid", "xattrs")}
        return msgspec.structs.replace(entry, **ours)


def image_must_be_read(image: Entry, root: Entry | None, known: Known) -> bool:
    """Whether the decision needs the content of the image's file: when there is something to compare it with."""
    return image.kind == "file" and (root is not None or known.listed is not None)


def root_must_be_read(image: Entry | None, root: Entry | None, known: Known) -> bool:
    """Whether the decision needs the content of the root's file, once the image's was read."""
    if root is None or root.kind != "file":
        return False
    if image is None or image.kind != "file" or image.leader:
        return True
    if image.same(known.listed) and not known.begun:
        return False  # the image has nothing new: whatever is there stays
    # An earlier run read it back when it put it there. But it may not have come to that, and versions of a file can
    # have the same size and time: images that are built reproducibly have one time for everything.
    others = [it for it in known.written if not image.same(it)]
    mistakable = any(root.same_look(it) or image.same_content(it) for it in others)
    return mistakable or not any(image.same(it) and root.same_look(it) for it in known.written)


def decide(image: Entry | None, root: Entry | None, known: Known) -> Step:  # noqa: C901, PLR0911 - the table above, row by row
    """Decide what is done with a path that the image has, or that we once wrote."""
    if image is None:
        return _without_image(root, known)
    path = image.path
    if root is None:
        if known.listed is not None and not known.removed:
            return Step(path, "leave", why=REMOVED_BY_USERS)
        return Step(path, "place", goal=image)
    if image.kind == "file" and not root_must_be_read(image, root, known) and root.kind == "file":
        return Step(path, "leave", goal=image, root=root)
    goal = _with_kept_attributes(image, root, known)
    if image.same_content(root):
        action: Action = "leave" if goal.same_attributes(root) else "attributes"
        return Step(path, action, goal=goal, root=root, image=image)
    if _is_identity(path):
        return Step(path, "leave", root=root, why=IDENTITY)
    if path in accounts.FILES and root.kind == image.kind == "file":
        return Step(
            path, "leave" if image.same_content(known.listed) else "merge", goal=goal, root=root, image=image
        )
    if known.holds(root):
        return Step(path, "replace", goal=goal, root=root, image=image)
    if image.kind == "directory":
        return Step(path, "leave", root=root, why=IN_THE_WAY)
    if image.same_content(known.listed):
        return Step(path, "leave", root=root)
    why = CHANGED_BY_USERS if known.listed else NOT_OURS
    return Step(path, "beside", goal=image, root=root, why=why)


def restore(image: Entry, root: Entry | None) -> Step:
    """Decide about a path that is to be restored from the image, whatever became of it. Both were read."""
    path = image.path
    if root is None:
        return Step(path, "place", goal=image)
    if path in accounts.FILES or _is_identity(path):
        return Step(path, "leave", root=root, why=IDENTITY)
    if image.same_content(root):
        return Step(path, "leave" if image.same_attributes(root) else "attributes", goal=image, root=root)
    if "directory" in {image.kind, root.kind}:
        return Step(path, "leave", root=root, why=IN_THE_WAY)
    return Step(path, "replace", goal=image, root=root)


def _without_image(root: Entry | None, known: Known) -> Step:
    entry = known.listed or known.begun[-1]
    if root is None:
        return Step(entry.path, "leave")
    if _is_identity(entry.path) or entry.path in accounts.FILES or entry.path == "home":
        return Step(entry.path, "leave", root=root, why=IDENTITY)
    if known.holds(root):
        return Step(entry.path, "remove", root=root)
    return Step(entry.path, "leave", root=root, why=CHANGED_BY_USERS)


def _is_identity(path: str) -> bool:
    return path in _IDENTITY or path.startswith(_HOST_KEYS)


def _with_kept_attributes(image: Entry, root: Entry, known: Known) -> Entry:
    """Give what the image has the owner and mode that a user gave it, if any."""
    if image.kind == "symlink" or root.kind != image.kind:
        return image
    if not known.written:
        # It was there before us: a user may need it.
        return msgspec.structs.replace(image, mode=root.mode, uid=root.uid, gid=root.gid, xattrs=root.xattrs)
    modes = {it.mode for it in known.written}
    if known.begun:
        modes |= {mode & ~_SETUID_SETGID for mode in modes}  # a new owner takes them away, until the mode is set
    xattrs = {pair for it in known.written for pair in it.xattrs.items()}
    return msgspec.structs.replace(
        image,
        mode=image.mode if root.mode in modes else root.mode,
        uid=image.uid if root.uid in {it.uid for it in known.written} else root.uid,
        gid=image.gid if root.gid in {it.gid for it in known.written} else root.gid,
        xattrs=image.xattrs if root.xattrs.items() <= xattrs else root.xattrs,
    )

"""The users of a cluster as files, which every slurmctld, worker and login pod mounts at one place.

    /var/lib/extrausers/passwd, group, shadow    read by the name service, at each look-up
    /var/lib/extrausers/NAME.authorized_keys     read by sshd of login pods, at each login

So a user who is added can log in and run jobs as soon as kubelet has refreshed the files, which it is told to do at
once: nothing is restarted.
Passwords are locked; people come in by key.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from isthmus.domain.operator import partnames, sshkeys
from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.manifests.common import Manifest
from isthmus.domain.operator.sshkeys import Keys
from isthmus.model.slinky import Controller, User

DIRECTORY: Final = "/var/lib/extrausers"
VOLUME: Final = "slurm-users"
KEYS_SUFFIX: Final = ".authorized_keys"

SUDO_GROUP: Final = "slurm-sudo"
"""Its members may become root on login pods. A group of its own, because that of an image cannot be extended."""
_SUDO_GID: Final = 64040

_FIRST_GROUP: Final = 61000
_GROUPS: Final = 3000
"""Numbers of groups that have a name only: taken from the name, so that they are the same forever."""

_OF_IMAGES: Final = frozenset(
    {"root", "daemon", "bin", "sys", "adm", "sudo", "nobody", "nogroup", "munge", "mysql", "sshd", "slurm"}
    | {"slurmrestd", "sssd", SUDO_GROUP}
)
"""Names that images give to users and groups of their own: there they would count, and ours would not."""


class Roster(msgspec.Struct, frozen=True):
    """The files, and what of the specification could not be followed."""

    files: Mapping[str, str]
    problems: tuple[str, ...] = ()


def users_configmap(controller: Controller, given: Mapping[str, str | None] | None = None) -> Manifest:
    """Make the ConfigMap; `given` is what the Secrets of `sshKeysSecretRef` hold, by user."""
    meta = controller.metadata
    marks = common.labels("users", meta.name, "controller", cluster=meta.name)
    files = roster(controller.spec.users, given or {}).files
    return common.configmap(partnames.users(meta.name), meta.namespace, marks, files)


def volume(controller: str) -> Manifest:
    """Make the volume; it is there before the ConfigMap is."""
    return {"name": VOLUME, "configMap": {"name": partnames.users(controller), "optional": True}}


def mount() -> Manifest:
    """Make the mount, which is the same in every pod."""
    return {"name": VOLUME, "mountPath": DIRECTORY, "readOnly": True}


def roster(users: Iterable[User], given: Mapping[str, str | None]) -> Roster:
    """Write the files of these users. Users that cannot be written are left out, and named."""
    asked = tuple(users)
    problems = list(_clashes(asked))
    kept = [user for user in asked if not _own_trouble(user)]
    problems += [trouble for user in asked if (trouble := _own_trouble(user))]
    kept = list({user.uid: user for user in reversed(kept)}.values())[::-1]

    groups, named = _groups(kept)
    files = {
        "passwd": _lines(f"{it.name}:x:{it.uid}:{_gid(it)}::/home/{it.name}:{it.shell}" for it in kept),
        "shadow": _lines(f"{it.name}:*:19000:0:99999:7:::" for it in kept),
        "group": _lines(groups),
    }
    problems += named
    for user in kept:
        keys = _keys(user, given)
        files[f"{user.name}{KEYS_SUFFIX}"] = _lines(keys.lines)
        problems += keys.problems
    return Roster(files, tuple(problems))


def _clashes(users: tuple[User, ...]) -> Iterable[str]:
    for uid, count in Counter(user.uid for user in users).items():
        if count > 1:
            names = [user.name for user in users if user.uid == uid]
            yield f"users {', '.join(names)} have the same uid {uid}; only {names[0]} is created"


def _own_trouble(user: User) -> str:
    if user.name in _OF_IMAGES:
        return f"user {user.name} is not created: the name is a system user"
    text = f"{user.name}{user.shell}"
    if ":" in text or not text.isprintable():
        return f"user {user.name!r} is not created: name and shell must not contain a colon or line break"
    return ""


def _gid(user: User) -> int:
    return user.uid if user.gid is None else user.gid


def _groups(users: list[User]) -> tuple[list[str], list[str]]:
    """Write a group for each number that users have first, and for each name that they are in besides."""
    primary = {_gid(user): user.name for user in reversed(users)}
    by_name = {name: gid for gid, name in primary.items()}
    members: dict[str, list[str]] = {name: [] for name in sorted(by_name)}
    problems: list[str] = []
    taken = set(primary) | {_SUDO_GID}
    for user in users:
        for name in user.groups:
            if name in _OF_IMAGES or ":" in name or not name.isprintable():
                hint = "; use sudo: true" if name == "sudo" else ""
                problems.append(f"user {user.name} is not added to the system group {name!r}{hint}")
                continue
            if name not in by_name:
                gid = _number(name)
                if gid in taken:
                    problems.append(f"group {name} is not created: another group has its gid {gid}; rename one")
                    continue
                taken.add(gid)
                by_name[name] = gid
            members.setdefault(name, []).append(user.name)
    lines = [f"{name}:x:{by_name[name]}:{','.join(members[name])}" for name in members]
    powerful = [user.name for user in users if user.sudo]
    return [*lines, f"{SUDO_GROUP}:x:{_SUDO_GID}:{','.join(powerful)}"], problems


def _number(group: str) -> int:
    return _FIRST_GROUP + int.from_bytes(hashlib.sha256(group.encode()).digest()[:4], "big") % _GROUPS


def _keys(user: User, given: Mapping[str, str | None]) -> Keys:
    own = sshkeys.read("\n".join(user.ssh_public_keys), where=f"sshPublicKeys of user {user.name}")
    reference = user.ssh_keys_secret_ref
    if reference is None:
        return own
    place = f"key {reference.key!r} of Secret {reference.name}"
    text = given.get(user.name)
    if text is None:
        missing = f"user {user.name} gets no keys from a Secret: {place} does not exist"
        return own + Keys(problems=() if reference.optional else (missing,))
    return own + sshkeys.read(text, where=place)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)

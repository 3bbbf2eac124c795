"""Which files JailedConfigs of a cluster come to, from the ConfigMaps that they name.

members(configs, group)     who is written together, and read by Slurm together: one aggregation
files_of(config, found)     its files, checked; or what is wrong
taken(config, configs)      whether an older JailedConfig writes one of its files already
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.operator.jailedconfigs import paths
from isthmus.errors import Terminal
from isthmus.model.jailedconfig import JailedConfig
from isthmus.model.objects import ConfigMap

_MODES: Final = range(0o1000)
_READ_BY_OWNER: Final = 0o400


class File(msgspec.Struct, frozen=True):
    """A file as it is to be on the shared root, where it belongs to root."""

    path: str
    content: bytes
    mode: int


def group(config: JailedConfig) -> tuple[str, str]:
    """With which others it is written: those of the same cluster with the same key, or none."""
    meta = config.metadata
    key = meta.labels.get(names.AGGREGATION_LABEL, "")
    # Names of objects and values of labels cannot begin with a slash, so that no key is some config's name.
    return meta.labels.get(names.INSTANCE_LABEL, ""), f"/{key}" if key else meta.name


def members(configs: Iterable[JailedConfig], wanted: tuple[str, str]) -> list[JailedConfig]:
    """Find those that go together, the oldest first."""
    found = (it for it in configs if group(it) == wanted and it.metadata.deletion_timestamp is None)
    return sorted(found, key=_age)


def files_of(config: JailedConfig, found: ConfigMap) -> tuple[File, ...]:
    """Make the files of a JailedConfig; raises what is wrong, with what to do."""
    spec = config.spec
    if not spec.items:
        raise Terminal("no items are listed", remedy="list items: each key needs the path of its file")
    made: dict[str, File] = {}
    for item in spec.items:
        paths.parts(item.path)
        mode = spec.default_mode if item.mode is None else item.mode
        if mode not in _MODES or not mode & _READ_BY_OWNER:
            raise Terminal(
                f"mode {mode:04o} of {item.path} is not valid", remedy="use 0400 to 0777, readable by root"
            )
        if item.path in made:
            raise Terminal(f"path {item.path} is listed twice", remedy="remove one of them")
        made[item.path] = File(item.path, _content(item.key, found), mode)
    return tuple(made.values())


def hash_of(files: Sequence[File]) -> str:
    """Make a hash of all that files are; the order of items does not matter."""
    written = [[it.path, it.mode, hashlib.sha256(it.content).hexdigest()] for it in files]
    return hashlib.sha256(msgspec.json.encode(sorted(written))).hexdigest()[:16]


def taken(config: JailedConfig, configs: Iterable[JailedConfig]) -> str:
    """Which of its paths an older JailedConfig has already: two that write one file would undo each other."""
    mine = {item.path for item in config.spec.items}
    older = (it for it in configs if it.metadata.deletion_timestamp is None and _age(it) < _age(config))
    for other in sorted(older, key=_age):
        both = sorted(mine & {item.path for item in other.spec.items})
        if both:
            return f"{both[0]} is written by the older JailedConfig {other.metadata.name}"
    return ""


def _content(key: str, found: ConfigMap) -> bytes:
    if key in found.data:
        return found.data[key].encode()
    if key in found.binary_data:
        return found.binary_data[key]
    there = ", ".join(sorted((*found.data, *found.binary_data))[:20]) or "none"
    raise Terminal(
        f"ConfigMap {found.metadata.name} has no key {key}",
        remedy=f"add it, or name another (existing keys: {there})",
    )


def _age(config: JailedConfig) -> tuple[str, str]:
    made = config.metadata.creation_timestamp
    return (made.isoformat() if made else "", config.metadata.name)

"""Files that users bring: further configuration files, and scripts around jobs."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from isthmus.domain.languages.slurmconf import ConfigError

_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_KEYS: Final = ("slurm.key", "slurm.jwks", "jwt.key", "jwks.json", "munge.key")
_OURS: Final = frozenset({"slurm.conf", "slurmdbd.conf", *_KEYS})


class Scripts(msgspec.Struct, frozen=True, kw_only=True):
    """The names of scripts that run around jobs, on nodes and beside slurmctld."""

    prolog: tuple[str, ...] = ()
    epilog: tuple[str, ...] = ()
    prolog_slurmctld: tuple[str, ...] = ()
    epilog_slurmctld: tuple[str, ...] = ()


def checked_files(sources: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """Put the files of several ConfigMaps together, given with their names; refuse what does not fit together."""
    found: dict[str, str] = {}
    origin: dict[str, str] = {}
    for source, data in sources:
        for file, content in sorted(data.items()):
            if file in _OURS or not _FILE.fullmatch(file):
                raise ConfigError(
                    f"ConfigMap {source} has a file {file[:60]!r}, which is not allowed",
                    remedy=(
                        "put settings of slurm.conf into extraConf, and keys into the Secrets that the spec names"
                    ),
                )
            if found.get(file, content) != content:
                raise ConfigError(
                    f"ConfigMaps {origin[file]} and {source} both have a file {file}, and they differ",
                    remedy="rename one of them",
                )
            found[file] = content
            origin[file] = source
    return found

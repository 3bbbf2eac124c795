"""The part of slurm.conf that users write themselves (`extraConf`): it counts, and stays as they wrote it.

Three things are done with it. Settings of ours that it sets too are left out. Lists that must hold an entry of
ours (`SlurmctldParameters` and the like) get it added, in the line that the user wrote. And what would cut the
cluster in two, such as another name of slurmctld, is refused with the name of the field to use instead.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from isthmus.domain.languages import slurmconf
from isthmus.domain.languages.slurmconf import Config, ConfigError, Directive, Line

_DECLARATIONS: Final = frozenset({"nodename", "partitionname", "nodeset", "downnodes", "switchname"})
"""Lines that declare an object: what follows in them are its settings, not those of the cluster."""

_DECIDED_ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "clustername": "use spec.clusterName",
        "slurmctldhost": "use spec.ha",
        "slurmctldaddr": "use spec.service",
        "slurmctldport": "use spec.service.port, which is the port outside of the pod",
        "slurmdport": "leave it out: workers listen on 6818",
        "statesavelocation": "use spec.persistence",
        "slurmuser": "leave it out: slurmctld runs as slurm",
        "authtype": "use spec.authType",
        "credtype": "use spec.authType",
        "accountingstoragehost": "use spec.accountingRef",
        "accountingstorageport": "use spec.accountingRef",
    }
)


class Extra(msgspec.Struct, frozen=True):
    """What the user wrote, read."""

    config: Config = Config()

    @classmethod
    def read(
        cls, text: str, *, name: str = "extraConf", instead: Mapping[str, str] = _DECIDED_ELSEWHERE
    ) -> "Extra":
        """Read the text; raises ConfigError with the line that is wrong.

        `name` is the field that it stands in, and `instead` says which fields beside it decide what it must not.
        """
        extra = cls(slurmconf.parse(text, name=name))
        for key in sorted(extra.keys & _DECIDED_ELSEWHERE.keys()):
            raise ConfigError(
                f"{name} sets {key}, which the operator manages",
                remedy=instead.get(key, "leave it out"),
            )
        return extra

    @property
    def keys(self) -> frozenset[str]:
        """The settings of the cluster that it sets, in lower case."""
        found: set[str] = set()
        for line in self.config.directives():
            settings = line.settings[:1] if line.key.lower() in _DECLARATIONS else line.settings
            found.update(key.rstrip("-*+/").lower() for key, _ in settings)
        return frozenset(found)

    def declares(self, kind: str) -> bool:
        """Whether it has a line of this kind, such as PartitionName."""
        return next(self.config.directives(kind), None) is not None

    def with_required(self, required: Mapping[str, Iterable[str]]) -> tuple[Line, ...]:
        """Give its lines, with entries that lists must hold added where the user set those lists."""
        wanted = {key.lower(): tuple(options) for key, options in required.items()}
        return tuple(
            _with_options(line, wanted) if isinstance(line, Directive) and _sets(line, wanted) else line
            for line in self.config.lines
        )


def joined(value: str, required: Iterable[str]) -> str:
    """Add options (`name` or `name=value`) to a list. Ours count where both set one; the user's keep their case."""
    ours = tuple(required)
    if not ours:
        return value
    names = {_name(option) for option in ours}
    theirs = [option for option in value.split(",") if option and _name(option) not in names]
    return ",".join((*ours, *theirs))


def _name(option: str) -> str:
    return option.partition("=")[0].strip().lower()


def _sets(line: Directive, wanted: Mapping[str, object]) -> bool:
    return line.key.lower() not in _DECLARATIONS and any(key.lower() in wanted for key, _ in line.settings)


def _with_options(line: Directive, wanted: Mapping[str, tuple[str, ...]]) -> Line:
    settings = tuple((key, joined(value, wanted.get(key.lower(), ()))) for key, value in line.settings)
    return line if settings == line.settings else Directive(settings)

"""Files on the shared root of a cluster, from a ConfigMap: the kind JailedConfig of slurm.nebius.ai.

Fields are soperator's. Two processes tell how it is, each with its own part of the status: `sconfigcontroller`,
which writes the files, and the operator, which lets Slurm read them.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from isthmus.model.base import Data, Kind
from isthmus.model.meta import ObjectMeta
from isthmus.model.schema import Rule, keyed_by, rules
from isthmus.model.slinky import Conditions
from isthmus.model.soperator import GROUP

DEFAULT_MODE: Final = 0o644
RECONFIGURE: Final = "Reconfigure"

_Mode = Annotated[int, Meta(ge=0, le=0o777)]
_Path = Annotated[
    str,
    Meta(min_length=2, max_length=1024),
    rules(
        Rule("self.startsWith('/')", "a path starts with /: it is a path in the shared root"),
        Rule(
            "!self.matches('(^|/)[.]{1,2}(/|$)|//|/$|[[:cntrl:]]')",
            "a path has no empty part, no . and no .., no control characters, and does not end with /",
        ),
        Rule(
            "!self.matches('^/([.]isthmus|proc|sys|dev)(/|$)')",
            "nothing is written into /.isthmus, /proc, /sys and /dev",
        ),
    ),
]


class ConfigMapReference(Data, frozen=True):
    """The ConfigMap that the files are from."""

    name: Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]


class Item(Data, frozen=True):
    """A key of the ConfigMap, and the file that it becomes."""

    key: Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    path: _Path
    """Where the file is in the shared root: absolute, through directories and not through symbolic links."""
    mode: _Mode | None = None
    """Who may read, write and run it; without it, defaultMode."""


class JailedConfigSpec(Data, frozen=True):
    """The files to write."""

    config_map: ConfigMapReference
    items: Annotated[tuple[Item, ...], Meta(max_length=256), keyed_by("path")] = ()
    """Which keys become which files. There is no place that keys go to by themselves, so it cannot be empty."""
    default_mode: _Mode = DEFAULT_MODE
    update_actions: Annotated[tuple[Literal["Reconfigure"], ...], Meta(max_length=1)] = ()
    """What is done when files have changed. Reconfigure: slurmctld and all nodes read their configuration again."""


class JailedConfigStatus(Data, frozen=True):
    """Progress of the files and of Slurm."""

    files_hash: str = ""
    """Hash of the files on the shared root. It decides whether Slurm has to read them again."""
    files: tuple[str, ...] = ()
    """The files on the shared root."""
    reconfigured_hash: str = ""
    """Hash of the files for which Slurm was last reconfigured."""
    reconfigured_at: str = ""
    """Time of that reconfiguration."""
    observed_generation: int = 0
    """Which specification UpdateActionsCompleted is about; each condition has its own, too."""
    conditions: Conditions = ()


class JailedConfig(Data, frozen=True):
    """Files on the shared root of a cluster, from a ConfigMap."""

    spec: Annotated[
        JailedConfigSpec,
        rules(
            Rule(
                "has(self.items) && size(self.items) > 0",
                "list items: each key needs the path of its file, such as /opt/slurm_scripts/prolog.sh",
                field_path=".items",
            )
        ),
    ]
    metadata: ObjectMeta = field(default=ObjectMeta())
    status: JailedConfigStatus = JailedConfigStatus()


JAILED_CONFIGS = Kind(JailedConfig, f"{GROUP}/v1alpha1", "jailedconfigs", "JailedConfig")

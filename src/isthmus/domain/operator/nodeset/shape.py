"""The size of a NodeSet's Slurm nodes: what their pods get, and never more.

    resources of the pod     limits cpu: 3500m, memory: 8Gi, nvidia.com/gpu: 2
    extraConf                Weight=10 Feature=fast
    the line for slurmd      CPUs=3 RealMemory=8192 Gres=gpu:2 Features=fast,workers Weight=10

What extraConf says goes before what follows from resources. What neither says, slurmd finds out by itself. The line
is one argument of slurmd and is never seen by a shell; still, nothing can stand in it but words of Slurm.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from isthmus.domain.languages import gresnames, quantity
from isthmus.domain.operator import partnames
from isthmus.errors import Terminal
from isthmus.model.base import Data
from isthmus.model.slinky import NodeSet
from isthmus.model.slurm import Node as SlurmNode

CONTAINER: Final = "slurmd"

_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*", re.ASCII)
_VALUE: Final = re.compile(r"[A-Za-z0-9_.,:/@%+*()\[\]-]+", re.ASCII)
_FEATURE: Final = re.compile(r"[A-Za-z0-9_.:/@%+=-]+", re.ASCII)
_GRES: Final = re.compile(r"(?P<name>[A-Za-z][\w.-]*(?::[A-Za-z][\w.-]*)*)(?::(?P<count>[0-9]+)[KMG]?)?(?:\(.*\))?")
_MIB: Final = 1 << 20
_WORDS: Final = 8192
"""The longest line: far below what the kernel takes as one argument."""

PARTS_OF_GPUS: Final = frozenset({"shard", "mps"})
_OURS: Final = frozenset({"nodename", "nodehostname"})
_CPU_KEYS: Final = frozenset({"cpus", "boards", "sockets", "socketsperboard", "corespersocket", "threadspercore"})


class Shape(Data, frozen=True):
    """What slurmd reports to slurmctld about its node; None is what slurmd finds out by itself."""

    cpus: int | None = None
    memory: int | None = None
    """In MiB."""
    gres: tuple[tuple[str, str], ...] = ()
    """Names (with types) and how many there are."""
    features: tuple[str, ...] = ()
    further: tuple[tuple[str, str], ...] = ()
    """The rest of extraConf, in its order."""

    def conf(self) -> str:
        """Write the line for slurmd."""
        words = []
        if self.cpus is not None:
            words.append(f"CPUs={self.cpus}")
        if self.memory is not None:
            words.append(f"RealMemory={self.memory}")
        if self.gres:
            words.append(f"Gres={self.gres_text}")
        if self.features:
            words.append(f"Features={','.join(self.features)}")
        words.extend(f"{key}={value}" for key, value in self.further)
        return " ".join(words)

    @property
    def gres_text(self) -> str:
        """Write the GRES as Slurm does."""
        return ",".join(f"{name}:{count}" if count else name for name, count in self.gres)

    def fits(self, record: SlurmNode) -> bool:
        """Whether a record that Slurm has kept is of this shape.

        slurmctld keeps the record of a node that comes back as it was, whatever slurmd says of itself then.
        """
        if self.cpus is not None and record.cpus != self.cpus:
            return False
        if self.memory is not None and record.real_memory != self.memory:
            return False
        if not set(self.features) <= set(record.features):
            return False
        return _counts(self.gres_text) == _counts(record.gres)


def shape_of(nodeset: NodeSet) -> Shape:
    """Read a NodeSet; raises `Terminal` for what Slurm could not take."""
    given = tokens(nodeset.spec.extra_conf)
    keys = {key.lower() for key, _ in given}
    resources = resources_of(nodeset)
    features = [partnames.slurm_nodeset(nodeset)]
    gres: dict[str, str] = _gres(resources, {it.resource: it.gres for it in nodeset.spec.devices if it.gres})
    further = []
    for key, value in given:
        match key.lower():
            case "feature" | "features":
                features.extend(value.split(","))
            case "gres":
                said = dict(_named_gres(value))
                # The same devices with their types, such as gpu:a100:4, are not there twice.
                names = {it.partition(":")[0] for it in said}
                gres = {it: count for it, count in gres.items() if it.partition(":")[0] not in names} | said
            case _:
                further.append((key, value))
    return Shape(
        cpus=None if keys & _CPU_KEYS else _cpus(resources),
        memory=None if "realmemory" in keys else _memory(resources),
        gres=tuple(sorted(gres.items())),
        features=tuple(sorted({_feature(it) for it in features if it})),
        further=tuple(further),
    )


def tokens(extra_conf: str) -> list[tuple[str, str]]:
    """Read extraConf: words of the form Key=Value, each key once."""
    if len(extra_conf) > _WORDS:
        raise Terminal(f"extraConf is longer than {_WORDS} characters", remedy="leave out what is default")
    found: list[tuple[str, str]] = []
    seen: set[str] = set()
    for word in extra_conf.split():
        key, equals, value = word.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise Terminal(
                f"extraConf has {word[:60]!r}, which is not Key=Value",
                remedy="write settings of a NodeName line, such as Weight=10 Feature=fast, without quotes",
            )
        name = {"feature": "features"}.get(key.lower(), key.lower())
        if name in _OURS:
            raise Terminal(f"extraConf sets {key}, which follows from the pod's name", remedy=f"remove {key}")
        if name in seen and name != "features":
            raise Terminal(f"extraConf sets {key} twice", remedy="keep one of them")
        seen.add(name)
        found.append((key, value))
    return found


def resources_of(nodeset: NodeSet) -> Mapping[str, str]:
    """Find what the slurmd container has of each resource: a limit, of its own or the pod's, else a request."""
    spec = nodeset.spec
    template = spec.template.spec
    container: Mapping[str, Any] = next(
        (it for it in template.get("containers") or () if it.get("name") == CONTAINER), {}
    )
    found: dict[str, str] = {}
    for kind in ("requests", "limits"):
        for given in (template, container, spec.slurmd):
            resources = (given.get("resources") or {}).get(kind) or {}
            found |= {key: str(value) for key, value in resources.items()}
    return found


def _cpus(resources: Mapping[str, str]) -> int | None:
    """Count whole CPUs: half a CPU that Slurm gave away would be taken from another job."""
    if "cpu" not in resources:
        return None
    cpus = quantity.parse(resources["cpu"]) // quantity.ONE
    if cpus < 1:
        raise Terminal(
            f"the slurmd container has {resources['cpu']} CPUs, and Slurm cannot use less than one",
            remedy="set resources.limits.cpu of slurmd to 1 or more",
        )
    return cpus


def _memory(resources: Mapping[str, str]) -> int | None:
    if "memory" not in resources:
        return None
    memory = quantity.parse(resources["memory"]) // quantity.ONE // _MIB
    if memory < 1:
        raise Terminal(
            f"the slurmd container has {resources['memory']} of memory, and Slurm counts in MiB",
            remedy="set resources.limits.memory of slurmd to 64Mi or more",
        )
    return memory


def _gres(resources: Mapping[str, str], further: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, int] = {}
    for resource, amount in resources.items():
        name = gresnames.gres_of(resource, further)
        if name:
            found[name] = found.get(name, 0) + quantity.parse(amount) // quantity.ONE
    return {name: str(count) for name, count in found.items() if count}


def _named_gres(text: str) -> Iterable[tuple[str, str]]:
    for word in text.split(","):
        found = _GRES.fullmatch(word)
        if found is None:
            raise Terminal(
                f"extraConf has Gres={text[:60]}, of which {word[:40]!r} is not a valid GRES",
                remedy="write name:count or name:type:count, such as gpu:a100:4",
            )
        name, colon, count = word.rpartition(":")
        counted = colon and count[:1].isdigit()
        yield (name, count) if counted else (word, "")


def _feature(text: str) -> str:
    if not _FEATURE.fullmatch(text):
        raise Terminal(
            f"{text[:40]!r} is not a valid feature", remedy="use letters, digits, dots, dashes and underscores"
        )
    return text


def _counts(gres: str) -> dict[str, int]:
    """Count GRES by name and type; Slurm adds sockets, as in gpu:2(S:0), and leaves out a count of one.

    It also gives parts of GPUs the types of these: shard:6 becomes shard:a100:6.
    """
    found: dict[str, int] = {}
    for word in filter(None, re.sub(r"\([^)]*\)", "", gres).split(",")):
        name, colon, count = word.rpartition(":")
        counted = colon and count.isdigit()
        key = name if counted else word
        if (first := key.partition(":")[0]) in PARTS_OF_GPUS:
            key = first
        found[key] = found.get(key, 0) + (int(count) if counted else 1)
    return found

"""When Slurm has to read files of JailedConfigs, and whether all daemons have.

    files written ──► (others of the aggregation, too) ──► told to read ──► slurmctld has ──► every node has
                                                           hash and time
                                                           in the status

What is compared is content: a hash that Slurm was told to read once is never a reason to tell it again. It is
written down before Slurm is told. Who is stopped in between finds that slurmctld has not read anything since, and
tells it then.

slurmd is restarted when it reads its configuration, and tells when that was. So a node `owes` until that time
has grown; its clock may go wrong as it likes. A node that is away owes, too, but nothing waits for it: it
reads everything when it starts, and if it comes back without having been started, it is told again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from isthmus.domain.kube import conditions
from isthmus.domain.languages import hostlist
from isthmus.domain.operator.jailedconfigs.files import group
from isthmus.model.jailedconfig import RECONFIGURE, JailedConfig
from isthmus.model.meta import Condition, condition
from isthmus.model.slurm import Node

WRITTEN: Final = "FilesWritten"
COMPLETED: Final = "UpdateActionsCompleted"

TIMEOUT: Final = 300.0
TELL_AGAIN: Final = 15.0
"""Seconds after which nodes that have not read anything are reconfigured again."""

_FAILURES: Final = {WRITTEN: {"NotFound", "NotWritten"}, COMPLETED: {"NotTaken", "Refused"}}
_SHOWN: Final = 200
_AWAY: Final = frozenset({"DOWN", "FUTURE", "POWERED_DOWN", "POWERING_DOWN"})
_SILENT: Final = frozenset({"NOT_RESPONDING", "UNKNOWN"})


class Slurm(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a cluster; times are seconds since 1970 on our clock, except those of nodes."""

    now: float
    trouble: str = ""
    """Why Slurm cannot be asked; empty if it can."""
    read_at: float | None = None
    """When slurmctld last read its configuration; None if it did not say."""
    nodes: Mapping[str, Node] = {}
    with_pod: frozenset[str] = frozenset()
    """Names of nodes whose pod is ready: they are not away, whatever slurmctld thinks."""
    owing: Mapping[str, int] = {}
    """Nodes that are not known to have read it, with the time of their last start at the reconfigure."""
    told_at: float | None = None
    """When this process last reconfigured Slurm."""
    refusal: str = ""
    """What Slurm answered, if that was an error."""
    timeout: float = TIMEOUT


class NewStatus(msgspec.Struct, frozen=True):
    """The new status of one JailedConfig."""

    completed: Condition
    hash: str = ""
    at: str = ""


class Plan(msgspec.Struct, frozen=True):
    told: Mapping[str, NewStatus]
    """By the names of JailedConfigs."""
    reconfigure: bool = False
    under_way: bool = False
    """Whether to look again soon."""


def due(configs: Iterable[JailedConfig]) -> frozenset[tuple[str, str]]:
    """Find whose files Slurm has to read: names, and hashes. Empty while a part of an aggregation is missing."""
    return frozenset(
        (it.metadata.name, it.status.files_hash)
        for together in _groups(configs)
        if _asks(together) and all(_is_written(it) for it in together)
        for it in together
        if it.status.files_hash != it.status.reconfigured_hash
    )


def is_unfinished(configs: Iterable[JailedConfig]) -> bool:
    """Whether Slurm has to be asked how far it is."""
    return any(it.status.reconfigured_hash and not _is_complete(it) for it in configs)


def plan(configs: Iterable[JailedConfig], slurm: Slurm, *, start: bool) -> Plan:
    """Decide about all JailedConfigs of one cluster. `start`: whether what is due may begin now."""
    mine = list(configs)
    last = max((seconds(it.status.reconfigured_at) for it in mine), default=0.0)
    behind = [name for name in slurm.owing if _runs(slurm.nodes[name], slurm)]
    steps: dict[str, _Step] = {}
    for together in _groups(mine):
        missing = next((it for it in together if not _is_written(it)), None)
        for it in together:
            if not _asks(together):
                step = _Step(NewStatus(conditions.yes(COMPLETED, "MissingAction", "no updateActions are set")))
            elif not _is_written(it):
                step = _Step(kept(it, _waits_for_files(it)))
            elif it.status.files_hash == it.status.reconfigured_hash:
                step = _followed(it, slurm, behind, last=last)
            elif missing:
                step = _Step(kept(it, _waits_for(missing)))
            else:
                step = _begun(it, slurm, start=start)
            steps[it.metadata.name] = step
    return Plan(
        {name: step.told for name, step in steps.items()},
        reconfigure=any(step.tell for step in steps.values()),
        under_way=any(step.under_way for step in steps.values()),
    )


def owing(nodes: Mapping[str, Node], *, told_at: float | None = None, only_away: bool = False) -> dict[str, int]:
    """The nodes that still have to read: all, or (`told_at`) those that did not start since.

    External nodes read nothing. What never was started has read nothing yet that could be old.
    """
    return {
        name: _started(node)
        for name, node in nodes.items()
        if "EXTERNAL" not in node.state
        and _started(node)
        and (told_at is None or _started(node) <= int(told_at))
        and not (only_away and _AWAY.isdisjoint(node.state))
    }


def still_owing(before: Mapping[str, int], nodes: Mapping[str, Node]) -> dict[str, int]:
    """Drop nodes that were started in the meantime, and nodes that are gone."""
    return {name: start for name, start in before.items() if name in nodes and _started(nodes[name]) <= start}


class _Step(msgspec.Struct, frozen=True):
    """The status of one JailedConfig, whether to reconfigure Slurm, and whether to look again soon."""

    told: NewStatus
    tell: bool = False
    under_way: bool = False


def _begun(config: JailedConfig, slurm: Slurm, *, start: bool, why: str = "") -> _Step:
    """Begin with a change for which Slurm, or one of its nodes, has not been reconfigured."""
    if slurm.trouble:
        return _Step(kept(config, conditions.unknown(COMPLETED, "OutOfTouch", slurm.trouble)))
    if not start:
        text = "files have changed; Slurm is reconfigured shortly"
        return _Step(kept(config, conditions.no(COMPLETED, "Refresh", text)), under_way=True)
    at = datetime.fromtimestamp(slurm.now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = f"slurmctld and all nodes are being reconfigured{why}"
    told = NewStatus(conditions.no(COMPLETED, "Refresh", text), config.status.files_hash, at)
    return _Step(told, tell=True, under_way=True)


def _followed(config: JailedConfig, slurm: Slurm, behind: list[str], *, last: float) -> _Step:
    """Follow a reconfigure."""
    since = seconds(config.status.reconfigured_at)
    if _is_complete(config):
        if since < last or not behind:
            return _Step(kept(config, _same(config)))
        return _begun(config, slurm, start=True, why=f": these restarted without it: {_listed(behind)}")
    if slurm.trouble:
        return _Step(kept(config, conditions.unknown(COMPLETED, "OutOfTouch", slurm.trouble)))
    waited = slurm.now - (since if slurm.told_at is None else slurm.told_at)
    is_read = _is_read(slurm, since)
    if is_read and not behind:
        return _Step(kept(config, _success(slurm)))
    reason = "NotTaken" if slurm.now - since >= slurm.timeout else "Refresh"
    again = waited >= TELL_AGAIN
    if slurm.refusal:
        reason, text = "Refused", f"Slurm did not reread its configuration: {slurm.refusal}"
    elif not is_read:
        text = "slurmctld has not read it yet"
        # Only we tell it.
        again = again or slurm.told_at is None
    else:
        text = f"{len(behind)} of {_count(slurm)} nodes have not loaded it yet: {_listed(behind)}"
        silent = [name for name in behind if not _SILENT.isdisjoint(slurm.nodes[name].state)]
        if silent:
            text += f"; not responding: {_listed(silent)}"
        again = again and len(silent) < len(behind)
    return _Step(kept(config, conditions.no(COMPLETED, reason, text)), tell=again, under_way=True)


def _is_read(slurm: Slurm, since: float) -> bool:
    """Whether slurmctld has read its configuration since then; its times have whole seconds.

    What was told by us in that second was told after it. Who was not there cannot know, and tells once more.
    """
    return slurm.read_at is not None and slurm.read_at >= int(since) + (slurm.told_at is None)


def _runs(node: Node, slurm: Slurm) -> bool:
    return node.name in slurm.with_pod or _AWAY.isdisjoint(node.state)


def _success(slurm: Slurm) -> Condition:
    away = [name for name in slurm.owing if not _runs(slurm.nodes[name], slurm)]
    count = _count(slurm) - len(away)
    text = f"slurmctld and {count} nodes have read it"
    if away:
        text += f"; absent ones read it when they start: {_listed(away)}"
    return conditions.yes(COMPLETED, "Success", text)


def _count(slurm: Slurm) -> int:
    return sum("EXTERNAL" not in node.state for node in slurm.nodes.values())


def _listed(nodes: list[str]) -> str:
    folded = hostlist.fold(nodes)
    return folded if len(folded) <= _SHOWN else f"{folded[:_SHOWN]}…"


def kept(config: JailedConfig, completed: Condition) -> NewStatus:
    """A new condition about an earlier reconfigure."""
    return NewStatus(completed, config.status.reconfigured_hash, config.status.reconfigured_at)


def _same(config: JailedConfig) -> Condition:
    found = condition(config.status.conditions, COMPLETED)
    return found or conditions.unknown(COMPLETED, "Init")


def _waits_for_files(config: JailedConfig) -> Condition:
    written = condition(config.status.conditions, WRITTEN)
    if written is None or written.observed_generation < config.metadata.generation:
        return conditions.no(COMPLETED, "Init", "waits for sconfigcontroller to write the files")
    return conditions.no(COMPLETED, written.reason, "its files are not written; see condition FilesWritten")


def _waits_for(other: JailedConfig) -> Condition:
    name = other.metadata.name
    return conditions.no(
        COMPLETED, "Refresh", f"waits for JailedConfig {name} of the same aggregation, whose files are not written"
    )


def _groups(configs: Iterable[JailedConfig]) -> Iterator[list[JailedConfig]]:
    found: dict[tuple[str, str], list[JailedConfig]] = defaultdict(list)
    for it in configs:
        if it.metadata.deletion_timestamp is None:
            found[group(it)].append(it)
    yield from found.values()


def _asks(together: Iterable[JailedConfig]) -> bool:
    return any(RECONFIGURE in it.spec.update_actions for it in together)


def _is_written(config: JailedConfig) -> bool:
    found = condition(config.status.conditions, WRITTEN)
    return found is not None and found.status == "True" and found.observed_generation >= config.metadata.generation


def _is_complete(config: JailedConfig) -> bool:
    """Whether all nodes have read the latest configuration, as far as Slurm was reconfigured."""
    return conditions.holds(config.status.conditions, COMPLETED)


def _started(node: Node) -> int:
    return int(node.slurmd_start_time.value or 0)


def seconds(moment: str) -> float:
    """Read a time of a status; 0 where there is none."""
    return datetime.fromisoformat(moment).timestamp() if moment else 0.0


def failure(held: Iterable[Condition]) -> Condition | None:
    """Find what needs somebody: files that cannot be written, or a Slurm that does not read them."""
    return next((it for it in held if it.reason in _FAILURES.get(it.type, ())), None)

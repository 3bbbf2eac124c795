"""When Slurm has to read files that JailedConfigs brought, and whether everybody has.

    files written ──► (others of the aggregation, too) ──► told to read ──► slurmctld has ──► every node has
                                                           hash and time
                                                           in the status

What is compared is content: a hash that Slurm was told to read once is never a reason to tell it again. It is
written down before Slurm is told. Who is stopped in between finds that slurmctld has not read anything since, and
tells it then.

slurmd is started anew when it reads its configuration, and tells when that was. So a node `owes` until that time
has grown; its clock may go wrong as it likes. A node that is away owes, too, without anybody waiting for it: it
reads everything when it starts, and if it comes back without having been started, it is told again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from isthmus.domain import conditions, hostlist
from isthmus.domain.jailedconfigs.files import group
from isthmus.model.jailedconfig import RECONFIGURE, JailedConfig
from isthmus.model.meta import Condition, condition
from isthmus.model.slurm import Node

WRITTEN: Final = "FilesWritten"
COMPLETED: Final = "UpdateActionsCompleted"

TIMEOUT: Final = 300.0
TELL_AGAIN: Final = 15.0
"""Seconds after which nodes that have not read anything are told again."""

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
    """Nodes that are not known to have read it, with the time of their last start when they were told."""
    told_at: float | None = None
    """When this process told Slurm the last time."""
    refusal: str = ""
    """What Slurm answered, if that was an error."""
    timeout: float = TIMEOUT


class Told(msgspec.Struct, frozen=True):
    """What the status of one JailedConfig is to say."""

    completed: Condition
    hash: str = ""
    at: str = ""


class Plan(msgspec.Struct, frozen=True):
    """What to tell, and what to do."""

    told: Mapping[str, Told]
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
    told: dict[str, Told] = {}
    starting = tell_again = under_way = False
    mine = list(configs)
    behind = [name for name in slurm.owing if _runs(slurm.nodes[name], slurm)]
    last = max((seconds(it.status.reconfigured_at) for it in mine), default=0.0)
    for together in _groups(mine):
        asks = _asks(together)
        missing = next((it for it in together if not _is_written(it)), None)
        for it in together:
            status = it.status
            if not asks:
                done = conditions.yes(COMPLETED, "MissingAction", "no updateActions are asked for")
                told[it.metadata.name] = Told(done)
            elif not _is_written(it):
                told[it.metadata.name] = kept(it, _waits_for_files(it))
            elif status.files_hash == status.reconfigured_hash:
                since = seconds(status.reconfigured_at)
                if _is_complete(it) and (since < last or not behind):
                    told[it.metadata.name] = kept(it, _same(it))
                    continue
                verdict = _judged(slurm, behind, since=since, complete=_is_complete(it))
                told[it.metadata.name] = kept(it, verdict.condition)
                tell_again |= verdict.tell_again
                under_way |= verdict.condition.status != "True"
            elif missing:
                told[it.metadata.name] = kept(it, _waits_for(missing))
            elif slurm.trouble:
                told[it.metadata.name] = kept(it, conditions.unknown(COMPLETED, "OutOfTouch", slurm.trouble))
            else:
                under_way = True
                starting |= start
                told[it.metadata.name] = _begun(it, slurm.now) if start else kept(it, _about_to_begin())
    return Plan(told, reconfigure=starting or (tell_again and not slurm.trouble), under_way=under_way)


def owing(nodes: Mapping[str, Node], *, told_at: float | None = None, only_away: bool = False) -> dict[str, int]:
    """List who has still to read: everybody, or (`told_at`) who was not started since.

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
    """Strike out who was started in the meantime, and who is gone."""
    return {name: start for name, start in before.items() if name in nodes and _started(nodes[name]) <= start}


class _Verdict(msgspec.Struct, frozen=True):
    condition: Condition
    tell_again: bool = False


def _judged(slurm: Slurm, behind: list[str], *, since: float, complete: bool) -> _Verdict:
    """Tell how far it has come what Slurm was told then; what was `complete` is not any more for who is behind."""
    if slurm.trouble:
        return _Verdict(conditions.unknown(COMPLETED, "OutOfTouch", slurm.trouble))
    waited = slurm.now - (since if slurm.told_at is None else slurm.told_at)
    late = slurm.now - since >= slurm.timeout
    is_read = complete or _is_read(slurm, since)
    if slurm.refusal and (behind or not is_read):
        why = f"Slurm does not read its configuration again: {slurm.refusal}"
        return _Verdict(conditions.no(COMPLETED, "Refused", why), tell_again=waited >= TELL_AGAIN)
    if not is_read:
        # Nobody has told it, if it was not us.
        again = slurm.told_at is None or waited >= TELL_AGAIN
        return _Verdict(_under_way("slurmctld has not read it yet", late=late), tell_again=again)
    if behind:
        text = f"{len(behind)} of {_count(slurm)} nodes have not taken it yet: {_listed(behind)}"
        silent = [name for name in behind if not _SILENT.isdisjoint(slurm.nodes[name].state)]
        if silent:
            text += f"; these do not respond: {_listed(silent)}"
        again = waited >= TELL_AGAIN and len(silent) < len(behind)
        return _Verdict(_under_way(text, late=late), tell_again=again)
    return _Verdict(_success(slurm))


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
        text += f"; these are away, and read it when they start: {_listed(away)}"
    return conditions.yes(COMPLETED, "Success", text)


def _count(slurm: Slurm) -> int:
    return sum("EXTERNAL" not in node.state for node in slurm.nodes.values())


def _listed(nodes: list[str]) -> str:
    folded = hostlist.fold(nodes)
    return folded if len(folded) <= _SHOWN else f"{folded[:_SHOWN]}…"


def _under_way(text: str, *, late: bool) -> Condition:
    return conditions.no(COMPLETED, "NotTaken" if late else "Refresh", text)


def _about_to_begin() -> Condition:
    return conditions.no(COMPLETED, "Refresh", "files have changed; Slurm is told in a moment")


def _begun(config: JailedConfig, now: float) -> Told:
    at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = "slurmctld and all nodes are told to read their configuration again"
    return Told(conditions.no(COMPLETED, "Refresh", text), config.status.files_hash, at)


def kept(config: JailedConfig, completed: Condition) -> Told:
    """Say something new about what Slurm was told before."""
    return Told(completed, config.status.reconfigured_hash, config.status.reconfigured_at)


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
    """Whether everybody has read what Slurm was told last, as far as it was told."""
    return conditions.holds(config.status.conditions, COMPLETED)


def _started(node: Node) -> int:
    return int(node.slurmd_start_time.value or 0)


def seconds(moment: str) -> float:
    """Read a time of a status; 0 where there is none."""
    return datetime.fromisoformat(moment).timestamp() if moment else 0.0

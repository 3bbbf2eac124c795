"""Jobs and nodes of Slurm as a change stream, made of the cheapest questions that Slurm answers.

Three loops share one picture of the cluster, none of which ever has two requests under way:

    states     job states by `jobs/state`: quick for the jobs that somebody waits for, slice by slice, slow for all
    details    the full record of each job whose state changed, a few at a time; of all at once after a start; and
               now and then of a job that waits, since `jobs/state` does not tell why
    nodes      every node, which costs nothing while none changed

When Slurm is away, `contact` says so and since when; what was known stays known. It never looks like an empty
cluster, and when Slurm is back the difference is told as changes.

Where there are very many jobs, lists are too slow, and `crowd` says how to do without them.

A slurmctld that is killed forgets the jobs of its last seconds, and gives their ids to others. Such a job looks
like the one before it, so after a restart every record is read again (`on_restart`).
"""

import asyncio
import heapq
import itertools
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Literal, Protocol

import msgspec

from isthmus.errors import IsthmusError
from isthmus.hooks import Faults
from isthmus.model.slurm import Job, JobState, States
from isthmus.slurm.client import Client
from isthmus.slurm.contact import Contact
from isthmus.slurm.crowd import MANY, SLICE, Sweep, Unread, slices
from isthmus.slurm.errors import Garbled
from isthmus.slurm.nodewatch import NodeReader
from isthmus.slurm.restarts import Restarts
from isthmus.slurm.store import Store
from isthmus.slurm.submission import base_id
from isthmus.slurm.turns import Turns, kind_of

_QUICK = 0.05
_IDLE = 2.0
_REST = 1 / 2
"""The shortest pause, as a part of the time that the answer before it took."""

_SLICE = SLICE
"""Jobs in `waiting` that are polled at a time, by their ids.

A change that just missed a list of 10,000 jobs would wait for the rest of that list and for all of the next one. In
slices it waits for one round, and slurmrestd needs 7 µs for a job that is asked for, but 16 µs where it lists all.
"""

_ALL_SHARE = 20
"""While jobs are waited for, the list of all jobs takes at most one part in so many of the time."""

_ALL_LATEST = 10.0
"""But a list of all that took long because Slurm was away is not put off for longer than this."""

_BACKOFF_FIRST = 0.2
_MAX_BACKOFF_S = 5.0
_CENSUS_PATIENCE = 1800.0
_CENSUS_PAUSE = 30.0
"""A list of very many states takes minutes; one that failed is asked for again after a pause."""

_PATIENCE = 15.0
"""A little more than slurmrestd waits for slurmctld before it gives up with an error of its own."""

_BULK = 500
_BULK_SHARE = 4
"""So many full records are read by one list of everything if they are one part in so many of it."""

_BATCH = 32
_STRANGERS = 8
_STRANGERS_PAUSE = 0.25
"""Jobs that were never read and are not waited for, perhaps others', are read so many at a time, no sooner:
1,000 jobs a minute that others submit cost 17 calls a second, and none of them comes before one that is known.
"""

_REFRESH = 1.0
_ROUND_LEAST = 5.0
"""Which jobs have not begun is found out no more often than this: for that, all states are looked through."""

_ROUND_OF_MANY = 60.0
"""And where so many wait that all are read by one list, no more often than this."""

_FEW = 8
_REREAD_FEW = 8.0
_REREAD_MANY = 60.0
"""So many are read again one by one, and so long after them the next; and so long after a list of everything."""

_NODES_PAUSE = 0.5
"""Nodes come as a list of all, and change with every job that starts: twice a second is enough of that."""

_NODES_IDLE = 1.0
"""And once a second if no job is waited for, unless everything else is read still less often."""

_NODES_PAUSE_EACH = 0.001
_NODES_LATEST = 5.0
"""After a list with changes, so long for each node in it, and no longer: 5,000 nodes are 10 MB of JSON, for which
slurmctld, slurmrestd and we take a good part of a second. A question that finds no change costs nothing.
"""

_RESTARTS_PAUSE = 2.0
"""How often slurmctld is asked whether it is still the same."""

_PENDING = ("PENDING",)

Clock = Callable[[], float]
Loop = Literal["states", "nodes"]

_log = logging.getLogger(__name__)


class RecordReader(Protocol):
    """Reads full records of jobs: the client itself, or a reader that knows a part of them already."""

    async def jobs(self) -> Collection[Job]: ...

    async def details(self, ids: Iterable[int]) -> Collection[Job]:
        """Read these jobs; those that are gone are left out."""


class Poller:
    """Keeps `states`, `jobs` and `nodes` as Slurm has them."""

    def __init__(
        self,
        client: Client,
        *,
        waiting: Callable[[], Collection[int]] = tuple,
        wants: Callable[[int], bool] = lambda _: True,
        quick: float = _QUICK,
        idle: float = _IDLE,
        refresh: float | None = _REFRESH,
        nodes_idle: float | None = None,
        rounds: float | None = _ROUND_OF_MANY,
        claimed: Callable[[], Collection[int]] = tuple,
        slim: Callable[[Job], Job] = lambda job: job,
        records: RecordReader | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Follow the cluster of `client`.

        `waiting` is asked each time for the jobs that somebody waits for; `wants` whether the full record of a job
        is of use. Those who are waited for are asked about every `quick` seconds, everything every `idle` seconds.
        Pauses grow with the time that an answer takes, so that a slow Slurm is left alone for a good part of it.

        Every `refresh` seconds (None: never) one of the wanted jobs that have not begun is read again, each in its
        turn: its reason, priority and expected start change while its state does not. Where very many wait, all are
        read by one list, every `rounds` seconds (None: never, all have their turns). Nodes are asked about every
        `nodes_idle` seconds, where that is given: while none changed, this costs Slurm next to nothing.

        Jobs that are `claimed` are read before others after a start. `records` reads full records instead of the
        client. Of a record, what `slim` makes of it is kept.
        """
        self.states: Store[str, States] = Store(failed=Faults("states of Slurm jobs"))
        self.jobs: Store[int, Job] = Store(failed=Faults("Slurm jobs"))
        self._node_reader = NodeReader(client, clock=clock)
        self.nodes = self._node_reader.nodes
        self._nodes_changed = False
        """Whether the latest question about nodes brought a list of them."""
        self._client = client
        self._record_reader = records or client
        self._waiting = waiting
        self._wants = wants
        self._claimed = claimed
        self._slim = slim
        self._quick, self._idle, self._rounds = quick, idle, rounds
        self._nodes_idle = max(idle, _NODES_IDLE) if nodes_idle is None else nodes_idle
        self._as_of: dict[str, float] = {}
        self._clock = clock
        self._contact = Contact(in_touch=False, since=clock(), trouble="not contacted yet")
        self.heard_at: float | None = None
        """When Slurm answered last, by the clock; None if it never did."""
        self._restart_hooks: list[Callable[[], None]] = []
        self._restarts = Restarts()
        self._troubles: dict[str, str] = {}
        self._states_text = b""
        self._all_states_due = clock()
        self._slices: list[tuple[int, ...]] = []
        """What is still to be asked about in this round, of so many slices."""
        self._slices_per_round = 1
        self._slice_texts: dict[tuple[int, ...], bytes] = {}
        self._uncounted = asyncio.Event()
        """Set as long as there are very many jobs of which no list has been read."""
        self._unread = Unread()
        self._sweep = Sweep()
        self._decode_states = msgspec.json.Decoder(list[JobState]).decode
        # The job id of an array has several entries and records.
        self._entries: Counter[int] = Counter()
        self._records: dict[int, tuple[int, ...]] = {}
        self._stale: set[int] = set()
        self._any_stale = asyncio.Event()
        self._dug: set[int] = set()
        """What is being read because it has never been."""
        self._reading = False
        self._strangers_due = clock()
        self._again: set[int] = set()
        self._again_due = clock()
        self._refresh = refresh
        self._refresh_due = clock()
        self._turns = Turns()
        self._nudged: dict[str, asyncio.Event] = {"states": asyncio.Event(), "nodes": asyncio.Event()}
        self._read_once = {name: asyncio.Event() for name in ("states", "details", "nodes")}

    @property
    def contact(self) -> Contact:
        """Whether Slurm currently answers."""
        return self._contact

    def as_of(self, loop: Loop) -> float | None:
        """When the latest successful question about states or nodes began, by the clock; None before the first."""
        return self._as_of.get(loop)

    def on_restart(self, hook: Callable[[], None]) -> None:
        """Call this when slurmctld may have been restarted, before everything is read again."""
        self._restart_hooks.append(hook)

    async def synced(self) -> None:
        """Wait until states, details and nodes have been read once."""
        for event in self._read_once.values():
            await event.wait()

    @property
    def has_read(self) -> bool:
        """Whether states, details and nodes have been read once."""
        return all(event.is_set() for event in self._read_once.values())

    @property
    def is_behind(self) -> bool:
        """Whether records wait to be read whose jobs have changed."""
        return bool(self._stale)

    @property
    def newest(self) -> int:
        """The id of the youngest job that was seen; 0 if there is none."""
        return self._sweep.newest

    def knows_jobs_since(self, moment: float) -> bool:
        """Whether every job that was submitted at this time (seconds since 1970) or later has been read.

        Where there are very many jobs, older ones are read in the background after a start.
        """
        return not self._uncounted.is_set() and self._unread.knows_since(moment)

    def nudge(self, *loops: Loop) -> None:
        """Ask again at once, about states or nodes or both, because something is expected to have changed."""
        for loop in loops or self._nudged:
            self._nudged[loop].set()

    def reread(self, job_id: int) -> None:
        """Read the full record of a job again soon, though its state has not changed."""
        if job_id in self._entries:
            self._again.add(job_id)
            self._any_stale.set()

    def slim_again(self) -> None:
        """Apply `slim` to all records that are known, because it makes something else of them now."""
        for job in list(self.jobs.values()):
            self.jobs.put(job.job_id, self._slim(job))

    async def run(self) -> None:
        """Poll until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop("states", self._poll_states, pauses=self._pauses_of_states))
            group.create_task(self._loop("nodes", self._poll_nodes, pauses=self._pauses_of_nodes))
            group.create_task(self._loop("details", self._read_details))
            group.create_task(self._count_crowd())
            restarts = _RESTARTS_PAUSE, max(self._idle, _RESTARTS_PAUSE)
            group.create_task(self._loop("restarts", self._look_for_restart, pauses=lambda: restarts))

    def _pauses_of_states(self) -> tuple[float, float]:
        return self._quick / self._slices_per_round, self._idle

    def _pauses_of_nodes(self) -> tuple[float, float]:
        rest = min(_NODES_LATEST, _NODES_PAUSE_EACH * len(self.nodes)) if self._nodes_changed else 0.0
        return max(self._quick, _NODES_PAUSE, rest), max(self._nodes_idle, rest)

    async def _loop(
        self,
        name: str,
        ask: Callable[[], Awaitable[None]],
        *,
        pauses: Callable[[], tuple[float, float]] | None = None,
    ) -> None:
        """Poll repeatedly, with one pause while jobs are waited for and another if not.

        A loop without pauses waits for its work by itself.
        """
        backoff = _BACKOFF_FIRST
        while True:
            began = self._clock()
            try:
                await ask()
            except IsthmusError as error:
                self._note(name, str(error))
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, _MAX_BACKOFF_S)
                continue
            self._note(name, "")
            self._as_of[name] = began
            backoff = _BACKOFF_FIRST
            if pauses is not None:
                quick, idle = pauses()
                least = max(quick, _REST * (self._clock() - began))
                await self._pause(name, least, least if self._waiting() else max(least, idle))

    async def _pause(self, name: str, least: float, most: float) -> None:
        """Pause until nudged, but at least for a while: each of a hundred submissions may nudge."""
        nudged = self._nudged.get(name, asyncio.Event())
        await asyncio.sleep(least)
        if most > least:
            with suppress(TimeoutError):
                async with asyncio.timeout(most - least):
                    await nudged.wait()
        nudged.clear()

    def _note(self, name: str, trouble: str) -> None:
        """Record the result of a loop, and report whether that makes or breaks contact."""
        if trouble:
            self._troubles[name] = trouble
        else:
            self._troubles.pop(name, None)
            self.heard_at = self._clock()
        in_touch = not self._troubles and self._read_once["states"].is_set()
        if in_touch != self._contact.in_touch:
            self._contact = Contact(in_touch=in_touch, since=self._clock(), trouble=trouble)
        elif trouble:
            self._contact = Contact(in_touch=False, since=self._contact.since, trouble=trouble)

    # States

    async def _poll_states(self) -> None:
        waiting = self._waiting()
        began = self._clock()
        if not self._read_once["states"].is_set():
            statistics = await self._client.diagnose()
            if statistics.jobs_pending + statistics.jobs_running > MANY:
                self._uncounted.set()
                self._read_once["details"].set()
        if self._are_many:
            await self._poll_crowd(waiting)
        elif waiting and began < self._all_states_due:
            await self._poll_slice(waiting)
        else:
            await self._poll_all_states()
            now = self._clock()
            self._all_states_due = now + max(self._idle, min(_ALL_LATEST, _ALL_SHARE * (now - began)))
        self._read_once["states"].set()
        self._wake_details()

    @property
    def _are_many(self) -> bool:
        return self._uncounted.is_set() or len(self._entries) > MANY

    async def _count_crowd(self) -> None:
        while True:
            try:
                await self._take_census()
            except IsthmusError as error:
                # Slurm answers everything else: contact is not lost.
                _log.warning("could not read the list of all jobs, retrying: %s", error)
                await asyncio.sleep(_CENSUS_PAUSE)

    async def _take_census(self) -> None:
        """List all jobs once where they are very many, which takes minutes, beside everything else."""
        await self._uncounted.wait()
        text = await self._client.job_states_text(patience=_CENSUS_PATIENCE)
        # It is old by now, so it has no say about jobs that are known. One that has left since is dropped later.
        found = {key: state for key, state in self._read(text).items() if key not in self.states}
        self._take_states(found, only=frozenset())
        self._unread.begin(self._stale)
        self._uncounted.clear()
        self._wake_details()

    async def _poll_crowd(self, waiting: Collection[int]) -> None:
        """Ask about some of the jobs of interest, and about some of all."""
        ours = {*waiting, *self._claimed(), *(job_id for job_id in self._records if self._wants(job_id))}
        if ours:
            await self._poll_slice(ours)
        if self._uncounted.is_set():
            return
        if self._sweep.is_over:
            if self._clock() < self._all_states_due:
                return
            self._all_states_due = self._clock() + _ALL_LATEST
            self._sweep.begin(self._entries)
        ids = self._sweep.take()
        before = self._sweep.newest
        text = await self._client.job_states_text(ids, patience=_PATIENCE)
        self._take_states(self._read(text), only=frozenset(ids))
        if self._sweep.newest != before:
            self._sweep.go_on()

    async def _poll_slice(self, waiting: Collection[int]) -> None:
        if not self._slices:
            self._slices = slices(waiting, _SLICE)
            self._slices_per_round = len(self._slices)
            self._slice_texts = {ids: text for ids in self._slices if (text := self._slice_texts.get(ids))}
        ids = self._slices.pop()
        text = await self._client.job_states_text(ids, patience=_PATIENCE)
        if text != self._slice_texts.get(ids):
            self._take_states(self._read(text), only=frozenset(ids))
            self._slice_texts[ids] = text

    async def _poll_all_states(self) -> None:
        text = await self._client.job_states_text(patience=_PATIENCE)
        # Most of the time nothing changed, and comparing bytes is all there is to do.
        if text != self._states_text:
            self._take_states(self._read(text))
            self._states_text = text

    def _read(self, text: bytes) -> dict[str, States]:
        try:
            return {entry.job_id: entry.state for entry in self._decode_states(text)}
        except msgspec.DecodeError as error:
            raise Garbled(f"the list of job states cannot be read: {error}") from error

    def _take_states(self, fresh: dict[str, States], *, only: frozenset[int] | None = None) -> None:
        """Compare with what is known: of all jobs, or of these alone."""
        known = self.states
        changed = [(key, state) for key, state in fresh.items() if known.get(key) != state]
        gone = [key for key in known if key not in fresh] if only is None else self._gone_of(only, fresh)
        if changed or gone:
            # What was said before is no longer what we know: if Slurm says it again, that is news.
            self._states_text = b""
            if only is None:
                self._slice_texts.clear()  # a slice has nothing in common with the others
        for key, _ in changed:
            job_id = base_id(key)
            if key not in known:
                self._entries[job_id] += 1
                self._sweep.note(job_id)
            if self._wants(job_id):
                self._stale.add(job_id)
        for key in gone:
            job_id = base_id(key)
            self._entries[job_id] -= 1
            if self._entries[job_id]:
                self._stale.add(job_id)
            else:
                del self._entries[job_id]
                self._stale.discard(job_id)
                self._take_records(job_id, ())
        # Hooks run last: they may read everything, and find it consistent.
        for key, state in changed:
            self.states.put(key, state)
        for key in gone:
            self.states.drop(key)

    def _gone_of(self, ids: frozenset[int], fresh: dict[str, States]) -> list[str]:
        # Arrays, whose entries do not follow from the id alone, are left to the next full list.
        return [key for key in map(str, ids) if key in self.states and key not in fresh]

    # Details

    def _wake_details(self) -> None:
        if self._stale:
            self._any_stale.set()
        elif not self._reading and not self._uncounted.is_set():
            self._read_once["details"].set()
            self._unread.all_read()

    async def _read_details(self) -> None:
        ids = await self._next_details()
        dug = self._dug
        everything = self._is_bulk(ids)
        # A change while we read makes its job stale again, so ids leave the set before the request.
        self._stale -= ids
        self._reading = True
        try:
            read = self._record_reader
            found = await read.jobs() if everything else await read.details(ids)
        except BaseException:
            self._stale |= ids
            self._unread.put_back(dug)
            self._any_stale.set()
            raise
        finally:
            self._reading = False
        records: defaultdict[int, list[Job]] = defaultdict(list)
        for job in found:
            records[job.listed_id].append(job)
        for job_id in ids:
            self._take_records(job_id, records[job_id])
        if dug:
            self._unread.have_read(found)
        self._wake_details()

    async def _next_details(self) -> set[int]:
        """Wait for something to read, and choose what comes first."""
        while True:
            self._any_stale.clear()
            self._dug = set[int]()
            if ids := self._urgent() or self._strangers() or self._to_reread() or self._waits_for_long():
                return ids
            pauses = [due - self._clock() for due in self._dues()]
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(pauses)) if pauses else None):
                    await self._any_stale.wait()

    def _to_reread(self) -> set[int]:
        """Those to be read again on request: a few at a time, or, where they are many, by one list."""
        self._again.intersection_update(self._entries)
        if not self._again or self._clock() < self._again_due:
            return set()
        many = self._is_bulk(self._again)
        ids = set(self._again) if many else set(itertools.islice(self._again, _FEW))
        self._again -= ids
        self._again_due = self._clock() + (_REREAD_MANY if many else _REREAD_FEW)
        return ids

    def _is_bulk(self, ids: Collection[int]) -> bool:
        return not self._are_many and len(ids) >= max(_BULK, len(self._entries) // _BULK_SHARE)

    def _urgent(self) -> set[int]:
        """Those that are waited for, then those that were used before; all at once if they are many."""
        if not self._stale or self._is_bulk(self._stale):
            return set(self._stale)
        asked = self._stale.intersection(self._waiting())
        if self._unread and len(asked) < _BATCH:
            asked.update(itertools.islice(self._stale.intersection(self._claimed()), _BATCH))
        known = (
            job_id
            for job_id in self._stale
            if job_id in self._records and job_id not in asked and job_id not in self._unread
        )
        return set(itertools.islice(itertools.chain(asked, known), _BATCH))

    def _strangers(self) -> set[int]:
        if self._unread:
            self._dug = self._unread.take(_BATCH, among=self._stale)
            return set(self._dug)
        if not self._stale or (self._read_once["details"].is_set() and self._clock() < self._strangers_due):
            return set()
        self._strangers_due = self._clock() + _STRANGERS_PAUSE
        # Ids grow, so who came first is read first.
        at_once = _STRANGERS if self._read_once["details"].is_set() else _BATCH
        return set(heapq.nsmallest(at_once, self._stale))

    def _waits_for_long(self) -> set[int]:
        """One of the jobs that have not begun, each in its turn (`turns`)."""
        if self._refresh is None or self._clock() < self._refresh_due:
            return set()
        self._refresh_due = self._clock() + self._refresh
        if not self._turns:
            self._refresh_due = self._clock() + max(self._refresh, _ROUND_LEAST)
            waiting = (base_id(key) for key, state in self.states.items() if state[:1] == _PENDING)
            wanted = {job_id for job_id in waiting if self._wants(job_id)}
            if self._rounds is not None and self._is_bulk(wanted):
                # So many in turn would never get fresh; a list of everything is one call, if a long one.
                self._refresh_due = self._clock() + max(self._refresh, self._rounds)
                return wanted
            known = {job_id: self._records[job_id][0] for job_id in wanted if job_id in self._records}
            self._turns.begin((job_id, kind_of(self.jobs[record])) for job_id, record in known.items())
        while self._turns:
            job_id = self._turns.take()
            if job_id in self._records and self._wants(job_id):
                return {job_id}
        return set()

    def _dues(self) -> Iterator[float]:
        """The moments at which there may be something to read although nothing changes."""
        if self._stale:
            yield self._strangers_due
        if self._again:
            yield self._again_due
        if self._refresh is not None:
            yield self._refresh_due

    def _take_records(self, job_id: int, records: Iterable[Job]) -> None:
        """Replace what is known of a job or array; a job that left while its record was read stays away."""
        kept = tuple(records) if job_id in self._entries else ()
        ids = tuple(job.job_id for job in kept)
        for old in self._records.pop(job_id, ()):
            if old not in ids:
                self.jobs.drop(old)
        if kept:
            self._records[job_id] = ids
        for job in map(self._slim, kept):
            if self._turns and (before := self.jobs.get(job.job_id)):
                self._see_reason(before, job)
            self.jobs.put(job.job_id, job)

    def _see_reason(self, before: Job, now: Job) -> None:
        """If a job waits for something else than it did, so may others of its kind."""
        if before.job_state == now.job_state and kind_of(before) != kind_of(now):
            self._turns.hurry(kind_of(before))

    async def _look_for_restart(self) -> None:
        if not self._restarts.noticed(await self._client.diagnose()):
            return
        ours = {job_id for job_id in self._entries if self._wants(job_id)}
        for hook in self._restart_hooks:
            hook()
        self._stale |= {job_id for job_id in self._entries if self._wants(job_id)}
        if self._are_many:
            self._unread.begin(self._stale - ours)
        self._wake_details()

    # Nodes

    async def _poll_nodes(self) -> None:
        self._nodes_changed = await self._node_reader.read()
        self._read_once["nodes"].set()

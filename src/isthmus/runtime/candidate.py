"""Who may lead: the rules of the election, apart from clocks, requests and tasks.

Candidates share one Lease. Its holder leads; the others watch whether it changes:

    follower ── the lease is free, or has not changed for its whole duration ──► claims it
    claims   ── the server stored our claim ───────────────────────────────────► leader
             ── the server refused it, or nobody knows ────────────────────────► reads, then as it finds
    leader   ── every interval ────────────────────────────────────────────────► claims it again
             ── `deadline` after the start of the last claim that was stored ──► follower
             ── reads that another holds it ───────────────────────────────────► follower
             ── resigned ──────────────────────────────────────────────────────► the lease is free

Why there are never two leaders. A claim is stored only if the lease still has the version that the candidate saw,
so claims form one sequence. A leader counts from the moment *before* it sent its claim; a follower counts from the
moment *after* it received that claim's result, and waits longer (`duration` > `deadline`). So whatever the network
does to the requests in between, a leader has been off for `duration - deadline` seconds, enough to stop its work,
before anyone can follow it. Clocks are not compared: each side measures a length of time by a clock of its own that
only needs to run at the right speed. The times written into the Lease are for people.

If somebody deletes the Lease, its holder recreates it and continues. Another who knew it and is faster holds it,
but leads only after its duration. One who never saw the Lease takes it for new and leads at once.
"""

import msgspec

from isthmus.errors import Terminal


class Terms(msgspec.Struct, frozen=True):
    """The timing of an election, in seconds; the same for all candidates."""

    duration: int = 15
    """How long followers wait without seeing a change before they claim."""
    deadline: float = 10.0
    """How long a leader leads from the start of its last claim that was stored."""
    interval: float = 2.0
    """How long between two claims of a leader, and between two looks of a follower."""

    def __post_init__(self) -> None:
        if not 0 < self.interval < self.deadline < self.duration:
            raise Terminal(
                f"election timing is not valid: interval {self.interval} s, deadline {self.deadline} s, "
                f"duration {self.duration} s",
                remedy="choose interval < deadline < duration, for example 2, 10 and 15",
            )

    @property
    def notice(self) -> float:
        """How long a leader that lost has for stopping its work, before another may begin."""
        return self.duration - self.deadline


class Record(msgspec.Struct, frozen=True):
    """What a Lease says, as far as candidates care. An empty holder means that it is free."""

    holder: str
    duration: float
    transitions: int
    version: str


class Read(msgspec.Struct, frozen=True):
    """Read the Lease."""


class Claim(msgspec.Struct, frozen=True):
    """Write ourselves (or, to resign, nobody) into the Lease if it still has this version; None creates it."""

    version: str | None
    holder: str
    transitions: int
    taken_over: bool


class Rest(msgspec.Struct, frozen=True):
    """Nothing to do until then."""

    until: float


Step = Read | Claim | Rest


class Candidate:
    """One process in the election. Times are seconds on its own clock, which must not stand still in a pause.

    Ask `plan` for the next step, carry it out, and report with `saw`, `stored`, `refused` or `failed`.
    """

    def __init__(self, identity: str, terms: Terms) -> None:
        self.identity = identity
        self.terms = terms
        self.leads_from = float("-inf")
        self.leads_until = float("-inf")
        self._record: Record | None = None
        self._seen_at = float("-inf")
        self._known = False  # whether the record is what the server has, as far as we know
        self._absent = False
        self._next_at = float("-inf")

    def __repr__(self) -> str:
        holder = self._record.holder if self._record else None
        return f"<Candidate {self.identity}: holder {holder!r}, leads until {self.leads_until}>"

    def leads(self, now: float) -> bool:
        """Whether this process leads. True only while no other can."""
        return self.leads_from <= now < self.leads_until

    def plan(self, now: float) -> Step:
        """Decide the next step."""
        if now < self._next_at:
            return Rest(self._next_at)
        if not self._known or now < self._free_at():
            return Read()
        transitions = self._record.transitions if self._record else 0
        taken_over = self._record is None or self._record.holder != self.identity
        return Claim(
            version=None if self._record is None or self._absent else self._record.version,
            holder=self.identity,
            transitions=transitions + (taken_over and self._record is not None),
            taken_over=taken_over,
        )

    def saw(self, record: Record | None, now: float) -> None:
        """Take in what a Read brought; None if there is no Lease. `now` is when the answer had arrived."""
        self._known = True
        self._absent = record is None
        if record is not None:
            if self._record is None or record.version != self._record.version:
                self._record = record
                self._seen_at = now
            if record.holder != self.identity:
                self.leads_until = float("-inf")
        self._next_at = max(now, min(now + self.terms.interval, self._free_at()))

    def stored(self, record: Record, *, started: float, now: float) -> None:
        """Take in that our claim was stored; `started` is from before the request was sent."""
        if self._absent and self._record is not None and not self.leads(now):
            # The Lease that we knew was deleted, and with it who may still lead. From now on nobody else's claim
            # can be stored, so we need only sit out what may be left of theirs.
            self.leads_from = now + self.terms.duration
        self._record = record
        self._seen_at = now
        self._known = True
        self._absent = False
        if record.holder == self.identity:
            self.leads_until = started + self.terms.deadline
        self._next_at = started + self.terms.interval

    def refused(self, now: float) -> None:
        """Take in that the Lease is not what we thought: look again at once."""
        self._known = False
        self._next_at = now

    def failed(self, now: float) -> None:
        """Record that a request failed, and that its effect is not known."""
        self._known = False
        self._next_at = now + self.terms.interval

    def resign(self, now: float) -> Claim | None:
        """Stop leading, for work that is over; return the step that frees the Lease, if it is known to be ours."""
        self.leads_until = float("-inf")
        if not self._known or self._absent or self._record is None or self._record.holder != self.identity:
            return None
        if now < self.leads_from:
            return None  # Another may still lead: the next candidate must wait, as we did.
        return Claim(
            version=self._record.version, holder="", transitions=self._record.transitions, taken_over=False
        )

    def _free_at(self) -> float:
        """From when on the lease is ours to claim, on the evidence that we have."""
        if self._record is None or self._absent or self._record.holder in {"", self.identity}:
            return float("-inf")
        return self._seen_at + max(self._record.duration, self.terms.duration)

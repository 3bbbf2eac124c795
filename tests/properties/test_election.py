"""At most one leader, whatever happens to processes, requests and answers.

Simulated: processes with clocks of their own (any offset, up to 5 % too fast or too slow), which pause, crash and
resign; requests that arrive late or never; answers that arrive late or never; a Lease that is deleted by hand. The
rules under test are those of the real election, `isthmus.runtime.candidate`; only time and the network are played.
"""

from itertools import count

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.runtime.candidate import Candidate, Claim, Read, Record, Rest, Terms

TERMS = Terms()
DRIFT = 0.05
# The time that a leader has for stopping its work before another leads, with both clocks as wrong as they may be.
NOTICE = TERMS.duration / (1 + DRIFT) - TERMS.deadline / (1 - DRIFT)

process_numbers = st.integers(0, 2)
any_position = st.integers(0, 100)


class Process:
    """A candidate with its clock. `outstanding` is the request whose answer it waits for."""

    def __init__(self, identity: str, *, offset: float, rate: float) -> None:
        self.candidate = Candidate(identity, TERMS)
        self.offset = offset
        self.rate = rate
        self.paused = False
        self.outstanding: int | None = None
        self.started = 0.0
        self.promised = float("-inf")  # until when it led or leads, at the latest, in real time

    def clock(self, real: float) -> float:
        return self.offset + real * self.rate

    def real(self, local: float) -> float:
        return (local - self.offset) / self.rate


class Server:
    """One Lease, written only if the version fits."""

    def __init__(self) -> None:
        self.lease: Record | None = None
        self.versions = count(1)

    def carry_out(self, step: Read | Claim) -> Record | str | None:
        """Return the Lease (None if there is none), or "refused"."""
        if isinstance(step, Read):
            return self.lease
        if step.version != (self.lease.version if self.lease else None):
            return "refused"
        self.lease = Record(step.holder, TERMS.duration, step.transitions, str(next(self.versions)))
        return self.lease


class ElectionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.server = Server()
        self.identities = count(1)
        self.requests: list[tuple[int, Process, Read | Claim]] = []
        self.answers: list[tuple[int, Process, Read | Claim, Record | str | None]] = []
        self.numbers = count(1)
        self.deleted_at = float("-inf")
        self.last_leader: Process | None = None
        self.processes = [self.newcomer(offset, rate) for offset, rate in ((0.0, 1.0), (-5e6, 0.95), (9e8, 1.05))]

    def newcomer(self, offset: float, rate: float) -> Process:
        return Process(f"process-{next(self.identities)}", offset=offset, rate=rate)

    # --- time ----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 4.0, 10.5, 16.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(number=process_numbers, seconds=st.sampled_from([2, 5, 8, 9, 11, 16]))
    def time_passes_and_the_others_go_on(self, number: int, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            for other in range(len(self.processes)):
                if other != number:
                    self.takes_a_step_on_a_good_network(other)
            self.at_most_one_leads()

    # --- processes -----------------------------------------------------------------------------------------------

    @rule(number=process_numbers)
    def begins_its_next_step(self, number: int) -> None:
        process = self.processes[number]
        if process.paused or process.outstanding is not None:
            return
        now = process.clock(self.now)
        step = process.candidate.plan(now)
        if not isinstance(step, Rest):
            process.outstanding = next(self.numbers)
            process.started = now
            self.requests.append((process.outstanding, process, step))

    @rule(number=process_numbers)
    def gives_up_on_an_answer(self, number: int) -> None:
        process = self.processes[number]
        if process.outstanding is not None and not process.paused:
            process.outstanding = None
            process.candidate.failed(process.clock(self.now))

    @rule(number=process_numbers)
    def takes_a_step_on_a_good_network(self, number: int) -> None:
        self.begins_its_next_step(number)
        outstanding = self.processes[number].outstanding
        for position, request in enumerate(self.requests):
            if request[0] == outstanding:
                self.request_arrives(position)
                self.answer_arrives(len(self.answers) - 1)
                return

    @rule(
        number=process_numbers,
        there=st.sampled_from([0, 0, 3, 9]),
        back=st.sampled_from([0, 3, 9]),
        afterwards=st.sampled_from([0, 8, 12]),
        lost=st.booleans(),
    )
    def takes_a_step_on_a_slow_network(
        self, number: int, there: int, back: int, *, afterwards: int, lost: bool
    ) -> None:
        self.begins_its_next_step(number)
        outstanding = self.processes[number].outstanding
        self.time_passes_and_the_others_go_on(number, there)
        for position, request in enumerate(self.requests):
            if request[0] == outstanding:
                self.request_arrives(position)
                self.time_passes_and_the_others_go_on(number, back)
                if lost:
                    self.gives_up_on_an_answer(number)
                else:
                    self.answer_arrives(len(self.answers) - 1)
                self.time_passes_and_the_others_go_on(number, afterwards)
                return

    @rule(number=process_numbers)
    def pauses_or_goes_on(self, number: int) -> None:
        self.processes[number].paused = not self.processes[number].paused

    @precondition(lambda self: self.now > self.deleted_at + 2 * TERMS.duration)
    @rule(number=process_numbers)
    def crashes_and_is_replaced(self, number: int) -> None:
        old = self.processes[number]
        # Its work ends with it; others know nothing of that and wait all the same.
        self.processes[number] = self.newcomer(old.offset + 1000.0, old.rate)

    @precondition(lambda self: self.now > self.deleted_at + 2 * TERMS.duration)
    @rule(number=process_numbers)
    def resigns_and_is_replaced(self, number: int) -> None:
        process = self.processes[number]
        if process.paused:
            return
        if step := process.candidate.resign(process.clock(self.now)):
            self.requests.append((next(self.numbers), process, step))
        self.crashes_and_is_replaced(number)

    # --- network -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.requests)
    @rule(position=any_position)
    def request_arrives(self, position: int) -> None:
        number, process, step = self.requests.pop(position % len(self.requests))
        self.answers.append((number, process, step, self.server.carry_out(step)))

    @precondition(lambda self: self.requests)
    @rule(position=any_position)
    def request_is_lost(self, position: int) -> None:
        self.requests.pop(position % len(self.requests))

    @precondition(lambda self: self.answers)
    @rule(position=any_position)
    def answer_is_lost(self, position: int) -> None:
        self.answers.pop(position % len(self.answers))

    @precondition(lambda self: self.answers)
    @rule(position=any_position)
    def answer_arrives(self, position: int) -> None:
        position %= len(self.answers)
        number, process, step, answer = self.answers[position]
        if process.paused:
            return
        del self.answers[position]
        if process.outstanding != number or process not in self.processes:
            return
        process.outstanding = None
        now = process.clock(self.now)
        if isinstance(answer, str):
            process.candidate.refused(now)
        elif isinstance(step, Read) or answer is None:
            process.candidate.saw(answer, now)
        else:
            process.candidate.stored(answer, started=process.started, now=now)

    # Candidates that knew the lease wait. That a newcomer does not is by design, so there must be none.
    @precondition(lambda self: all(process.candidate._record for process in self.processes))
    @rule()
    def somebody_deletes_the_lease(self) -> None:
        self.server.lease = None
        self.deleted_at = self.now

    # --- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def at_most_one_leads(self) -> None:
        leaders = [process for process in self.processes if process.candidate.leads(process.clock(self.now))]
        assert len(leaders) <= 1, [process.candidate for process in leaders]
        for leader in leaders:
            for other in self.processes:
                if leader is not self.last_leader and other is not leader:
                    assert other.promised + NOTICE <= self.now + 1e-6, "the one before may not have stopped yet"
            self.last_leader = leader
            leader.promised = max(leader.promised, leader.real(leader.candidate.leads_until))

    @rule()
    def calm_brings_exactly_one_leader(self) -> None:
        for process in self.processes:
            process.paused = False
            if process.outstanding is not None:
                process.outstanding = None
                process.candidate.failed(process.clock(self.now))
        self.requests.clear()
        self.answers.clear()
        for _ in range(3 * TERMS.duration):
            for number in range(len(self.processes)):
                self.takes_a_step_on_a_good_network(number)
                self.at_most_one_leads()
            self.now += 1.0
        assert sum(p.candidate.leads(p.clock(self.now)) for p in self.processes) == 1


TestElection = ElectionMachine.TestCase
TestElection.settings = settings(
    max_examples=200,
    stateful_step_count=60,
    deadline=None,
    # Without `explain`, which traces every line and makes it twenty times slower.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)

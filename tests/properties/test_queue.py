"""The backlog against a model that is obviously right and slow."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.runtime.backlog import Backlog

keys = st.integers(0, 7)
delays = st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0, 50.0])
priorities = st.integers(-2, 2)


class Asked:
    """What the model remembers of a key that waits."""

    def __init__(self, due: float, priority: int) -> None:
        self.due = due
        self.priority = priority


class BacklogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.backlog: Backlog[int] = Backlog()
        self.now = 0.0
        self.asked: dict[int, Asked] = {}
        self.taken: set[int] = set()
        self.owed: set[int] = set()  # added while taken: one more pass is guaranteed

    def ready(self) -> dict[int, Asked]:
        return {key: a for key, a in self.asked.items() if key not in self.taken and a.due <= self.now}

    @rule(key=keys, delay=delays, priority=priorities)
    def add(self, key: int, delay: float, priority: int) -> None:
        due = self.now + delay
        self.backlog.add(key, self.now, due=due, priority=priority)
        asked = self.asked.setdefault(key, Asked(due, priority))
        asked.due = min(asked.due, due)
        asked.priority = max(asked.priority, priority)
        if key in self.taken:
            self.owed.add(key)

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        ready = self.ready()
        taken = self.backlog.take(self.now)
        if not ready:
            assert taken is None
            return
        assert taken is not None
        key, due = taken
        assert key in ready, "handed out before its time, twice at a time, or without being asked for"
        assert due == ready[key].due
        assert ready[key].priority == max(asked.priority for asked in ready.values())
        self.owed.discard(key)
        del self.asked[key]
        self.taken.add(key)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.taken)))
        self.backlog.done(key, self.now)
        self.taken.remove(key)

    @rule()
    def work_everything_off(self) -> None:
        """Nothing that was asked for is ever lost, above all not what was asked for during the work on it."""
        for key in sorted(self.taken):
            self.backlog.done(key, self.now)
        self.taken.clear()
        self.now += 100.0
        handed_out = []
        while taken := self.backlog.take(self.now):
            handed_out.append(taken[0])
            self.backlog.done(taken[0], self.now)
        assert sorted(handed_out) == sorted(self.asked)
        assert self.owed <= set(handed_out)
        self.asked.clear()
        self.owed.clear()

    @invariant()
    def counts_and_times_agree(self) -> None:
        assert len(self.backlog) == len(self.asked)
        assert set(self.backlog.taken) == self.taken
        assert self.backlog.ready_count(self.now) == len(self.ready())
        later = [a.due for key, a in self.asked.items() if key not in self.taken and a.due > self.now]
        assert self.backlog.next_due() == min(later, default=None)


TestBacklog = BacklogMachine.TestCase

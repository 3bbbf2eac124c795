"""Whatever jobs, people, outages and crashes do to an elastic NodeSet: no job is lost, and it comes to rest."""

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.domain.elastic.decision import CAPACITY_S, FENCED, HELD
from isthmus.model.elastic import Autoscale
from tests.properties.elastic_world import SIZE, TICK_S, Job, World

ORDINALS = st.integers(0, SIZE - 1)


class Machine(RuleBasedStateMachine):
    """All that can happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(size=st.integers(1, SIZE))
    def submit(self, size: int) -> None:
        self.world.submit(size)

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data())
    def end_job(self, data: st.DataObject) -> None:
        self.world.end(data.draw(st.sampled_from(sorted(self.world.jobs))))

    @rule(least=st.integers(0, 2), most=st.none() | st.integers(2, SIZE), warm=st.integers(0, 2))
    def change_policy(self, least: int, most: int | None, warm: int) -> None:
        self.world.policy = Autoscale(min=least, max=most, warm=warm)

    @rule(ordinal=ORDINALS, wanted=st.booleans())
    def ask_for_node(self, ordinal: int, *, wanted: bool) -> None:
        self.world.ask_for_node(ordinal, wanted=wanted)

    @rule(ordinal=ORDINALS, drained=st.booleans())
    def administrate(self, ordinal: int, *, drained: bool) -> None:
        self.world.administrate(ordinal, drained=drained)

    @rule(ordinal=ORDINALS, goes=st.booleans())
    def machine_goes(self, ordinal: int, *, goes: bool) -> None:
        self.world.machine_goes(ordinal, goes=goes)

    @rule(works=st.booleans())
    def capacity_changes(self, *, works: bool) -> None:
        self.world.capacity = works

    @rule(works=st.booleans())
    def boots_change(self, *, works: bool) -> None:
        self.world.boots = works

    @rule()
    def slurm_goes(self) -> None:
        self.world.slurm_goes()

    @rule()
    def slurm_comes(self) -> None:
        self.world.answers = True

    @rule(seconds=st.sampled_from([1, 20, 70, 310, 1900]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)

    @rule(seconds=st.sampled_from([-3600, -60, 0, 60, 3600]))
    def set_clock(self, seconds: int) -> None:
        self.world.set_clock(seconds)

    @rule()
    def kubelets_work(self) -> None:
        self.world.kubelets_work()

    @rule()
    def slurm_works(self) -> None:
        self.world.slurm_works()

    @rule()
    def operator_reads(self) -> None:
        self.world.operator_reads()

    @rule(acts=st.none() | st.integers(0, 5))
    def operator_works(self, acts: int | None) -> None:
        self.world.operator_works(acts)

    @invariant()
    def no_running_job_is_lost(self) -> None:
        assert not self.world.lost

    def teardown(self) -> None:
        """Whatever happened: with capacity, contact and time, every job runs and ends, and all comes to rest."""
        world = self.world
        world.heal()
        world.policy = Autoscale(min=1, warm=1)
        self._run(rounds=400)
        for number, job in world.jobs.items():
            raise AssertionError(f"job {number} of {job.size} nodes never began: {world.shown()}")
        self._run(rounds=120)
        assert len(world.on) == 1, f"one node is to stay on: {world.shown()}"
        assert world.agrees(), world.shown()
        before = world.shown()
        self._run(rounds=60)
        assert world.shown() == before, "it does not stand still"

    def _run(self, *, rounds: int) -> None:
        for _ in range(rounds):
            self.world.tick()
            for number in [it for it, job in self.world.jobs.items() if job.began]:
                self.world.end(number)


TestElastic = Machine.TestCase
TestElastic.settings = settings(stateful_step_count=40, deadline=None)


def test_a_node_whose_machine_goes_is_off_when_its_job_has_ended_and_starts_on_another() -> None:
    world = World()
    world.jobs[1] = Job(1)
    for _ in range(6):
        world.tick()
    assert world.jobs[1].began
    world.machine_goes(0, goes=True)
    for _ in range(6):
        world.tick()
    assert (world.on, set(world.pods)) == ({0}, {0}), "its job goes on"
    world.end(1)
    for _ in range(8):
        world.tick()
    assert not world.on | world.active | set(world.pods)
    assert world.nodes[0].starts == 1
    world.jobs[2] = Job(SIZE)
    for _ in range(6):
        world.tick()
    assert world.jobs[2].began


def test_a_gang_that_gets_no_capacity_is_not_half_started_for_longer_than_its_time() -> None:
    world = World()
    world.jobs[1] = Job(3)
    world.capacity = False
    for _ in range(int(CAPACITY_S) // TICK_S + 6):
        world.tick()
    assert not world.jobs[1].nodes, "Slurm has it back, for another NodeSet"
    assert world.hold is not None
    assert world.hold.cause == "no machine"
    assert not world.active
    assert {node.reason.partition("no machine")[0] for node in world.nodes} == {HELD, FENCED}

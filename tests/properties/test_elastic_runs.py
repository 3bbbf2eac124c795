"""Hours of an elastic NodeSet, by seeds: a storm of jobs, people and faults, then a constant load, then rest.

What holds, beside that no running job is lost:

    a gang                 is not half-started for longer than nodes may take to come
                           and starts nothing while it is larger than the policy allows
    an idle node           is on for no longer than its idle time, unless a limit or a person wants it
    under constant load    no node is started or stopped
    at rest                Slurm's power states, pods and activeNodes say the same

`ISTHMUS_SEEDS` says how many runs, or which ones: `300`, or `17,`.
"""

import random
from datetime import timedelta

import pytest

from isthmus.model.elastic import Autoscale
from tests.bed.seeds import seeds
from tests.properties.elastic_world import SIZE, TICK_S, World

HOUR = 3600 // TICK_S
SLACK_S = 12 * TICK_S
"""A few looks: each request to Slurm, a node that is started or stopped, and its pod take one."""

FAULTS = {"operator crashes": 0.15, "operator away": 0.1, "slurm goes": 0.03}
MACHINES = {"capacity changes": 0.02, "boots hang": 0.01, "one goes": 0.02}
PEOPLE = {"node asked for": 0.03, "node drained": 0.03, "policy changes": 0.02}
TIME = {"nobody looks": 0.01, "the operator's clock is set": 0.02}


class Run:
    """One run, and what was drawn for it."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - no secret
        self.world = World()
        self.policy_since = self.world.now
        self.ends: dict[int, int] = {}
        """How many more ticks a job runs."""

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def policy(self) -> Autoscale:
        most = self.draw.choice([None, *range(2, SIZE + 1)])
        idle = self.draw.choice(["", "1m", "4m", "12m"])
        return Autoscale(min=self.draw.randint(0, 2), max=most, warm=self.draw.randint(0, 2), idle_time=idle)

    # A storm

    def storm(self) -> None:
        world = self.world
        world.policy = self.policy()
        for _ in range(HOUR):
            if self.chance(0.06):
                world.submit(self.draw.randint(1, SIZE))
            self.people()
            world.capacity ^= self.chance(MACHINES["capacity changes"])
            world.boots ^= self.chance(MACHINES["boots hang"])
            if self.chance(MACHINES["one goes"]):
                world.machine_goes(self.draw.randrange(SIZE), goes=self.chance(0.7))
            if self.chance(FAULTS["slurm goes"]):
                world.slurm_goes()
            elif self.chance(0.3):
                world.answers = True
            crash = self.draw.randint(0, 5) if self.chance(FAULTS["operator crashes"]) else None
            world.tick(acts=crash, works=not self.chance(FAULTS["operator away"]))
            self.let_jobs_end()
            self.check_jobs()

    def people(self) -> None:
        world, ordinal = self.world, self.draw.randrange(SIZE)
        if self.chance(PEOPLE["node asked for"]):
            world.ask_for_node(ordinal, wanted=self.chance(0.5))
        if self.chance(PEOPLE["node drained"]):
            world.administrate(ordinal, drained=self.chance(0.5))
        if self.chance(PEOPLE["policy changes"]):
            world.policy = self.policy()
        if self.chance(TIME["nobody looks"]):
            world.now += timedelta(seconds=1900)
        if self.chance(TIME["the operator's clock is set"]):
            world.set_clock(self.draw.choice([-3600, -60, 0, 60, 3600]))

    def let_jobs_end(self) -> None:
        for number in [it for it, job in self.world.jobs.items() if job.began]:
            left = self.ends.setdefault(number, self.draw.randint(1, 60))
            self.ends[number] = left - 1
            if left <= 1:
                self.world.end(number)

    # Constant load

    def constant_load(self) -> None:
        """One job after the other, of the same size and length."""
        world = self.world
        world.heal()
        world.policy = Autoscale()  # some gangs are larger than a policy allows
        self.calm(4 * HOUR, until_empty=True)
        world.policy, self.policy_since = self.policy(), world.now
        size = self.draw.randint(1, world.policy.max or SIZE)
        length = self.draw.randint(2, 40)
        self.one_after_the_other(HOUR, size, length)
        starts, on = self.starts(), set(world.on)
        self.one_after_the_other(HOUR, size, length)
        assert self.starts() == starts, f"nodes are started again under constant load: {world.shown()}"
        assert world.on == on, f"nodes are stopped under constant load: {world.shown()}"

    def too_large(self) -> None:
        """A gang for which the policy has no room gets no node, and all of them when it has."""
        world = self.world
        self.calm(HOUR, until_empty=True)
        world.policy = Autoscale(max=self.draw.randint(1, SIZE - 1), idle_time="1m")
        self.calm(HOUR)
        starts = self.starts()
        world.submit((world.policy.max or SIZE) + 1)
        self.calm(HOUR)
        assert self.starts() == starts, f"nodes are started for a gang that cannot have all: {world.shown()}"
        world.policy = Autoscale()
        self.calm(HOUR, until_empty=True)

    def one_after_the_other(self, ticks: int, size: int, length: int) -> None:
        world = self.world
        for _ in range(ticks):
            if not world.jobs:
                world.submit(size)
                self.ends[world.serial] = length
            world.tick()
            self.let_jobs_end()
            self.check_jobs()
            self.check_idle_nodes()

    def starts(self) -> int:
        return sum(it.starts for it in self.world.nodes)

    # Rest

    def rest(self) -> None:
        world = self.world
        world.policy = self.policy()
        self.calm(HOUR)
        wanted = world.limits.floor(0)
        assert len(world.on) == wanted.nodes, f"{wanted.reason}: {world.shown()}"
        before = world.shown()
        self.calm(HOUR)
        assert world.shown() == before, "it does not stand still"
        world.policy = Autoscale()
        self.calm(HOUR)
        assert world.agrees(), world.shown()
        assert not world.on, world.shown()
        world.policy = Autoscale(min=2)
        self.calm(HOUR)
        assert (len(world.on), world.agrees()) == (2, True), world.shown()

    def calm(self, ticks: int, *, until_empty: bool = False) -> None:
        for _ in range(ticks):
            if until_empty and not self.world.jobs:
                return
            self.world.tick()
            self.let_jobs_end()
            self.check_jobs()
        assert not until_empty, f"jobs {list(self.world.jobs)} do not end: {self.world.shown()}"

    # What holds

    def check_jobs(self) -> None:
        assert not self.world.lost
        for number, job in self.world.jobs.items():
            assert job.waits_s <= job.patience_s + SLACK_S, f"job {number} is half-started: {self.world.shown()}"

    def check_idle_nodes(self) -> None:
        """While all is well: no more nodes are idle for long than the policy keeps."""
        world, limits = self.world, self.world.limits
        busy = sum(bool(it.jobs) for it in world.nodes)
        # One that was kept awake for others may rest for its time once more.
        longest = timedelta(seconds=2 * limits.idle.seconds + SLACK_S)
        idle = [it for it in world.on if not world.nodes[it].jobs and "POWER_DOWN" not in world.nodes[it].flags]
        rested = [it for it in idle if world.now - max(world.nodes[it].idle_since, self.policy_since) > longest]
        kept = limits.floor(busy)
        assert len(rested) <= kept.nodes - busy, f"{rested} are idle for no reason ({kept}): {world.shown()}"


@pytest.mark.parametrize("seed", seeds(8))
def test_no_job_is_lost_and_no_node_is_on_for_nothing(seed: int) -> None:
    run = Run(seed)
    run.storm()
    run.constant_load()
    run.too_large()
    run.rest()

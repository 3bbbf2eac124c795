"""Whatever breaks, whoever drains, and however often the loop dies: only bad nodes go, and all come back.

Each seed is a plan for 200 nodes of a real slurmctld. Checks find them bad, or lie; machines hang and disks fill;
people drain and resume; jobs come and go; slurmctld goes away in the middle; and the loop is killed between any two
steps. After each step, and in the end:

    no job that runs is ended, and no pod or machine goes while one is there
    no more nodes are out than the limits of their NodeSet and block allow, and one machine reboots at a time
    no node returns before what condemned it has passed, or a human has opened it
    no drain of a human is lifted
    and when all is well, all nodes are back, and nothing is written any more

One seed runs in `make test`, many in `make soak`. A seed that failed is run again by its number:

    ISTHMUS_SEEDS=17, .venv/bin/pytest tests/flows/health/test_storms.py
"""

import asyncio
import math
import random
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from isthmus.kube.client import Client
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import connect
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.seeds import seeds
from tests.bed.slurm import SlurmBed
from tests.flows.health.bed import CHECK, HealthBed, running
from tests.flows.health.storm_bed import LIAR, POLICY, Storm, StormPods
from tests.flows.kube.waiting import eventually
from tests.flows.slurm.helpers import QUICK

SHORT_LIVES = 7
DEEDS_OF_A_LIFE = (1, 2, 3, 5, 8, 13, 40)
LONGEST_PAUSE_S = 0.4
SETTLES_WITHIN_S = 180.0
LOOK_S = 0.05
WHOLE_WAY = {"Record", "Drain", "Climb restartPod", "Reserve", "RunTest", "Unreserve"}

Deed = Callable[[], Awaitable[None]]


@pytest.mark.parametrize("seed", seeds(1))
async def test_only_bad_nodes_go_and_all_come_back(
    seed: int, control_plane: ControlPlaneBed, namespace: str, kube: Client, slurm_bed: Callable[..., SlurmBed]
) -> None:
    bed = slurm_bed("26.05", nodes=0, accounting=False, settings=QUICK)
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key, user="slurm")) as slurm:
        storm = Storm(kube, slurm, bed, namespace=namespace, choose=_chooser(seed, "what happens"))
        processes = Processes(storm, control_plane, _chooser(seed, "deaths"))
        try:
            await processes.configure()
            await storm.prepare()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(processes.live())
                tasks.create_task(processes.attend())
                await blow(storm, processes)
                processes.end()
        except BaseException:
            told = "\n  ".join([f"seed {seed}, in {processes.lives} lives, which did {storm.done}:", *storm.story])
            again = f"ISTHMUS_SEEDS={seed}, .venv/bin/pytest tests/flows/health/test_storms.py"
            sys.stderr.write(f"{told}\nrepeat it: {again}\n")
            raise
    # Otherwise there was no storm.
    assert {"Record", "Drain", "Climb restartPod", "Reserve", "RunTest", "Unreserve"} <= storm.done.keys(), (
        storm.done
    )
    assert processes.lives > 1


def _chooser(seed: int, what: str) -> random.Random:
    """One for each who chooses, so that none depends on how fast others are."""
    return random.Random(f"{seed}: {what}")  # noqa: S311 - to be repeated


class Processes:
    """The loop, each time killed after some actions, and the NodeSets and kubelets beside it."""

    def __init__(self, storm: Storm, control_plane: ControlPlaneBed, choose: random.Random) -> None:
        self._storm = storm
        self._control_plane = control_plane
        self._choose = choose
        self._over = False
        self._struck = asyncio.Event()
        self.lives = 0

    async def configure(self) -> None:
        """Make the policy and the checks."""
        async with running(self._control_plane, self._storm.namespace, self._storm.bed, grace=0.0) as life:
            await life.policy(**POLICY)
            await life.check(CHECK)
            await life.check(LIAR)

    async def live(self) -> None:
        storm = self._storm
        while not self._over:
            self.lives += 1
            most = self._choose.choice(DEEDS_OF_A_LIFE) if self.lives <= SHORT_LIVES else math.inf
            struck = self._struck = asyncio.Event()

            def begin(life: HealthBed, struck: asyncio.Event = struck, most: float = most) -> None:
                storm.watch(life, struck, most)

            async with running(
                self._control_plane,
                storm.namespace,
                storm.bed,
                execution=StormPods(storm),
                grace=0.0,
                before=begin,
            ) as life:
                storm.tell(f"life {self.lives} begins, for {most} actions")
                storm.life = life
                if not self._over:
                    await struck.wait()
                storm.life = None

    async def attend(self) -> None:
        while not self._over:
            if (life := self._storm.life) is not None:
                await self._storm.attend(life)
            await asyncio.sleep(LOOK_S)

    def end(self) -> None:
        self._over = True
        self._struck.set()


async def blow(storm: Storm, processes: Processes) -> None:
    """Let things happen, with slurmctld away in the middle; then let all be well, and look."""
    choose = storm.choose
    deeds: list[Deed] = [
        *(partial(storm.nodes_break, most) for most in (4, 6)),
        *(partial(storm.humans_drain, 3) for _ in range(2)),
        *(partial(storm.humans_resume, 4) for _ in range(2)),
        partial(storm.machines_hang, 3),
        partial(storm.disks_fill, 3),
        partial(storm.jobs_start, 4),
        partial(storm.jobs_end, 4),
        partial(storm.something_passes, 2),
        storm.check_lies,
        storm.check_runs,
    ]
    choose.shuffle(deeds)
    middle = len(deeds) // 2
    first: list[Deed] = [partial(storm.jobs_start, 6), partial(storm.nodes_break, 16)]
    outage: list[Deed] = [partial(slurmctld_is_away, storm, killed=choose.random() < 0.5)]
    for deed in [*first, *deeds[:middle], *outage, *deeds[middle:]]:
        await deed()
        await storm.audit()
        await asyncio.sleep(choose.uniform(0.0, LONGEST_PAUSE_S))
    await storm.all_is_well()
    await settled(storm)
    life = await eventually(lambda: storm.life, "the loop lives")
    assert life
    await life.settled()
    await storm.audit()
    assert await storm.left() == []
    storm.tell(f"settled, in {processes.lives} lives")


async def slurmctld_is_away(storm: Storm, *, killed: bool) -> None:
    """Meanwhile more breaks and something passes."""
    await storm.slurmctld_goes(killed=killed)
    await eventually(lambda: storm.life is None or not _in_touch(storm.life), "the loop sees it")
    await storm.nodes_break(3)
    await storm.machines_hang(1)
    await storm.something_passes(2)
    await asyncio.sleep(storm.choose.uniform(0.0, LONGEST_PAUSE_S))
    await storm.slurmctld_comes(killed=killed)


def _in_touch(life: HealthBed) -> bool:
    return life.world.operator.slurms.in_touch(life.cluster)


async def settled(storm: Storm) -> None:
    """Wait until all nodes are back; people open those that were given to them."""
    try:
        async with asyncio.timeout(SETTLES_WITHIN_S):
            while await storm.left():
                await storm.audit()
                await storm.humans_decide()
                await asyncio.sleep(LONGEST_PAUSE_S)
    except TimeoutError:
        raise AssertionError(f"after {SETTLES_WITHIN_S:.0f} s: {await storm.left()}") from None

"""Runs of checks while processes end, answers get lost and Slurm is away."""

from collections.abc import Callable, Iterator

import pytest

from isthmus import names
from isthmus.domain.health.activechecks import plan as plans
from isthmus.domain.health.activechecks.plan import Part
from isthmus.kube.client import Client
from isthmus.model.meta import Key
from isthmus.model.workload import CHECK_JOBS
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Faults
from tests.bed.slurm import SlurmBed
from tests.flows.health.checks_bed import working
from tests.flows.health.conftest import clean
from tests.flows.kube.waiting import eventually

NEWEST = pytest.mark.parametrize("slurm_version", ["26.05"])
SUBMIT = "*/job/submit"
WAITS = "while [[ ! -e /tmp/go ]]; do sleep 0.1; done"


@pytest.fixture
def pair(slurm_version: str, shared_slurm: Callable[..., SlurmBed]) -> Iterator[SlurmBed]:
    """A Slurm with two nodes, which is left as it was found."""
    bed = shared_slurm(slurm_version, nodes=2, accounting=False)
    yield bed
    bed.path("/tmp/go").unlink(missing_ok=True)  # noqa: S108 - in the bed
    clean(bed)


def submitted(bed: SlurmBed, name: str) -> list[str]:
    """The ids of all jobs of a check that Slurm knows."""
    return bed.command("squeue", "--noheader", "--states=all", f"--name={name}", "--format=%A").split()


def go(bed: SlurmBed) -> None:
    bed.path("/tmp/go").touch()  # noqa: S108 - in the bed


async def test_a_run_goes_on_in_the_next_process(
    control_plane: ControlPlaneBed, namespace: str, pair: SlurmBed
) -> None:
    async with working(control_plane, namespace, pair) as first:
        await first.check("kept", f"{WAITS}; [[ $SLURMD_NODENAME != n2 ]]")
        await first.until_job(
            "kept-initial-run",
            lambda it: it.metadata.annotations.get(names.SLURM_JOBS_ANNOTATION, "").count(",") == 1,
        )
    go(pair)
    async with working(control_plane, namespace, pair) as second:
        await second.ends("kept", "Failed")
        assert second.results("kept") == {"n2": "Failed"}
    assert len(submitted(pair, "kept")) == 2


@NEWEST
async def test_jobs_that_nobody_wrote_down_are_found_and_not_submitted_again(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, pair: SlurmBed
) -> None:
    async with working(control_plane, namespace, pair) as first:
        await first.check("doubt", WAITS)
        await first.until_job(
            "doubt-initial-run",
            lambda it: it.metadata.annotations.get(names.SLURM_JOBS_ANNOTATION, "").count(",") == 1,
        )
    # As if the process had ended after it submitted, and before it wrote.
    key = Key(namespace, "doubt-initial-run")
    text = (await kube.get(CHECK_JOBS, key)).metadata.annotations[names.CHECK_PLAN_ANNOTATION]
    plan = plans.decode(text)
    bare = plans.Plan(parts=tuple(Part(it.nodes) for it in plan.parts), each=True, begun=plan.begun)
    marks = {names.CHECK_PLAN_ANNOTATION: plans.encode(bare), names.SLURM_JOBS_ANNOTATION: ""}
    await kube.merge_patch(CHECK_JOBS, key, {"metadata": {"annotations": marks}})
    async with working(control_plane, namespace, pair) as second:
        await second.until_job(
            "doubt-initial-run",
            lambda it: it.metadata.annotations.get(names.SLURM_JOBS_ANNOTATION, "").count(",") == 1,
        )
        go(pair)
        await second.ends("doubt", "Complete")
        assert second.get("doubt").status.passed == 2
    assert len(submitted(pair, "doubt")) == 2


@NEWEST
async def test_a_lost_answer_makes_no_second_job_and_an_outage_no_error(
    control_plane: ControlPlaneBed, namespace: str, pair: SlurmBed, faults: Faults
) -> None:
    async with (
        faults.in_front_of(pair.rest_url) as proxy,
        working(control_plane, namespace, pair, url=proxy.url) as checks,
    ):
        proxy.lose_answer(method="POST", path=SUBMIT, times=1)
        await checks.check("once", WAITS)
        await checks.until_job(
            "once-initial-run",
            lambda it: it.metadata.annotations.get(names.SLURM_JOBS_ANNOTATION, "").count(",") == 1,
        )
        assert len(submitted(pair, "once")) == 2
        proxy.refuse()
        await eventually(lambda: not checks.slurm.in_touch)
        go(pair)
        proxy.heal()
        await checks.ends("once", "Complete")
        assert checks.get("once").status.passed == 2
    assert len(submitted(pair, "once")) == 2


async def test_a_job_that_slurm_has_lost_is_an_error(
    control_plane: ControlPlaneBed, namespace: str, slurm_bed: Callable[..., SlurmBed]
) -> None:
    bed = slurm_bed("26.05", nodes=1, accounting=False, settings={"MinJobAge": "2"})
    async with working(control_plane, namespace, bed) as first:
        await first.check("lost", WAITS)
        await first.until_job(
            "lost-initial-run", lambda it: it.metadata.annotations.get(names.SLURM_JOBS_ANNOTATION)
        )
    go(bed)
    await eventually(lambda: not submitted(bed, "lost"))
    async with working(control_plane, namespace, bed) as second:
        await second.ends("lost", "Error")
        assert second.results("lost") == {"n1": "Error"}
        assert "no record" in second.nodes("lost")["n1"].evidence

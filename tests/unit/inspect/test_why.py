"""`isthmus why` with Slurm alone, and with a side that is silent or not there."""

import pytest

from isthmus.bridge.config import Config
from isthmus.cli.why import lines
from isthmus.domain.views.targets import JobTarget, PodTarget
from isthmus.errors import Terminal
from isthmus.inspect.why import why
from isthmus.inspect.worlds import KUBERNETES, SLURM, Observation, SilentError
from isthmus.model.slurm import Job, Node, Number

NOW = 1_800_000_000.0


async def test_a_job_is_explained_from_slurm_alone() -> None:
    first = Job(1, ("RUNNING",), partition="main", user_name="bob", nodes="n1", start_time=Number.of(NOW - 60))
    waits = Job(2, ("PENDING",), "\x1b]mine", "Resources", partition="main", user_name="ann", priority=Number.of(5))
    observed = Observation(
        (first, waits), (Node("n1", partitions=("main",)),), absent={KUBERNETES: "no kubeconfig"}
    )
    found = await why(observed, Config(), JobTarget("2"), now=NOW)
    assert [it.job_id for it in found.blockers] == [1]
    text = "\n".join(lines(found, now=NOW))
    assert "Job 2 �]mine of ann: PENDING" in text
    assert "too few CPUs, memory or devices are free" in text
    assert "job 1 of bob runs, without a time limit" in text


async def test_pods_without_kubernetes_lead_to_their_job() -> None:
    with pytest.raises(Terminal, match="no kubeconfig") as raised:
        await why(Observation(absent={KUBERNETES: "no kubeconfig"}), Config(), PodTarget("p"), now=NOW)
    assert "isthmus why JOB" in raised.value.remedy


async def test_unknown_jobs_and_a_silent_slurm_differ() -> None:
    with pytest.raises(Terminal, match=r"Slurm does not know job 3 \(any more\)"):
        await why(Observation(), Config(), JobTarget("3"), now=NOW)
    with pytest.raises(SilentError, match="no contact"):
        await why(Observation(troubles={SLURM: "no contact"}), Config(), JobTarget("3"), now=NOW)
    with pytest.raises(Terminal, match="no squeue"):
        await why(Observation(absent={SLURM: "no squeue"}), Config(), JobTarget("3"), now=NOW)

"""Whatever the jobs and the policy: each job runs once, limits hold, and every node-second is accounted for."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.domain.elastic.scalers import Elastic, Keda, PowerSaving, Static
from isthmus.domain.elastic.simulation import Machine, Outcome, Scaler, simulate
from isthmus.domain.elastic.traces import Job, Trace
from isthmus.model.elastic import Autoscale

START = datetime(2026, 1, 5, tzinfo=UTC).timestamp()
SIZE = 6
CLOCKS = ("00:00", "00:20", "01:00", "07:30", "23:00")


@st.composite
def traces(draw: st.DrawFn, *, widest: int = SIZE) -> Trace:
    jobs = draw(
        st.lists(
            st.tuples(
                st.integers(0, 20_000),
                st.integers(1, widest),
                st.integers(1, 5_000),
                st.integers(0, 10_000),
                st.integers(0, 3),
            ),
            min_size=1,
            max_size=25,
        )
    )
    made = [
        Job(str(place), START + submit, nodes, runtime, max(limit, runtime), priority)
        for place, (submit, nodes, runtime, limit, priority) in enumerate(sorted(jobs))
    ]
    return Trace(tuple(made))


@st.composite
def policies(draw: st.DrawFn) -> Autoscale:
    fields: dict[str, Any] = {
        "min": draw(st.integers(0, 3)),
        "max": draw(st.none() | st.integers(3, SIZE)),
        "warm": draw(st.integers(0, SIZE)),
        "idleTime": draw(st.sampled_from(("1s", "1m", "20m"))),
    }
    if draw(st.booleans()):
        fields["budget"] = {"nodeHoursPerDay": draw(st.sampled_from((0.1, 1, 50)))}
    entries = draw(
        st.lists(st.tuples(st.sampled_from(CLOCKS), st.sampled_from(CLOCKS), st.integers(0, SIZE)), max_size=2)
    )
    fields["schedule"] = [{"from": begin, "to": end, "max": most} for begin, end, most in entries]
    return msgspec.convert(fields, Autoscale)


machines = st.builds(
    Machine,
    boots=st.lists(st.sampled_from((0.0, 5.0, 60.0, 700.0)), min_size=1, max_size=3).map(tuple),
    stop=st.sampled_from((0.0, 30.0)),
)


def sound(trace: Trace, outcome: Outcome, *, most: int = SIZE) -> None:
    """What holds for every run."""
    ran = [it.job.name for it in outcome.records if it.end > it.start]
    assert len(ran) == len(set(ran)), "a job ran twice"
    assert {*ran, *(it.name for it in outcome.unstarted)} == {it.name for it in trace.jobs}
    assert len(ran) + len(outcome.unstarted) == len(trace.jobs)
    for it in outcome.records:
        assert it.job.submit <= it.allocated <= it.start
        assert it.end == it.start + it.job.runtime
    assert all(0 <= busy <= on <= SIZE for _, on, busy in outcome.levels)
    assert outcome.peak <= most
    at_once = sorted(
        (time, change)
        for it in outcome.records
        for time, change in ((it.start, it.job.nodes), (it.end, -it.job.nodes))
    )
    running = 0
    for _, change in at_once:
        running += change
        assert running <= SIZE
    lasted = [*(it[0] for it in outcome.levels[1:]), outcome.end]
    seconds = sum(on * (until - since) for (since, on, _), until in zip(outcome.levels, lasted, strict=True))
    assert outcome.spent.total == pytest.approx(seconds)
    assert outcome.spent.busy == pytest.approx(sum(it.job.nodes * it.job.runtime for it in outcome.records))


@given(trace=traces(), machine=machines, idle=st.sampled_from((1.0, 60.0, 3000.0)))
def test_every_way_runs_each_job_once_and_accounts_for_every_second(
    trace: Trace, machine: Machine, idle: float
) -> None:
    for scaler in (Static(), PowerSaving(idle)):
        found = simulate(trace, size=SIZE, scaler=scaler, machine=machine)
        sound(trace, found)
        assert found.unstarted == ()


@given(trace=traces(), machine=machines)
def test_the_recipe_of_keda_comes_to_an_end(trace: Trace, machine: Machine) -> None:
    sound(trace, simulate(trace, size=SIZE, scaler=Keda(), machine=machine))


@given(trace=traces(), machine=machines, policy=policies())
def test_a_policy_is_kept(trace: Trace, machine: Machine, policy: Autoscale) -> None:
    found = simulate(trace, size=SIZE, scaler=Elastic(policy), machine=machine)
    most = max((policy.max or SIZE, *(it.max or 0 for it in policy.schedule)))
    sound(trace, found, most=most)
    if not policy.schedule and not policy.budget:
        assert {it.name for it in found.unstarted} == {it.name for it in trace.jobs if it.nodes > most}


@settings(max_examples=30)
@given(trace=traces(widest=1), machine=machines, policy=policies())
def test_nobody_waits_less_than_on_a_static_cluster_where_jobs_are_alike(
    trace: Trace, machine: Machine, policy: Autoscale
) -> None:
    """With jobs of several sizes, a delay can be luck for others; with one size and run time it cannot."""
    alike = Trace(tuple(Job(it.name, it.submit, 1, 500.0, 500.0) for it in trace.jobs))
    scalers: tuple[Scaler, ...] = (PowerSaving(60), Keda(), Elastic(policy))
    best = sorted(it.start for it in simulate(alike, size=SIZE, scaler=Static(), machine=machine).records)
    for scaler in scalers:
        found = simulate(alike, size=SIZE, scaler=scaler, machine=machine)
        later = sorted(it.start for it in found.records)
        assert all(one <= other for one, other in zip(best, later, strict=False))

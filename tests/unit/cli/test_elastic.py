"""`isthmus elastic` as a person sees it, as far as no Kubernetes is needed."""

import json
from pathlib import Path

import click
import pytest
from typer.testing import CliRunner

from isthmus.cli import elastic
from isthmus.cli.main import app
from isthmus.domain.elastic.outlook import Decision, Supply, WaitingJob
from isthmus.errors import Terminal
from isthmus.inspect.elastic import Demand, Overview
from tests.unit.cli.helping import help_of

TRACE = """\
; MaxNodes: 4
; MaxProcs: 4
1 0 -1 600 1 -1 -1 1 900 -1 1 -1 -1 -1 -1 -1 -1 -1
2 30 -1 600 3 -1 -1 3 900 -1 1 -1 -1 -1 -1 -1 -1 -1
3 9000 -1 600 9 -1 -1 9 900 -1 1 -1 -1 -1 -1 -1 -1 -1
"""
FOUND = Overview(
    clusters=(
        Demand(
            name="hpc/demo",
            waiting=(
                WaitingJob("7", "alice", 3, "PENDING", "Resources"),
                WaitingJob("8", "bob", 2, "CONFIGURING", "None"),
            ),
        ),
        Demand(name="hpc/away", trouble="no login or controller pod runs"),
    ),
    nodesets=(
        Supply(
            name="hpc/gpu",
            cluster="demo",
            announced=10,
            on=2,
            starting=1,
            limits="0 to 8, 2 warm, idle 60 s",
            decisions=(Decision(940.0, "PowerUpRequested", "gpu-2: 0 with jobs and 2 warm"),),
            next_step="starting or stopping: gpu-2",
        ),
    ),
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    made = tmp_path / "trace.swf"
    made.write_text(TRACE)
    return made


def run(*words: str) -> str:
    done = CliRunner().invoke(app, ["elastic", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_demand_supply_and_decisions_are_shown_and_a_slurm_that_is_silent_is_named() -> None:
    text = click.unstyle("\n".join(elastic.overview(FOUND, now=1000.0)))
    assert "hpc/demo: 2 jobs wait for 5 nodes, 1 of them for nodes that are starting" in text
    assert "job 7 of alice: 3 nodes, PENDING, Resources" in text
    assert "job 8 of bob: 2 nodes, its nodes are starting" in text
    assert "hpc/away: Slurm does not answer: no login or controller pod runs" in text
    assert "hpc/gpu   demo      10          2    1          0          7     0" in text
    assert "PowerUpRequested   gpu-2: 0 with jobs and 2 warm" in text


def test_one_job_is_not_called_jobs() -> None:
    alone = Overview(clusters=(Demand(name="c", waiting=(WaitingJob("7", "alice", 1, "PENDING", "Resources"),)),))
    first, second, *_ = elastic.overview(alone, now=0.0)
    assert first == "c: 1 job waits for 1 node, 0 of them for nodes that are starting"
    assert second == "  job 7 of alice: 1 node, PENDING, Resources"


def test_the_limits_that_keep_a_job_from_starting_stand_beside_it() -> None:
    limit = "NodeSets allow no more than 2 nodes (hpc/gpu: autoscale.max is 2)"
    job = WaitingJob("7", "alice", 3, "PENDING", "Resources", limit)
    _, line, *_ = elastic.overview(Overview(clusters=(Demand(name="c", waiting=(job,)),)), now=0.0)
    assert line == f"  job 7 of alice: 3 nodes, PENDING, Resources: {limit}"


def test_without_elastic_nodesets_it_says_how_to_get_one() -> None:
    (line,) = elastic.overview(Overview(), now=0.0)
    assert "spec.autoscale" in line


def test_a_simulation_is_a_table_with_all_ways(trace: Path, tmp_path: Path) -> None:
    plot = tmp_path / "out.svg"
    text = run("simulate", "--trace", str(trace), "--boot", "30s,1m", "--plot", str(plot))
    assert "3 jobs on 4 nodes" in text
    for name in ("policy", "power saving", "keda", "static"):
        assert f"\n{name}" in text
    assert "policy: 1 jobs never got nodes" in text
    assert plot.read_text().startswith("<svg ")


def test_a_simulation_takes_the_policy_of_a_nodeset_and_prints_json(trace: Path, tmp_path: Path) -> None:
    policy = tmp_path / "nodeset.yaml"
    policy.write_text("kind: NodeSet\nspec: {replicas: 9, autoscale: {min: 9}}\n")
    found = json.loads(run("simulate", "--trace", str(trace), "--policy", str(policy), "--json"))
    assert (found["nodes"], found["jobs"], found["skipped"]) == (9, 3, 0)
    assert found["ways"]["policy"]["boots"] == 0
    assert found["ways"]["policy"]["wait"]["mean"] == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("warm: [", "is not YAML"),
        ("just text", "has no policy"),
        ("warm: many", "Expected `int`"),
        ("warmth: 2", "unknown fields: warmth"),
        ("{min: 3, max: 2}", "min: 3 is more than max, 2"),
    ],
)
def test_a_policy_that_is_none_is_refused_with_the_reason(trace: Path, tmp_path: Path, text: str, why: str) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(text)
    with pytest.raises(Terminal, match=why):
        run("simulate", "--trace", str(trace), "--policy", str(policy))


def test_a_file_that_is_not_there_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match="cannot be read: No such file"):
        run("simulate", "--trace", str(tmp_path / "none"))


def test_help_says_what_it_does() -> None:
    assert "simulate" in help_of(["elastic"])
    assert "sacct --parsable2" in help_of(["elastic", "simulate"])

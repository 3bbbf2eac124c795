"""A real Prometheus scrapes a real exporter of a real Slurm: boards have data, and alerts fire from real causes."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from isthmus.exporter.settings import Settings
from isthmus.processes import exporter as process
from tests.bed.addresses import loopback_address
from tests.bed.promtool import Prometheus, prometheus
from tests.bed.slurm import VERSIONS, SlurmBed
from tests.bed.waiting import eventually
from tests.unit.monitoring import expressions
from tests.unit.monitoring.expressions import DASHBOARDS, ROOT, RULES

BOARDS = ("overview", "queue", "nodes", "users", "controller")
ELSEWHERE = ("bridge", "operator")
"""Boards of other processes: see `test_board` in their flows."""
# What is not in this Slurm, or happens to no node within a minute.
NO_DATA = {
    "overview: GPUs allocated": "no node has a GPU",
    "overview: Alerts that fire": "none does",
    "overview: Groups of pods waiting": "there is no bridge",
    "queue: Requeued and preempted per minute": "no job was preempted",
    "nodes: GPUs allocated, by partition": "no node has a GPU",
    "nodes: How long nodes were out": "none came back",
    "nodes: Drains by the operator, per hour": "it is not of the exporter",
    "nodes: Failures by node, per day": "a counter that begins with 1 has not risen",
    "nodes: Node health, by phase": "there is no soperatorchecks",
    "nodes: Runs of checks, per hour": "likewise",
    "users: GPUs by user": "no node has a GPU",
    "controller: State volume free": "it is not in Kubernetes",
}


SOON = "Soon"  # in front, so that the boards do not show these alerts
IMPATIENT: dict[str, dict[str, float]] = {
    "IsthmusSlurmctldUnreachable": {},
    "IsthmusExporterDataStale": {"seconds": 15},
    "IsthmusAccountingDown": {},
    "IsthmusDbdBacklog": {"messages": 0},
    "IsthmusNodesDown": {"ratio": 0.05},
    "IsthmusDrainStuck": {"drainingSeconds": 1, "drainedSeconds": 1},
}


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmBed]:
    settings = {
        "Licenses": "matlab:10",
        "PriorityType": "priority/multifactor",
        "MinJobAge": "3600",
        "SlurmdTimeout": "5",
    }
    with SlurmBed(VERSIONS[0], nodes=2, settings=settings) as bed:
        bed.command("sacctmgr", "-i", "add", "account", "physics", "GrpJobs=7")
        bed.command("sacctmgr", "-i", "add", "user", "root", "account=physics")
        yield bed


@pytest.fixture
async def server(slurm: SlurmBed, tmp_path: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus with our rules, which scrapes an exporter every second."""
    token = tmp_path / "token"
    token.write_text(slurm.token())
    (tmp_path / "rules.yaml").write_text(RULES.read_text())
    (tmp_path / "impatient.yaml").write_text(yaml.safe_dump({"groups": [{"name": "soon", "rules": _impatient()}]}))
    config: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml", "impatient.yaml"],
    }
    with loopback_address() as address:
        options = process.Options(
            servers=(slurm.rest_url,),
            token_file=token,
            metrics_address=f"{address}:8080",
            monitoring_address=f"{address}:8081",
            settings=Settings(interval=1.0),
        )
        target = {"targets": [options.metrics_address], "labels": {"namespace": "hpc", "pod": "exporter-0"}}
        config["scrape_configs"] = [
            {"job_name": "slurm-exporter", "honor_labels": True, "static_configs": [target]}
        ]
        async with asyncio.TaskGroup() as group:
            running = group.create_task(process.run(options))
            with prometheus(tmp_path, config) as found:
                yield found
            running.cancel()


async def test_every_query_has_data_or_a_known_reason_why_not(
    slurm: SlurmBed, server: Prometheus, tmp_path: Path
) -> None:
    def work_and_look() -> None:
        eventually(lambda: server.query("isthmus_slurm_nodes"), "the first scrape")
        _end_jobs(slurm)
        # A counter that begins with 1 has not risen: what happens once is not seen in a rate.
        eventually(lambda: server.query('isthmus_slurm_jobs_ended_total{state="failed"}'), "a failed job")
        _end_jobs(slurm)
        _fill(slurm)
        eventually(
            lambda: sorted(where for where, expr in asked if not server.query(expr)),
            f"no data for {sorted(NO_DATA)}",
            holds=lambda empty: set(empty) == NO_DATA.keys(),
        )

    asked = [it for it in expressions.of_dashboards() if it[0].partition(":")[0] in BOARDS]
    assert len(asked) > 100
    assert {it.stem for it in DASHBOARDS} == {*BOARDS, *ELSEWHERE}
    await asyncio.to_thread(work_and_look)
    drawn = await asyncio.to_thread(_draw, server, tmp_path)
    assert len(drawn) == len(DASHBOARDS)
    assert "n2" in drawn["board-nodes.svg"]
    assert drawn["board-overview.svg"].count("no data") == 3  # GPUs, alerts, the bridge
    rules = [rule for rule in server.rules() if not rule["name"].startswith(SOON)]
    assert len(rules) == len(expressions.rules())
    assert not {rule["name"]: rule["lastError"] for rule in rules if rule["health"] == "err"}
    # A scrape that a busy machine missed is the beginning of an alert.
    await asyncio.to_thread(eventually, lambda: _alerts(server), "no alert", holds=lambda it: not it)


async def test_alerts_fire_from_their_causes_and_end_with_them(slurm: SlurmBed, server: Prometheus) -> None:
    def firing() -> set[str]:
        found = server.query('ALERTS{alertstate="firing",alertname=~"Soon.*"}')
        return {it["metric"]["alertname"].removeprefix(SOON) for it in found}

    def fires(*alerts: str) -> None:
        eventually(firing, f"{alerts} to fire", holds=lambda it: it >= set(alerts))

    def is_over() -> None:
        eventually(firing, "all alerts to end", holds=lambda it: not it)

    def play() -> None:
        eventually(lambda: server.query("isthmus_slurm_accounting_up == 1"), "the first scrape")
        slurm.scontrol("update", "NodeName=n2", "State=DRAIN", "Reason=the fan")
        fires("IsthmusDrainStuck")
        slurm.scontrol("update", "NodeName=n2", "State=RESUME")
        is_over()
        slurm.kill("slurmd-n2")
        fires("IsthmusNodesDown")
        slurm.start("slurmd-n2")
        is_over()
        slurm.stop("slurmdbd")
        slurm.submit(script="true")
        fires("IsthmusAccountingDown", "IsthmusDbdBacklog")
        slurm.start("slurmdbd")
        is_over()
        slurm.kill("slurmctld")
        fires("IsthmusSlurmctldUnreachable", "IsthmusExporterDataStale")
        slurm.start("slurmctld")
        is_over()

    await asyncio.to_thread(play)


def _alerts(server: Prometheus) -> list[str]:
    return [it["name"] for it in server.rules() if it.get("alerts") and not it["name"].startswith(SOON)]


def _draw(server: Prometheus, directory: Path) -> dict[str, str]:
    """Draw the boards, and return the words of each picture."""
    out = directory / "pictures"
    script = ROOT / "scripts" / "plots"
    subprocess.run([sys.executable, script, server.url, "--minutes=2", f"--out={out}"], check=True)
    return {it.name: " ".join(ET.fromstring(it.read_text()).itertext()) for it in out.glob("*.svg")}  # noqa: S314 - ours


def _impatient() -> list[dict[str, Any]]:
    """The same alerts with thresholds that are reached within seconds."""
    made = []
    for rule in expressions.alerts():
        if (thresholds := IMPATIENT.get(rule["alert"])) is not None:
            expr = rule["expr"]
            for name, value in thresholds.items():
                expr = re.sub(rf"[.0-9]+ # {name}\b", str(value), expr)
            made.append({"alert": f"{SOON}{rule['alert']}", "expr": expr})
    return made


def _end_jobs(bed: SlurmBed) -> None:
    for script in ("true", "exit 3"):
        bed.submit(script=script)


def _fill(bed: SlurmBed) -> None:
    """Have jobs that run, wait and are requeued, a drained node and a reservation."""
    requeued = bed.submit("--licenses=matlab:2", "--requeue", "--nodelist=n1", script="sleep 3600")
    eventually(lambda: bed.command("squeue", "-h", "-j", requeued, "-o%T").strip() == "RUNNING", "the job to run")
    bed.scontrol("requeue", requeued)
    bed.submit("--nodelist=n1", script="sleep 3600")
    bed.submit("--nodes=2", "--exclusive", script="true")
    bed.scontrol("update", "NodeName=n2", "State=DRAIN", "Reason=the fan")
    when = ("StartTime=now+3600", "Duration=60", "Nodes=n2", "Users=root")
    bed.scontrol("create", "reservation", "ReservationName=repair", *when)

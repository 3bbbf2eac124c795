"""What slurm.conf says of nodes that Slurm starts and stops."""

import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from isthmus import names
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.slurmfiles import Inputs, Workers, files, slurm_conf
from isthmus.domain.operator.slurmfiles import power as saving
from isthmus.model.slinky import Controller, NodeSet

VERSIONS = ("24.11.5", "26.05.1")


def nodeset(name: str = "w", **spec: object) -> NodeSet:
    given = {
        "controllerRef": {"name": "slurm"},
        "replicas": 4,
        "autoscale": {},
        "slurmd": {"resources": {"limits": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"}}},
        **spec,
    }
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": given}, NodeSet)


def inputs(*nodesets: NodeSet, version: str = "26.05.1", extra: str = "") -> Inputs:
    controller = {"metadata": {"name": "slurm", "namespace": "ns"}, "spec": {"extraConf": extra}}
    return Inputs(
        controller=msgspec.convert(controller, Controller),
        settings=Settings(cgroup="none"),
        workers=tuple(Workers.of(it) for it in nodesets),
        version=version,
    )


def lines(text: str, *keys: str) -> list[str]:
    return [line for line in text.splitlines() if line.partition("=")[0] in keys]


def test_nodes_that_are_off_are_announced_with_all_that_they_will_have() -> None:
    text = slurm_conf(inputs(nodeset(extraConf="Feature=fast")))
    assert lines(text, "NodeName") == [
        "NodeName=w-[0-3] CPUs=4 RealMemory=8192 Gres=gpu:2 Feature=fast,w State=CLOUD SuspendTime=300"
    ]
    assert "NodeAddr" not in text, "there is no name to look up before there is a pod"
    assert lines(text, "SuspendTime") == [], "no other node may ever be powered down"


def test_a_release_without_a_time_for_each_node_has_it_from_a_partition_that_nobody_uses() -> None:
    text = slurm_conf(inputs(nodeset(autoscale={"idleTime": "10m"}), version="24.11.5"))
    assert "SuspendTime" not in lines(text, "NodeName")[0]
    assert "PartitionName=w-power Nodes=w Hidden=YES State=INACTIVE SuspendTime=600" in text.splitlines()


def test_the_partition_of_all_nodes_stays_the_default() -> None:
    for version in VERSIONS:
        assert "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE" in slurm_conf(
            inputs(nodeset(), version=version)
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_settings_of_the_whole_cluster(version: str) -> None:
    grace = {"spec": {"terminationGracePeriodSeconds": 90}}
    found = dict(
        line.split("=", 1) for line in slurm_conf(inputs(nodeset(template=grace), version=version)).splitlines()[1:]
    )
    assert found["ResumeProgram"] == "/etc/slurm/power-resume"
    assert found["SuspendProgram"] == "/etc/slurm/power-suspend"
    assert found["ResumeFailProgram"] == "/etc/slurm/power-resume-failed"
    assert found["PrologSlurmctld"] == "/etc/slurm/power-wait"
    assert (found["ResumeTimeout"], found["SuspendTimeout"]) == ("1800", "120")
    assert (found["ResumeRate"], found["SuspendRate"]) == ("0", "0")
    assert found["SuspendExcStates"] == "DOWN,DRAIN,FAIL"
    for option in ("enable_configless", "idle_on_node_suspend", "power_save_interval=1"):
        assert option in found["SlurmctldParameters"].split(",")
    for option in ("bf_continue", "salloc_wait_nodes", "sbatch_wait_nodes", "requeue_on_resume_failure"):
        assert option in found["SchedulerParameters"].split(",")


def test_options_of_the_user_stay_beside_ours() -> None:
    extra = "SchedulerParameters=defer\nSlurmctldParameters=max_powered_nodes=3\nResumeTimeout=600\nResumeRate=9\n"
    text = slurm_conf(inputs(nodeset(), extra=extra))
    assert lines(text, "SchedulerParameters") == [
        "SchedulerParameters=salloc_wait_nodes,sbatch_wait_nodes,requeue_on_resume_failure,defer"
    ]
    assert lines(text, "ResumeTimeout", "ResumeRate") == ["ResumeTimeout=600", "ResumeRate=9"]
    assert lines(text, "SlurmctldParameters")[0].endswith(",max_powered_nodes=3")


def test_a_cluster_without_elastic_nodes_says_nothing_of_power() -> None:
    plain = nodeset(autoscale=None)
    text = slurm_conf(inputs(plain))
    for word in ("Resume", "Suspend", "power", "CLOUD", "wait_nodes"):
        assert word not in text
    assert "power-resume" not in files(inputs(plain))


def test_slurm_itself_keeps_the_nodes_that_are_on_at_any_hour() -> None:
    schedule = [{"from": "08:00", "to": "18:00", "min": 1}]
    assert lines(slurm_conf(inputs(nodeset(autoscale={"min": 3}))), "SuspendExcNodes") == [
        "SuspendExcNodes=w-[0-3]:3"
    ]
    some = nodeset(autoscale={"min": 3, "schedule": schedule})
    assert lines(slurm_conf(inputs(some)), "SuspendExcNodes") == ["SuspendExcNodes=w-[0-3]:1"]
    for given in ({}, {"min": 3, "dryRun": True}, {"min": 3, "budget": {"nodeHoursPerDay": 9}}):
        assert lines(slurm_conf(inputs(nodeset(autoscale=given))), "SuspendExcNodes") == []


def test_the_idle_time_is_that_of_the_policy_then_of_the_cluster() -> None:
    assert saving.idle_seconds(nodeset(autoscale={"idleTime": "15m"}, suspendTime=7)) == 900
    # The operator stops idle nodes earlier, except those that Slurm plans a job on.
    assert saving.idle_seconds(nodeset(autoscale={"idleTime": "90s"}, suspendTime=7)) == 600
    assert saving.idle_seconds(nodeset(suspendTime=7)) == 7
    assert saving.idle_seconds(nodeset()) == 300


def test_the_fallback_order_is_the_weight() -> None:
    text = slurm_conf(inputs(nodeset(autoscale={"fallbackOrder": 2})))
    assert " Weight=3" in lines(text, "NodeName")[0]


def test_the_program_records_what_slurm_asks_for_and_keeps_the_record_short(tmp_path: Path) -> None:
    record = tmp_path / "power.jsonl"
    made = files(inputs(nodeset()))
    assert made["power-resume"] == made["power-suspend"] == made["power-resume-failed"]
    program = tmp_path / "power-resume"
    program.write_text(made["power-resume"].replace(saving.RECORD, str(record)))
    program.chmod(0o755)
    resume = tmp_path / "resume.json"
    resume.write_text('{"all_nodes_resume": "w-[0-1]",\n "jobs": [{"job_id": 7}]}\n')

    def call(nodes: str) -> None:
        subprocess.run([program, nodes], check=True, env={"SLURM_RESUME_FILE": str(resume)})

    call("w-[0-1]")
    call("$(touch /tmp/x)\n")
    (line,) = record.read_text().splitlines()
    told = json.loads(line)
    assert (told["verb"], told["nodes"], told["resume"]["jobs"]) == ("resume", "w-[0-1]", [{"job_id": 7}])
    record.write_text(f"{line}\n" * 6000)
    call("w-2")
    kept = record.read_text().splitlines()
    assert record.stat().st_size < 300_000
    assert all(json.loads(it) for it in kept)
    assert json.loads(kept[-1])["nodes"] == "w-2"


def test_nodes_stay_in_the_file_when_their_policy_is_taken_away() -> None:
    """Slurm ends the jobs of nodes that it no longer finds there."""
    made = nodeset(autoscale=None)
    assert lines(slurm_conf(inputs(made)), "NodeName", "SuspendExcNodes") == []
    marked = msgspec.structs.replace(made.metadata, annotations={names.ANNOUNCED_ANNOTATION: "true"})
    text = slurm_conf(inputs(msgspec.structs.replace(made, metadata=marked)))
    (node,) = lines(text, "NodeName")
    assert node.startswith("NodeName=w-[0-3] CPUs=4")
    assert "State=CLOUD" in node
    # And all of them are on.
    assert lines(text, "SuspendExcNodes") == ["SuspendExcNodes=w-[0-3]:4"]


def test_a_node_that_made_itself_known_comes_into_the_file_when_its_pod_is_gone() -> None:
    """Its slurmd would end if it found itself there, and its jobs with it."""
    given = nodeset()
    assert Workers.of(given, present=("w-0", "w-1"), dynamic=("w-1",)).nodes == ("w-0", "w-2", "w-3")
    assert Workers.of(given, present=("w-0",)).nodes == ("w-0", "w-1", "w-2", "w-3")
    # Without a policy, lines are for other uses.
    assert Workers.of(nodeset(autoscale=None), dynamic=("w-1",)).nodes == ("w-0", "w-1", "w-2", "w-3")

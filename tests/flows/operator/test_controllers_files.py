"""The real slurmctld of every version reads the files that we write, and reads them as we meant them."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.domain.languages import slurmconf
from isthmus.domain.languages.slurmconf import Config, Directive
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.slurmfiles import Inputs, Workers, files
from isthmus.model.slinky import Controller, NodeSet
from tests.bed.slurm import SlurmBed

KEYS = {"slurmKeyRef": {"name": "k", "key": "slurm.key"}, "jwtKeyRef": {"name": "k", "key": "jwt.key"}}
_OF_THE_BED = ("SlurmctldHost", "SlurmctldPort", "StateSaveLocation", "SlurmdPort", "CommunicationParameters")


def controller(**spec: Any) -> Controller:
    return msgspec.convert({"metadata": {"name": "slurm", "namespace": "ns"}, "spec": KEYS | spec}, Controller)


def nodeset(name: str, **spec: Any) -> NodeSet:
    meta = {"name": name, "namespace": "ns"}
    return msgspec.convert({"metadata": meta, "spec": {"controllerRef": {"name": "slurm"}} | spec}, NodeSet)


def load(bed: SlurmBed, given_: Controller, *nodesets: NodeSet) -> Config:
    """Let slurmctld start with the files of a cluster, in which only ports and places are those of the bed."""
    workers = tuple(Workers.of(it) for it in nodesets)
    made = files(
        Inputs(controller=given_, settings=Settings(cgroup="none"), workers=workers, version=f"{bed.version}.0")
    )
    theirs = slurmconf.parse(bed.path("/etc/slurm/slurm.conf").read_text())
    kept = tuple(line for key in _OF_THE_BED for line in theirs.directives(key))
    ours = slurmconf.parse(made["slurm.conf"])
    lines = (
        line
        for line in ours.lines
        if not isinstance(line, Directive) or line.key not in {*_OF_THE_BED, "ClusterName"}
    )
    cluster = Directive.of({"ClusterName": "bed"})
    config = Config((cluster, *kept, *(_reachable(line) for line in lines)))
    bed.path("/etc/slurm/slurm.conf").write_text(config.render())
    for file in {"cgroup.conf", "gres.conf", *made} - {"slurm.conf"}:
        bed.path(f"/etc/slurm/{file}").write_text(made.get(file, ""))
        bed.path(f"/etc/slurm/{file}").chmod(0o755)  # some are programs
    bed.kill("slurmctld")  # there is nothing to save, and it would take a second
    bed.start("slurmctld")
    return config


def _reachable(line: slurmconf.Line) -> slurmconf.Line:
    """Give nodes an address: there is no DNS in the bed."""
    if not isinstance(line, Directive) or line.key != "NodeName":
        return line
    return Directive.of({key: "127.0.0.1" if key == "NodeAddr" else value for key, value in line.settings})


@pytest.fixture
def bed(slurm_version: str, slurm_bed: Callable[..., SlurmBed]) -> SlurmBed:
    return slurm_bed(slurm_version, nodes=0, accounting=False)


def test_a_cluster_of_which_nothing_was_said_has_one_partition_for_all(bed: SlurmBed) -> None:
    load(bed, controller())
    assert bed.command("sinfo", "-h", "-o%P").strip() == "main*"
    shown = bed.scontrol("show", "config")
    assert "enable_configless" in shown
    assert "use_client_ids" in shown


def test_users_have_crontabs(bed: SlurmBed) -> None:
    size = {"resources": {"limits": {"cpu": "1", "memory": "2Gi"}}}
    load(bed, controller(), nodeset("w", replicas=1, registration="Static", slurmd=size))
    bed.command("sh", "-c", "echo '@daily true' | scrontab -", user="alice")
    assert "@daily true" in bed.command("scrontab", "-l", user="alice")
    assert bed.command("squeue", "-h", "-o%u %T", user="alice").strip() == "alice PENDING"


def test_workers_of_all_kinds_are_understood(bed: SlurmBed) -> None:
    size = {"resources": {"limits": {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "4"}}}
    static = nodeset("old", replicas=3, registration="Static", slurmd=size, extraConf="Weight=5 Feature=slow")
    partition = {"enabled": True, "config": "Default=YES MaxTime=1-00:00:00"}
    load(bed, controller(), static, nodeset("new", partition=partition))
    node = bed.scontrol("--oneliner", "show", "node", "old-1")
    for fact in ("CPUTot=2", "RealMemory=2048", "Gres=gpu:4", "Weight=5", "AvailableFeatures=old,slow"):
        assert fact in node
    assert "MaxTime=1-00:00:00" in bed.scontrol("show", "partition", "new")
    assert bed.command("sinfo", "-h", "-o%P").strip() == "new*"
    # A node that makes itself known later joins by its feature.
    bed.scontrol("create", "NodeName=new-7", "State=CLOUD", "CPUs=1", "RealMemory=100", "Feature=new")
    assert "new-7" in bed.command("sinfo", "-hN", "-pnew", "-o%N")


def test_jobs_may_ask_for_devices_of_nodes_that_are_not_up(bed: SlurmBed) -> None:
    size = {"resources": {"limits": {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "4"}}}
    gres = "Gres=gpu:a100:4,shard:8"
    load(bed, controller(), nodeset("e", replicas=2, slurmd=size, autoscale={}, extraConf=gres))
    node = bed.scontrol("--oneliner", "show", "node", "e-1")
    assert " Gres=gpu:a100:4" in node
    assert "POWERED_DOWN" in node
    for asked in ("gpu:a100:3", "shard:2"):
        job = bed.command("sbatch", "--parsable", f"--gres={asked}", "--mem=10", "--wrap=true").strip()
        assert job.isdigit()


def test_what_the_user_wrote_counts(bed: SlurmBed) -> None:
    extra = "# mine\nKillWait=77\nSchedulerParameters=defer\nSlurmctldParameters=idle_on_node_suspend\n"
    load(bed, controller(extraConf=extra + "PartitionName=mine Nodes=ALL Default=YES \\\n  MaxTime=60\n"))
    shown = bed.scontrol("show", "config")
    for fact in ("77 sec", "= defer", "enable_configless,reconfig_on_restart,idle_on_node_suspend"):
        assert fact in shown
    assert bed.command("sinfo", "-h", "-o%P %l").strip() == "mine* 1:00:00"


_NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
_NODESETS = st.lists(
    st.builds(
        lambda name, cpus, memory, replicas, static, partition, padding: nodeset(
            name,
            replicas=replicas,
            registration="Static" if static else "Dynamic",
            slurmd={"resources": {"limits": {"cpu": str(cpus), "memory": f"{memory}Mi"}}},
            partition={"enabled": partition, "config": "MaxTime=10"},
            ordinalPadding=padding,
        ),
        _NAMES,
        st.integers(1, 256),
        st.integers(64, 1 << 20),
        st.integers(0, 40),
        st.booleans(),
        st.booleans(),
        st.integers(0, 4),
    ),
    max_size=4,
    unique_by=lambda it: it.metadata.name,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_NODESETS)
def test_any_nodesets_are_understood(bed: SlurmBed, nodesets: list[NodeSet]) -> None:
    load(bed, controller(), *nodesets)
    expected = {
        f"{it.metadata.name}-{str(ordinal).zfill(it.spec.ordinal_padding)}"
        for it in nodesets
        if it.spec.registration == "Static"
        for ordinal in range(it.spec.replicas)
    }
    shown = bed.command("scontrol", "--oneliner", "show", "nodes", "--all") if expected else ""
    found = {word.removeprefix("NodeName=") for word in shown.split() if word.startswith("NodeName=")}
    assert found == expected
    partitions = {it.metadata.name for it in nodesets if it.spec.partition.enabled} or {"main"}
    assert {line.rstrip("*") for line in bed.command("sinfo", "-h", "-o%P").split()} == partitions

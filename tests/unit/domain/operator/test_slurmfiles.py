"""What stands in Slurm's files. The real slurmctld reads them in tests/flows/operator."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from isthmus.domain.languages.slurmconf import ConfigError, parse
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.slurmfiles import Inputs, Scripts, Workers, checked_files, files, slurm_conf
from isthmus.domain.operator.slurmfiles.extra import joined
from isthmus.errors import Terminal
from isthmus.model.slinky import Accounting, Controller, NodeSet

META = {"name": "slurm", "namespace": "ns"}
KEYS = {"slurmKeyRef": {"name": "k", "key": "slurm.key"}, "jwtKeyRef": {"name": "k", "key": "jwt.key"}}
NO_CGROUP = Settings(cgroup="none")


def controller(**spec: Any) -> Controller:
    return msgspec.convert({"metadata": META, "spec": KEYS | spec}, Controller)


def nodeset(name: str, **spec: Any) -> NodeSet:
    meta = {"name": name, "namespace": "ns"} | spec.pop("metadata", {})
    return msgspec.convert({"metadata": meta, "spec": {"controllerRef": {"name": "slurm"}} | spec}, NodeSet)


def limits(**resources: str) -> dict[str, Any]:
    return {"resources": {"limits": resources}}


def conf(given: Controller | None = None, *nodesets: NodeSet, **more: Any) -> str:
    workers = tuple(Workers.of(it) for it in nodesets)
    return slurm_conf(Inputs(controller=given or controller(), settings=NO_CGROUP, workers=workers, **more))


def lines(text: str, *keys: str) -> list[str]:
    return [line for line in text.splitlines() if line.partition("=")[0] in keys]


def test_the_whole_file_of_a_cluster_of_which_nothing_was_said() -> None:
    assert conf() == (
        "# Made by Isthmus from Controller ns/slurm.\n"
        "ClusterName=ns_slurm\n"
        "SlurmUser=slurm\n"
        "SlurmctldPort=6817\n"
        "StateSaveLocation=/var/spool/slurmctld\n"
        "AuthType=auth/slurm\n"
        "CredType=cred/slurm\n"
        "SlurmctldHost=slurm-controller-0(slurm-controller-0.slurm-controller-internal.ns.svc)\n"
        "SlurmctldParameters=enable_configless,reconfig_on_restart\n"
        "AuthAltTypes=auth/jwt\n"
        "AuthAltParameters=jwt_key=/etc/slurm/jwt.key\n"
        "AuthInfo=use_client_ids\n"
        "SlurmdPort=6818\n"
        "SlurmdSpoolDir=/var/spool/slurmd\n"
        "SlurmctldPidFile=/run/slurmctld/slurmctld.pid\n"
        "SelectType=select/cons_tres\n"
        "SelectTypeParameters=CR_Core_Memory\n"
        "SchedulerType=sched/backfill\n"
        "SchedulerParameters=sched_min_interval=10000,batch_sched_delay=0,bf_interval=5,bf_continue,"
        "nohold_on_prolog_fail\n"
        "LaunchParameters=use_interactive_step\n"
        "MpiDefault=pmi2\n"
        "JobAcctGatherType=jobacct_gather/linux\n"
        "JobAcctGatherFrequency=task=5\n"
        "ReturnToService=2\n"
        "TreeWidth=65533\n"
        "MaxJobCount=50000\n"
        "PropagateResourceLimits=NONE\n"
        "MailProg=/bin/true\n"
        "ScronParameters=enable\n"
        "LogTimeFormat=iso8601_ms,format_stderr\n"
        "ProctrackType=proctrack/linuxproc\n"
        "TaskPlugin=task/none\n"
        "MaxNodeCount=4096\n"
        "DefMemPerCPU=100\n"
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE\n"
    )


def test_workers_of_both_kinds() -> None:
    dynamic = nodeset(
        "fast", slurmd=limits(cpu="4", memory="8Gi"), partition={"enabled": True, "config": "Default=YES"}
    )
    static = nodeset(
        "old", replicas=3, registration="Static", slurmd=limits(cpu="2", memory="2Gi"), extraConf="Weight=5"
    )
    address = "old-[0-2].slurm-workers-slurm.ns.svc"
    text = conf(None, static, dynamic)
    assert lines(text, "NodeName", "NodeSet", "PartitionName", "DefMemPerCPU", "CommunicationParameters") == [
        "DefMemPerCPU=1024",
        "CommunicationParameters=NoAddrCache",
        f"NodeName=old-[0-2] NodeAddr={address} CPUs=2 RealMemory=2048 Feature=old Weight=5",
        "NodeSet=fast Feature=fast",
        "PartitionName=fast Nodes=fast Default=YES",
        "NodeSet=old Feature=old",
    ]


def test_the_order_of_what_was_gathered_does_not_matter() -> None:
    one, other = nodeset("a"), nodeset("b", partition={"enabled": True})
    assert conf(None, one, other) == conf(None, other, one)


def test_a_node_with_a_pod_keeps_its_line_when_the_set_shrinks() -> None:
    small = nodeset("w", replicas=1, registration="Static")
    workers = Workers.of(small, present=["w-0", "w-2"])
    text = slurm_conf(Inputs(controller=controller(), settings=NO_CGROUP, workers=(workers,)))
    assert lines(text, "NodeName")[0].startswith("NodeName=w-[0,2] ")


def test_the_partition_of_a_nodeset_that_is_being_deleted_stays() -> None:
    """W3: jobs in it would be killed, and 26.05 might crash, if it went before its nodes are drained."""
    leaving = nodeset(
        "w", metadata={"deletionTimestamp": datetime.now(UTC).isoformat()}, partition={"enabled": True}
    )
    assert "PartitionName=w Nodes=w" in conf(None, leaving).splitlines()


def test_a_setting_of_the_user_takes_the_place_of_ours_and_is_written_as_it_was() -> None:
    text = conf(
        controller(extraConf="# mine\nReturnToService=1 # why\nSchedulerParameters=defer \\\n  KillWait=7\n")
    )
    assert lines(text, "ReturnToService", "SchedulerParameters") == [
        "ReturnToService=1 # why",
        "SchedulerParameters=defer \\",
    ]
    assert text.endswith(
        "# From extraConf:\n# mine\nReturnToService=1 # why\nSchedulerParameters=defer \\\n  KillWait=7\n"
    )


@pytest.mark.parametrize("key", ["DefMemPerNode", "DefMemPerGPU", "DefMemPerCPU"])
def test_memory_that_the_user_gives_by_default_takes_the_place_of_ours(key: str) -> None:
    # Slurm takes one of the three; with two, every command complains.
    text = conf(controller(extraConf=f"{key}=0\n"))
    assert lines(text, "DefMemPerNode", "DefMemPerGPU", "DefMemPerCPU") == [f"{key}=0"]


def test_lists_are_joined_and_keep_the_case_of_what_the_user_wrote() -> None:
    """W21: paths in lower case do not exist."""
    extra = "SlurmctldParameters=idle_on_node_suspend\nauthaltparameters=jwks=/Etc/Keys.json,userclaimfield=Name\n"
    text = conf(controller(extraConf=extra))
    assert lines(text, "SlurmctldParameters", "AuthAltParameters", "authaltparameters") == [
        "SlurmctldParameters=enable_configless,reconfig_on_restart,idle_on_node_suspend",
        "authaltparameters=jwt_key=/etc/slurm/jwt.key,jwks=/Etc/Keys.json,userclaimfield=Name",
    ]


def test_ours_counts_where_both_set_the_same_option() -> None:
    assert joined("JWT_KEY=/other,ttl=5", ("jwt_key=/etc/slurm/jwt.key",)) == "jwt_key=/etc/slurm/jwt.key,ttl=5"


@pytest.mark.parametrize("line", ["ClusterName=x", "slurmctldhost=other", "KillWait=3 StateSaveLocation=/tmp"])
def test_what_would_cut_the_cluster_in_two_is_refused_with_the_field_to_use(line: str) -> None:
    with pytest.raises(ConfigError, match="which the operator manages") as refused:
        conf(controller(extraConf=line))
    assert refused.value.remedy


def test_partitions_of_the_user_take_the_place_of_the_default_one() -> None:
    text = conf(controller(extraConf="PartitionName=all Nodes=ALL Default=YES"))
    assert lines(text, "PartitionName") == ["PartitionName=all Nodes=ALL Default=YES"]


HOSTILE = ["x#", "x Nodes=ALL", "PartitionName=y", 'a="', "Include=/etc/shadow", "x\\"]


@pytest.mark.parametrize("config", HOSTILE)
def test_nothing_breaks_out_of_the_line_of_a_partition(config: str) -> None:
    bad = nodeset("w", partition={"enabled": True, "config": config})
    try:
        text = conf(None, bad)
    except Terminal:
        return
    partitions = list(parse(text).directives("PartitionName"))
    assert [it.value for it in partitions] == ["w"]
    assert partitions[0].get("Nodes") == "w"


def test_a_standby_takes_over_soon() -> None:
    ha = controller(ha={"enabled": True}, persistence={"existingClaim": "state"})
    text = conf(ha)
    assert len(lines(text, "SlurmctldHost")) == 2
    assert lines(text, "SlurmctldTimeout")


def test_each_node_says_which_devices_it_has() -> None:
    gpus = Workers.of(nodeset("gpu", replicas=2, slurmd=limits(cpu="2", memory="1Gi", **{"nvidia.com/gpu": "4"})))
    account = msgspec.convert({"metadata": META, "spec": KEYS}, Accounting)
    made = files(Inputs(controller=controller(), settings=NO_CGROUP, workers=(gpus,), accounting=account))
    assert made["gres.conf"] == "Include /etc/slurm/node-gres.conf\n"
    assert not lines(made["node-gres.conf"], "NodeName")
    assert lines(made["slurm.conf"], "GresTypes", "AccountingStorageTRES", "AccountingStorageHost") == [
        "AccountingStorageHost=slurm-accounting.ns.svc",
        "GresTypes=gpu",
        "AccountingStorageTRES=gres/gpu",
    ]


def test_what_is_no_device_is_counted_and_leaves_room_to_grow() -> None:
    found = Workers.of(nodeset("w", replicas=2, extraConf="Gres=bandwidth:lustre:4"))
    made = files(Inputs(controller=controller(), settings=NO_CGROUP, workers=(found,)))
    assert made["gres.conf"] == "NodeName=w-[0-1023] Name=bandwidth Type=lustre Count=4\n"


def test_slurmctld_knows_the_devices_of_nodes_that_are_not_up() -> None:
    """It reads gres.conf for them, and takes no GPU without a file, which it does not open."""
    size = limits(cpu="2", memory="1Gi", **{"nvidia.com/gpu": "4"})
    elastic = Workers.of(nodeset("e", replicas=2, slurmd=size, autoscale={}, extraConf="Gres=gpu:a100:4,shard:1K"))
    made = files(Inputs(controller=controller(), settings=NO_CGROUP, workers=(elastic,)))
    assert lines(made["node-gres.conf"], "NodeName") == [
        "NodeName=e-[0-1023] Name=gpu Type=a100 File=/dev/gpua100[0-3]",
        "NodeName=e-[0-1023] Name=shard Count=1024",
    ]


def test_lines_of_the_author_take_the_place_of_what_is_found() -> None:
    size = limits(cpu="2", memory="1Gi", **{"nvidia.com/gpu": "4"})
    theirs = Workers.of(nodeset("gpu", replicas=2, slurmd=size, gresConfig=["AutoDetect=nvidia"]))
    made = files(Inputs(controller=controller(), settings=NO_CGROUP, workers=(theirs,)))
    assert made["gres.conf"] == "NodeName=gpu-[0-1023] AutoDetect=nvidia\n"
    other = Workers.of(nodeset("gpu", gresConfig=["Name=gpu NodeName=other"]))
    with pytest.raises(ConfigError, match="sets NodeName"):
        files(Inputs(controller=controller(), settings=NO_CGROUP, workers=(other,)))


def test_scripts_in_lua_are_used_when_they_are_there() -> None:
    given = {"job_submit.lua": "x", "cli_filter.lua": "x"}
    made = files(Inputs(controller=controller(), settings=NO_CGROUP, given=given))
    assert lines(made["slurm.conf"], "JobSubmitPlugins", "CliFilterPlugins") == [
        "JobSubmitPlugins=lua",
        "CliFilterPlugins=lua",
    ]
    own = controller(extraConf="JobSubmitPlugins=lua,throttle\n")
    made = files(Inputs(controller=own, settings=NO_CGROUP, given=given))
    assert lines(made["slurm.conf"], "JobSubmitPlugins") == ["JobSubmitPlugins=lua,throttle"]


def test_a_slurmctld_that_we_do_not_run_is_only_named() -> None:
    away = controller(external=True, externalConfig={"host": "ctl.example.org", "port": 7000}, clusterName="far")
    made = files(Inputs(controller=away, settings=NO_CGROUP))
    assert list(made) == ["slurm.conf"]
    assert lines(made["slurm.conf"], "ClusterName", "SlurmctldHost", "SlurmctldPort", "StateSaveLocation") == [
        "ClusterName=far",
        "SlurmctldPort=7000",
        "SlurmctldHost=ctl.example.org",
    ]


def test_scripts_of_nodes_are_sent_to_them_and_those_of_slurmctld_have_a_path() -> None:
    text = conf(scripts=Scripts(prolog=("b.sh", "a.sh"), epilog_slurmctld=("end.sh",)))
    assert lines(text, "Prolog", "EpilogSlurmctld") == [
        "EpilogSlurmctld=/etc/slurm/end.sh",
        "Prolog=a.sh",
        "Prolog=b.sh",
    ]


def test_files_of_the_user_go_beside_ours_and_over_those_that_may_be_replaced() -> None:
    given = checked_files([("one", {"cgroup.conf": "mine", "helpers.conf": "x"})])
    made = files(Inputs(controller=controller(), settings=NO_CGROUP, given=given))
    assert made["cgroup.conf"] == "mine"
    assert made["helpers.conf"] == "x"


@pytest.mark.parametrize("file", ["slurm.conf", "slurm.jwks", "..", "-rf"])
def test_files_that_would_take_the_cluster_over_are_refused(file: str) -> None:
    with pytest.raises(ConfigError, match="ConfigMap one"):
        checked_files([("one", {file: ""})])


def test_two_different_files_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"one and two both have a file a\.sh"):
        checked_files([("one", {"a.sh": "1"}), ("two", {"a.sh": "2"})])


def test_metrics_are_left_out_where_slurm_does_not_know_them() -> None:
    wants = controller(metrics={"enabled": True})
    assert lines(conf(wants, version="26.05.1"), "MetricsType")
    assert not lines(conf(wants, version="24.11.5"), "MetricsType")
    assert not lines(conf(wants, version="25.05.3"), "MetricsType")


@pytest.mark.parametrize(
    ("image", "knows"), [("", True), ("slurm:25.11-1", True), ("slurm:24.11", False), ("own", False)]
)
def test_before_slurmctld_has_told_its_version_the_tag_of_its_image_does(image: str, *, knows: bool) -> None:
    wants = controller(metrics={"enabled": True}, slurmctld={"image": image} if image else {})
    assert bool(lines(conf(wants), "MetricsType")) is knows


def test_every_job_has_a_step_for_ssh_sessions_where_there_are_any() -> None:
    assert not lines(conf(None, nodeset("worker")), "PrologFlags")
    served = nodeset("worker", ssh={"enabled": True})
    assert lines(conf(None, served), "PrologFlags") == ["PrologFlags=Contain"]
    own = controller(extraConf="PrologFlags=X11\n")
    assert lines(conf(own, served), "PrologFlags") == ["PrologFlags=Contain,X11"]


def test_workers_look_up_who_is_in_the_shared_root_where_nobody_else_can() -> None:
    inside = nodeset("worker", sharedRoot={"volume": {"emptyDir": {}}})
    munge = controller(authType="munge")
    assert lines(conf(munge, inside), "LaunchParameters") == [
        "LaunchParameters=use_interactive_step,disable_send_gids"
    ]
    assert lines(conf(munge, nodeset("worker")), "LaunchParameters") == ["LaunchParameters=use_interactive_step"]
    assert lines(conf(None, inside), "LaunchParameters") == ["LaunchParameters=use_interactive_step"]
    own = controller(authType="munge", extraConf="LaunchParameters=batch_step_set_cpu_freq\n")
    assert lines(conf(own, inside), "LaunchParameters") == [
        "LaunchParameters=use_interactive_step,disable_send_gids,batch_step_set_cpu_freq"
    ]

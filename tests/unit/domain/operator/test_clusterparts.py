"""From a SlurmCluster to its parts."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.clusterparts import Child, Parts, nodeset_part, parts_of, prefix
from isthmus.domain.operator.manifests import accounting as slurmdbd
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.manifests.controller import statefulset
from isthmus.model.slinky import (
    ACCOUNTINGS,
    CONTROLLERS,
    LOGINSETS,
    NODESETS,
    RESTAPIS,
    Accounting,
    Controller,
    DeviceFiles,
    LoginSet,
    NodeSet,
    RestApi,
)
from isthmus.model.soperator import NodeSet as NebiusNodeSet
from isthmus.model.soperator import SlurmCluster

PARTS = (CONTROLLERS, ACCOUNTINGS, RESTAPIS, LOGINSETS, NODESETS)


def cluster(name: str = "demo", *, annotations: dict[str, str] | None = None, **spec: Any) -> SlurmCluster:
    metadata = {"name": name, "namespace": "hpc", "uid": f"uid-{name}", "annotations": annotations or {}}
    return msgspec.convert({"metadata": metadata, "spec": spec}, SlurmCluster)


def nodeset(name: str, **spec: Any) -> NebiusNodeSet:
    return msgspec.convert({"metadata": {"name": name, "namespace": "hpc"}, "spec": spec}, NebiusNodeSet)


def made(of: SlurmCluster, *nodesets: NebiusNodeSet, drained: bool = False, name_prefix: str = "") -> Parts:
    parts = parts_of(of, nodesets, prefix=name_prefix, settings=Settings(cgroup="none"), drained=drained)
    for child in parts.children:
        if child.kind in PARTS:
            # What we make is what the model allows.
            msgspec.convert(child.manifest, child.kind.type)
    return parts


def find(parts: Parts, kind: str) -> dict[str, Any]:
    found = [child.manifest for child in parts.children if child.kind.name == kind]
    assert len(found) == 1, [child.key for child in parts.children]
    return found[0]


def controller(parts: Parts) -> Controller:
    return msgspec.convert(find(parts, "Controller"), Controller)


def workers(parts: Parts) -> NodeSet:
    return msgspec.convert(find(parts, "NodeSet"), NodeSet)


def login(parts: Parts) -> LoginSet:
    return msgspec.convert(find(parts, "LoginSet"), LoginSet)


def names(parts: Parts) -> set[str]:
    return {f"{child.kind.name} {child.key.name}" for child in parts.children}


def test_a_cluster_that_says_nothing_has_all_it_takes_to_run_a_job() -> None:
    parts = made(cluster())
    assert names(parts) == {
        "Controller demo",
        "Service slurmctld",
        "RestApi demo",
        "LoginSet login",
        "NodeSet worker",
        "PersistentVolumeClaim jail",
    }
    assert workers(parts).spec.replicas == 1
    assert login(parts).spec.replicas == 1
    assert controller(parts).spec.extra_conf.splitlines() == [
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10 OverSubscribe=YES",
        (
            "PartitionName=hidden Nodes=ALL Default=NO MaxTime=INFINITE State=UP PriorityTier=10 OverSubscribe=YES"
            " PreemptMode=OFF Hidden=YES"
        ),
    ]
    assert not parts.problems
    assert not parts.ignored


def test_pods_are_called_as_the_documents_call_them() -> None:
    annotations = find(made(cluster()), "Controller")["metadata"]["annotations"]
    assert annotations["isthmus.dev/workload-name"] == "controller"
    assert annotations["isthmus.dev/controller-placeholder"] == "true"


def test_a_placeholder_can_be_declined() -> None:
    declined = cluster(annotations={"isthmus.dev/controller-placeholder": "false"})
    annotations = find(made(declined), "Controller")["metadata"]["annotations"]
    assert annotations["isthmus.dev/controller-placeholder"] == "false"


def test_who_has_a_job_on_a_worker_can_come_in_by_ssh() -> None:
    assert workers(made(cluster())).spec.ssh.enabled
    _, child, _ = nodeset_child(nodeset("gpu"))
    assert child.spec.ssh.enabled


def test_a_second_cluster_of_a_namespace_has_names_of_its_own() -> None:
    parts = made(cluster("two"), name_prefix="two-")
    assert names(parts) >= {"Controller two", "NodeSet two-worker", "LoginSet two-login", "Service two-slurmctld"}
    assert find(parts, "PersistentVolumeClaim")["metadata"]["name"] == "two-jail"


@pytest.mark.parametrize(
    ("others", "taken", "expected"),
    [
        ([], (), ""),
        ([("first", "", 0)], (), "demo-"),
        ([("later", None, 9)], (), ""),
        ([("earlier", None, 0)], (), "demo-"),
        ([("second", "second-", 0)], (), ""),
        ([], ("worker",), "demo-"),
        ([], ("gpu",), ""),
    ],
)
def test_the_first_cluster_of_a_namespace_has_the_short_names(
    others: list[tuple[str, str | None, int]], taken: tuple[str, ...], expected: str
) -> None:
    def born(it: SlurmCluster, second: int) -> SlurmCluster:
        meta = msgspec.structs.replace(
            it.metadata, creation_timestamp=datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
        )
        return msgspec.structs.replace(it, metadata=meta)

    there = [
        born(msgspec.structs.replace(it, status=msgspec.structs.replace(it.status, name_prefix=decided)), second)
        for it, decided, second in ((cluster(name), decided, second) for name, decided, second in others)
    ]
    assert prefix(born(cluster(), 5), there, taken) == expected


def test_what_was_decided_once_stays() -> None:
    settled = cluster()
    settled = msgspec.structs.replace(settled, status=msgspec.structs.replace(settled.status, name_prefix="demo-"))
    assert prefix(settled, []) == "demo-"


def test_sizes_and_resources_reach_the_parts() -> None:
    parts = made(
        cluster(
            slurmNodes={
                "worker": {"size": 15, "maxUnavailable": "20%", "resources": {"cpu": "2", "memory": "4Gi"}},
                "login": {"size": 2, "resources": {"memory": "1Gi"}},
                "controller": {"resources": {"cpu": "1", "memory": "2Gi"}},
            }
        )
    )
    assert parts.workers == workers(parts).spec.replicas == 15
    assert workers(parts).spec.update_strategy.rolling_update.max_unavailable == "20%"
    # A worker's CPUs are what Slurm hands out, so they are fixed.
    assert workers(parts).spec.slurmd["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"cpu": "2", "memory": "4Gi"},
    }
    assert controller(parts).spec.slurmctld["resources"] == {
        "requests": {"cpu": "1", "memory": "2Gi"},
        "limits": {"memory": "2Gi"},
    }
    assert login(parts).spec.replicas == 2


def test_the_container_s_own_resources_count_more() -> None:
    node = {"resources": {"memory": "1Gi"}, "slurmctld": {"resources": {"memory": "3Gi"}}}
    parts = made(cluster(slurmNodes={"controller": node}))
    assert controller(parts).spec.slurmctld["resources"]["requests"] == {"memory": "3Gi"}


def test_a_node_filter_decides_where_pods_go() -> None:
    filters = [
        {
            "name": "cpu",
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "hpc", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
        }
    ]
    parts = made(cluster(k8sNodeFilters=filters, slurmNodes={"worker": {"size": 1, "k8sNodeFilterName": "cpu"}}))
    pod = workers(parts).spec.template.spec
    assert pod["nodeSelector"] == {"disk": "fast"}
    assert pod["tolerations"] == [{"key": "hpc", "operator": "Exists"}]
    assert "nodeSelector" not in login(parts).spec.template.spec


def test_a_filter_that_does_not_exist_is_a_problem_with_a_name() -> None:
    parts = made(
        cluster(k8sNodeFilters=[{"name": "cpu"}], slurmNodes={"login": {"size": 1, "k8sNodeFilterName": "gpu"}})
    )
    assert parts.problems == (
        "slurmNodes.login.k8sNodeFilterName: there is no node filter 'gpu' in k8sNodeFilters (there: cpu)",
    )


@pytest.mark.parametrize(
    ("mount", "told"),
    [
        ({"volumeSourceName": "data"}, "there is no volume source 'data'"),
        ({}, "set either"),
        ({"volumeSourceName": "data", "volumeClaimTemplateSpec": {}}, "set either"),
    ],
)
def test_a_volume_that_cannot_be_mounted_is_a_problem(mount: dict[str, Any], told: str) -> None:
    mounts = [{"name": "data", "mountPath": "/data", **mount}]
    parts = made(cluster(slurmNodes={"worker": {"size": 1, "volumes": {"customMounts": mounts}}}))
    assert len(parts.problems) == 1
    assert told in parts.problems[0]
    assert "data" in parts.problems[0]


def test_volumes_are_mounted_under_names_that_are_never_ours() -> None:
    sources = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-claim"}}]
    mounts = [{"name": "slurm-etc", "mountPath": "/data", "volumeSourceName": "data", "readOnly": True}]
    parts = made(
        cluster(volumeSources=sources, slurmNodes={"worker": {"size": 1, "volumes": {"customMounts": mounts}}})
    )
    spec = workers(parts).spec
    assert {"name": "mount-slurm-etc", "persistentVolumeClaim": {"claimName": "data-claim"}} in spec.template.spec[
        "volumes"
    ]
    assert {"name": "mount-slurm-etc", "mountPath": "/data", "readOnly": True} in spec.slurmd["volumeMounts"]


def test_homes_are_shared_by_login_and_workers() -> None:
    parts = made(cluster())
    home = {"name": "jail", "mountPath": "/home", "subPath": "home"}
    assert home in workers(parts).spec.slurmd["volumeMounts"]
    assert home in login(parts).spec.login["volumeMounts"]
    claim = find(parts, "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    kept = [child for child in parts.children if child.kept]
    assert [child.kind.name for child in kept] == ["PersistentVolumeClaim"]


def test_a_volume_source_called_jail_takes_the_place_of_our_claim() -> None:
    parts = made(cluster(volumeSources=[{"name": "jail", "nfs": {"server": "files", "path": "/export"}}]))
    assert "PersistentVolumeClaim jail" not in names(parts)
    volume = {"name": "jail", "nfs": {"server": "files", "path": "/export"}}
    assert volume in workers(parts).spec.template.spec["volumes"]


def test_login_by_node_port() -> None:
    parts = made(cluster(slurmNodes={"login": {"sshdServiceType": "NodePort", "sshdServiceNodePort": 30022}}))
    service = login(parts).spec.service
    assert (service.spec["type"], service.port, service.node_port) == ("NodePort", 22, 30022)


def test_login_by_load_balancer_with_source_ranges() -> None:
    node = {
        "sshdServiceType": "LoadBalancer",
        "sshdServiceLoadBalancerSourceRanges": ["10.0.0.0/8"],
        "sshdServiceAnnotations": {"lb": "internal"},
        "sshRootPublicKeys": ["ssh-ed25519 AAAA root\n"],
    }
    spec = login(made(cluster(slurmNodes={"login": node}))).spec
    assert spec.service.spec == {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]}
    assert spec.service.metadata.annotations == {"lb": "internal"}
    assert spec.root_ssh_authorized_keys == "ssh-ed25519 AAAA root\n"


def test_host_keys_can_be_given() -> None:
    volumes = login(made(cluster(secrets={"sshdKeysName": "ours"}))).spec.template.spec["volumes"]
    assert {"name": "ssh-host-keys", "secret": {"secretName": "ours"}} in volumes


def test_accounting_with_a_database_of_ours() -> None:
    node = {
        "enabled": True,
        "mariadbOperator": {
            "resources": {"cpu": "1", "memory": "1Gi"},
            "storage": {"size": "20Gi", "storageClassName": "fast"},
        },
        "slurmdbdConfig": {"purgeJobAfter": "12month", "archiveJobs": "yes"},
        "slurmConfig": {"priorityWeightAge": 100},
    }
    parts = made(cluster(slurmNodes={"accounting": node}))
    found = msgspec.convert(find(parts, "Accounting"), Accounting)
    assert found.spec.storage_config is None
    assert found.spec.database.persistence.storage_class_name == "fast"
    assert found.spec.database.persistence.resources == {"requests": {"storage": "20Gi"}}
    assert found.spec.extra_conf.splitlines() == ["ArchiveJobs=yes", "PurgeJobAfter=12month"]
    assert controller(parts).spec.accounting_ref is not None
    assert "PriorityWeightAge=100" in controller(parts).spec.extra_conf


def test_accounting_with_an_external_database() -> None:
    external = {
        "enabled": True,
        "host": "db.example",
        "user": "slurm",
        "passwordSecretKeyRef": {"name": "db", "key": "password"},
        "storageParameters": {"SSL_CIPHER": "AES256", "A": "b"},
    }
    parts = made(cluster(slurmNodes={"accounting": {"enabled": True, "externalDB": external}}))
    found = msgspec.convert(find(parts, "Accounting"), Accounting)
    assert found.spec.storage_config is not None
    assert found.spec.storage_config.host == "db.example"
    assert found.spec.storage_config.password_key_ref.name == "db"
    assert found.spec.extra_conf == "StorageParameters=A=b,SSL_CIPHER=AES256\n"


def test_without_accounting_there_is_none() -> None:
    parts = made(cluster())
    assert not [child for child in parts.children if child.kind is ACCOUNTINGS]
    assert controller(parts).spec.accounting_ref is None


def test_the_operator_s_own_way_to_slurm_is_always_there() -> None:
    parts = made(
        cluster(slurmNodes={"rest": {"enabled": False, "size": 0, "threadCount": 8, "maxConnections": 64}})
    )
    found = msgspec.convert(find(parts, "RestApi"), RestApi)
    assert found.spec.replicas == 1
    assert found.spec.slurmrestd["args"] == ["-t", "8", "--max-connections", "64"]


# Configuration


def test_settings_become_lines_and_the_user_s_own_count_more() -> None:
    parts = made(
        cluster(
            slurmConfig={"maxJobCount": 100, "minJobAge": 60, "completeWait": 5},
            customSlurmConfig="# ours\nMaxJobCount=7 # fewer\nDebugFlags=Backfill\n",
        )
    )
    lines = controller(parts).spec.extra_conf.splitlines()
    assert "CompleteWait=5" in lines
    assert "MinJobAge=60" in lines
    assert "MaxJobCount=100" not in lines
    assert lines[-3:] == ["# ours", "MaxJobCount=7 # fewer", "DebugFlags=Backfill"]


def test_a_partition_of_the_same_name_replaces_ours() -> None:
    custom = "PartitionName=main Nodes=ALL Default=YES MaxTime=60\n"
    lines = controller(made(cluster(customSlurmConfig=custom))).spec.extra_conf.splitlines()
    assert [line for line in lines if line.startswith("PartitionName=main")] == [custom.strip()]
    assert any(line.startswith("PartitionName=hidden") for line in lines)


def test_munge_is_asked_for_where_one_would_in_slurm_conf() -> None:
    parts = made(
        cluster(
            slurmNodes={"accounting": {"enabled": True}}, customSlurmConfig="AuthType=auth/munge\nMinJobAge=9\n"
        )
    )
    assert controller(parts).spec.auth_type == "munge"
    assert msgspec.convert(find(parts, "Accounting"), Accounting).spec.auth_type == "munge"
    assert "AuthType" not in controller(parts).spec.extra_conf
    assert controller(parts).spec.extra_conf.endswith("MinJobAge=9\n")


def test_the_secret_for_munge_s_image_is_for_whom_munge_runs_with() -> None:
    munge = {"image": "munge:1", "imagePullSecrets": [{"name": "for-munge"}]}
    worker: dict[str, Any] = {"size": 1, "slurmd": {"imagePullSecrets": [{"name": "for-slurmd"}]}, "munge": munge}

    def secrets(**more: Any) -> list[str]:
        template = find(made(cluster(slurmNodes={"worker": worker}, **more)), "NodeSet")["spec"]["template"]
        return [it["name"] for it in template["spec"]["imagePullSecrets"]]

    assert secrets() == ["for-slurmd"]
    assert secrets(customSlurmConfig="AuthType=auth/munge\n") == ["for-slurmd", "for-munge"]


def test_custom_partitions_are_kept_as_written() -> None:
    raw = ["PartitionName=low Nodes=ALL Default=YES PriorityTier=1", "PartitionName=high Nodes=ALL PriorityTier=2"]
    parts = made(cluster(partitionConfiguration={"configType": "custom", "rawConfig": raw}))
    assert controller(parts).spec.extra_conf.splitlines() == raw


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ([], "needs rawConfig"),
        (["SlurmUser=root"], "starts with SlurmUser"),
        (["PartitionName=x Nodes=ALL ???"], "cannot read"),
    ],
)
def test_custom_partitions_that_are_none_are_a_problem(raw: list[str], told: str) -> None:
    parts = made(cluster(partitionConfiguration={"configType": "custom", "rawConfig": raw}))
    assert len(parts.problems) == 1
    assert told in parts.problems[0]


def test_structured_partitions_refer_to_nodesets() -> None:
    partitions = [
        {"name": "all", "isAll": True, "config": "Default=YES"},
        {"name": "big", "nodeSetRefs": ["gpu", "worker"], "config": "MaxTime=8:00:00"},
        {"name": "lost", "nodeSetRefs": ["nobody"]},
    ]
    parts = made(
        cluster(
            partitionConfiguration={"configType": "structured", "partitions": partitions},
            slurmNodes={"worker": {"size": 1}},
        ),
        nodeset("gpu", clusterName="demo", replicas=2),
        name_prefix="demo-",
    )
    assert controller(parts).spec.extra_conf.splitlines() == [
        "PartitionName=all Nodes=ALL Default=YES",
        "PartitionName=big Nodes=gpu,demo-worker MaxTime=8:00:00",
        'PartitionName=lost Nodes=""',
    ]
    assert parts.unresolved == ("nobody (of partition lost)",)
    assert not parts.problems


@pytest.mark.parametrize("config", ["Nodes=other", "Default=YES ???"])
def test_a_structured_partition_cannot_be_turned_into_something_else(config: str) -> None:
    partitions = [{"name": "main", "isAll": True, "config": config}]
    parts = made(cluster(partitionConfiguration={"configType": "structured", "partitions": partitions}))
    assert len(parts.problems) == 1
    assert "partitions[main]" in parts.problems[0]


@pytest.mark.parametrize(
    "text", ["Key", "ClusterName=other", "SlurmctldHost=evil", "MaxJobCount=1 \\", "x\x00=1", "= =", "Include"]
)
def test_text_that_slurm_could_not_read_or_must_not_get_is_a_problem(text: str) -> None:
    parts = made(cluster(customSlurmConfig=f"{text}\n"))
    assert parts.problems


@pytest.mark.parametrize("value", ["/usr/bin/true\nSlurmUser=root", "/usr/bin/true # x", '/usr/bin/"x"'])
def test_a_value_cannot_become_a_line_of_its_own(value: str) -> None:
    spec = msgspec.convert({"prolog": "/usr/bin/true"}, dict[str, str])
    hostile = msgspec.structs.replace(
        cluster().spec.slurm_config, prolog=spec["prolog"].replace("/usr/bin/true", value)
    )
    whole = cluster()
    whole = msgspec.structs.replace(whole, spec=msgspec.structs.replace(whole.spec, slurm_config=hostile))
    parts = made(whole)
    assert parts.problems
    assert "SlurmUser" not in controller(parts).spec.extra_conf


def test_a_script_that_no_worker_has_is_not_called() -> None:
    """Weakness 6 of soperator: a plain install drained its nodes at the first job."""
    parts = made(cluster(slurmConfig={"prolog": "/opt/slurm_scripts/prolog.sh", "epilog": "/usr/bin/true"}))
    assert "Prolog=/opt" not in controller(parts).spec.extra_conf
    assert "Epilog=/usr/bin/true" in controller(parts).spec.extra_conf
    assert len(parts.ignored) == 1
    assert parts.ignored[0].startswith("slurmConfig.prolog (/opt/slurm_scripts/prolog.sh is not on a volume")


def test_a_script_on_a_volume_of_every_worker_is_called() -> None:
    sources = [{"name": "scripts", "configMap": {"name": "scripts"}}]
    mounts = [{"name": "scripts", "mountPath": "/opt/slurm_scripts", "volumeSourceName": "scripts"}]
    parts = made(
        cluster(
            volumeSources=sources,
            slurmConfig={"prolog": "/opt/slurm_scripts/prolog.sh"},
            slurmNodes={"worker": {"size": 1, "volumes": {"customMounts": mounts}}},
        )
    )
    assert "Prolog=/opt/slurm_scripts/prolog.sh" in controller(parts).spec.extra_conf


def test_plugins_have_their_arguments_in_one_order() -> None:
    """Weakness 12 of soperator: an order that changed reconfigured the cluster for ever."""
    plugin = {"required": True, "path": "custom.so", "arguments": {"b": "2", "a": "1"}}
    parts = made(cluster(plugStackConfig={"customPlugins": [plugin]}))
    assert find(parts, "ConfigMap")["data"] == {"plugstack.conf": "required custom.so a=1 b=2\n"}
    (reference,) = controller(parts).spec.config_file_refs or ()
    assert reference.name == "demo-files"


def test_a_plugin_cannot_smuggle_in_a_line() -> None:
    plugin = {"path": "a.so\nrequired evil.so"}
    assert made(cluster(plugStackConfig={"customPlugins": [plugin]})).problems


def test_health_checks() -> None:
    check = {
        "healthCheckInterval": 120,
        "healthCheckProgram": "/usr/bin/true",
        "healthCheckNodeState": [{"state": "ANY"}, {"state": "CYCLE"}],
    }
    lines = controller(made(cluster(healthCheckConfig=check))).spec.extra_conf.splitlines()
    assert lines[:3] == [
        "HealthCheckInterval=120",
        "HealthCheckNodeState=ANY,CYCLE",
        "HealthCheckProgram=/usr/bin/true",
    ]


def test_settings_of_cgroups_go_over_ours() -> None:
    parts = parts_of(cluster(customCgroupConfig="ConstrainCores=no\n"), prefix="", settings=Settings(cgroup="v2"))
    text = find(parts, "ConfigMap")["data"]["cgroup.conf"]
    assert text.count("ConstrainCores") == 1
    assert "ConstrainCores=no" in text
    assert "CgroupPlugin=cgroup/v2" in text


def test_fields_without_effect_are_named() -> None:
    parts = made(
        cluster(
            useDefaultAppArmorProfile=True,
            topology={"blockSize": 4},
            slurmNodes={
                "exporter": {"enabled": True, "munge": {"image": "x"}},
                "login": {"userIsolation": {"enabled": True}},
            },
            plugStackConfig={"pyxis": {"required": True}},
        )
    )
    assert parts.ignored == (
        "plugStackConfig.pyxis",
        "slurmNodes.exporter.munge",
        "slurmNodes.login.userIsolation",
        "topology.blockSize (slurmConfig.topologyPlugin is not topology/block)",
        "useDefaultAppArmorProfile",
    )


# Standbys, maintenance


def test_two_controllers_share_their_state() -> None:
    parts = made(cluster(slurmNodes={"controller": {"size": 2}}))
    spec = controller(parts).spec
    assert spec.ha.enabled
    assert spec.ha.backups == 1
    assert spec.persistence.existing_claim == "controller-spool"
    claims = {child.key.name: child for child in parts.children if child.kind.name == "PersistentVolumeClaim"}
    assert claims["controller-spool"].manifest["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claims["controller-spool"].kept


def test_state_is_kept_where_the_spool_says() -> None:
    template = {"resources": {"requests": {"storage": "50Gi"}}, "storageClassName": "fast"}
    parts = made(cluster(slurmNodes={"controller": {"volumes": {"spool": {"volumeClaimTemplateSpec": template}}}}))
    persistence = controller(parts).spec.persistence
    assert persistence.storage_class_name == "fast"
    assert persistence.access_modes == ("ReadWriteOnce",)
    named = {"volumes": {"spool": {"volumeSourceName": "state"}}}
    claim = [{"name": "state", "persistentVolumeClaim": {"claimName": "state-claim"}}]
    parts = made(cluster(volumeSources=claim, slurmNodes={"controller": named}))
    assert controller(parts).spec.persistence.existing_claim == "state-claim"
    for kind in ({}, {"medium": "Memory", "sizeLimit": "1Gi"}):
        parts = made(cluster(volumeSources=[{"name": "state", "emptyDir": kind}], slurmNodes={"controller": named}))
        assert not controller(parts).spec.persistence.enabled
        pod = statefulset(controller(parts), Settings())["spec"]["template"]["spec"]
        assert {"name": "statesave", "emptyDir": kind} in pod["volumes"]


@pytest.mark.parametrize("mode", ["downscale", "downscaleAndDeletePopulateJail"])
def test_maintenance_takes_workers_first_and_slurmctld_when_they_are_drained(mode: str) -> None:
    resting = cluster(maintenance=mode, slurmNodes={"worker": {"size": 3}})
    parts = made(resting, drained=False)
    assert workers(parts).spec.replicas == 0
    assert login(parts).spec.replicas == 0
    assert parts.workers == 0
    assert controller(parts)
    assert names(made(resting, drained=True)) == {"NodeSet worker", "LoginSet login", "PersistentVolumeClaim jail"}


def test_skipping_to_populate_is_no_maintenance() -> None:
    assert workers(made(cluster(maintenance="skipPopulateJail"))).spec.replicas == 1


# NodeSets


def test_workers_come_from_nodesets_where_there_are_some() -> None:
    parts = made(cluster(), nodeset("gpu", clusterName="demo", replicas=4))
    assert not [child for child in parts.children if child.kind is NODESETS]
    assert parts.workers == 4


def test_a_manifest_of_soperator_gets_no_workers_of_its_own() -> None:
    parts = made(cluster(populateJail={"image": "populate", "k8sNodeFilterName": ""}))
    assert not [child for child in parts.children if child.kind is NODESETS]


def nodeset_child(of: NebiusNodeSet) -> tuple[Child, NodeSet, Parts]:
    child, told = nodeset_part(of, cluster(slurmNodes={"worker": {"size": 0}}), prefix="")
    return child, msgspec.convert(child.manifest, NodeSet), told


def test_a_nodeset_becomes_one_of_the_other_kind() -> None:
    child, found, told = nodeset_child(
        nodeset(
            "gpu",
            clusterName="demo",
            replicas=2,
            maxUnavailable=1,
            slurmd={
                "image": {"repository": "example/slurmd", "tag": "1"},
                "resources": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"},
                "volumes": {"sharedMemorySize": "1Gi"},
            },
            nodeConfig={
                "features": ["a100"],
                "static": "Weight=5 Feature=fast State=CLOUD",
                "dynamic": "InstanceId=$(reboot)",
            },
            nodeSelector={"pool": "gpu"},
            workerAnnotations={"note": "yes"},
        )
    )
    spec = found.spec
    assert child.key == ("hpc", "gpu")
    assert (spec.replicas, spec.controller_ref.name) == (2, "demo")
    assert spec.slurmd["image"] == "example/slurmd:1"
    assert spec.slurmd["resources"]["limits"] == {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"}
    # No shell ever sees it; and kubelet, which fills in variables of its own, is told that this is none.
    assert spec.slurmd["args"] == ["--extra", "InstanceId=$$(reboot)"]
    assert spec.extra_conf == "Weight=5 Feature=a100,fast"
    assert spec.update_strategy.rolling_update.max_unavailable == 1
    assert spec.template.spec["nodeSelector"] == {"pool": "gpu"}
    assert spec.template.metadata.annotations == {"note": "yes"}
    assert "dev-shm" in [mount["name"] for mount in spec.slurmd["volumeMounts"]]
    assert not told.problems


def test_a_nodeset_that_says_nothing_is_not_updated_all_at_once() -> None:
    """Weakness 14 of soperator: its default drained the whole set."""
    _, found, _ = nodeset_child(nodeset("cpu", clusterName="demo"))
    assert found.spec.update_strategy.rolling_update.max_unavailable == "25%"


@pytest.mark.parametrize(("gpu", "seconds"), [(True, 300), (False, None)])
def test_nodes_with_gpus_wait_for_their_place(*, gpu: bool, seconds: int | None) -> None:
    given = nodeset("gpu", ephemeralNodes=True, ephemeralTopologyWaitTimeout=300, gpu={"enabled": gpu})
    assert nodeset_child(given)[1].spec.ephemeral_topology_wait_timeout == seconds


def test_claims_of_nodesets_are_made_for_each_pod() -> None:
    """Weakness 6 of soperator: such a claim was pruned, and data silently went into an emptyDir."""
    mount = {"name": "scratch", "mountPath": "/scratch", "volumeClaimTemplateSpec": {"resources": {}}}
    _, found, _ = nodeset_child(nodeset("cpu", slurmd={"volumes": {"customVolumeMounts": [mount]}}))
    assert found.spec.volume_claim_templates == (
        {"metadata": {"name": "mount-scratch"}, "spec": {"resources": {}}},
    )


def test_gres_lines_go_with_their_set() -> None:
    text = "Name=gpu Count=2 File=/dev/nvidia[0-1]"
    _, found, told = nodeset_child(nodeset("gpu", nodeConfig={"gresConfig": [text]}))
    assert found.spec.gres_config == (text,)
    _, found, told = nodeset_child(nodeset("gpu", nodeConfig={"gresConfig": ["no setting"]}))
    assert not found.spec.gres_config
    assert "nodeConfig.gresConfig" in told.problems[0]


def test_the_topology_of_a_cluster_is_that_of_its_slurmctld() -> None:
    plugin = {"topologyPlugin": "topology/block", "topologyParam": "SwitchAsNodeRank"}
    spec = find(made(cluster(slurmConfig=plugin, topology={"blockSize": 4})), "Controller")["spec"]
    assert spec["topology"] == {"plugin": "block", "blockSize": 4}
    assert "TopologyParam=SwitchAsNodeRank\n" in spec["extraConf"]
    plain = find(made(cluster(slurmConfig={"topologyPlugin": "topology/flat"})), "Controller")["spec"]
    assert "topology" not in plain
    assert "topology/tree or topology/block" in made(cluster(slurmConfig={"topologyPlugin": "ring"})).problems[0]


def test_a_set_may_have_a_fabric_of_its_own() -> None:
    assert nodeset_child(nodeset("w"))[1].spec.fabric == "root"
    assert nodeset_child(nodeset("w", topology={"fabric": "ib"}))[1].spec.fabric == "ib"


def test_files_of_users_come_beside_ours() -> None:
    references = [{"name": "lua"}, {"name": "oci"}]
    spec = find(made(cluster(configFileRefs=references)), "Controller")["spec"]
    assert spec["configFileRefs"] == references
    both = find(made(cluster(configFileRefs=references, customCgroupConfig="ConstrainCores=no\n")), "Controller")
    assert both["spec"]["configFileRefs"] == [{"name": "demo-files"}, *references]


def test_workers_with_gpus_show_the_driver_in_the_shared_root() -> None:
    gpus = {"resources": {"cpu": "4", "nvidia.com/gpu": "2"}}
    of = nodeset("gpu", slurmd=gpus, gpu={"enabled": True, "nvidia": {"gdrCopyEnabled": True}})
    for root, expected in (({}, {"ISTHMUS_GPU_DRIVER": "yes"}), (None, {})):
        child, told = nodeset_part(of, cluster(populateJail=root), prefix="")
        env = {it["name"]: it["value"] for it in child.manifest["spec"]["slurmd"]["env"]}
        assert env == {**expected, "NVIDIA_GDRCOPY": "enabled"}
        assert not told.ignored


def test_gpus_that_are_not_there_have_no_effect() -> None:
    without = nodeset_child(nodeset("w", gpu={"enabled": True}))[2]
    assert without.ignored == ("gpu.enabled (slurmd.resources has no GPU, such as nvidia.com/gpu)",)
    copy = {"nvidia": {"gdrCopyEnabled": True}}
    assert nodeset_child(nodeset("w", gpu=copy))[2].ignored == ("gpu.nvidia.gdrCopyEnabled (gpu.enabled is false)",)


def test_devices_go_with_their_set() -> None:
    npu = {"resource": "example.org/npu", "gres": "npu", "files": ["/dev/npu[0-9]*"]}
    _, found, _ = nodeset_child(nodeset("npu", devices=[npu]))
    assert found.spec.devices == (msgspec.convert(npu, DeviceFiles),)


def test_certificates_of_a_database_reach_slurmdbd() -> None:
    password = {"name": "db", "key": "pass"}
    tls = {"serverCASecretRef": "db-ca", "clientCertSecretRef": "db-client"}
    external = {"enabled": True, "host": "db", "user": "u", "passwordSecretKeyRef": password, "tls": tls}
    parts = made(cluster(slurmNodes={"accounting": {"enabled": True, "externalDB": external}}))
    (child,) = (it for it in parts.children if it.kind is ACCOUNTINGS)
    accounting = msgspec.convert(child.manifest, Accounting)
    conf = slurmdbd.slurmdbd_conf(accounting)
    (line,) = (it for it in conf.splitlines() if it.startswith("StorageParameters="))
    pod = slurmdbd.statefulset(accounting, settings=Settings(), files={}, hash_="x")["spec"]["template"]["spec"]
    secrets = {it["name"]: it["secret"] for it in pod["volumes"] if "secret" in it}
    found = {
        f"{place['mountPath']}/{item['path']}": secrets[place["name"]]["secretName"]
        for place in pod["containers"][0]["volumeMounts"]
        for item in secrets.get(place["name"], {}).get("items", ())
    }
    told = dict(entry.split("=") for entry in line.removeprefix("StorageParameters=").split(","))
    assert {key: found[path] for key, path in told.items()} == {
        "SSL_CA": "db-ca",
        "SSL_CERT": "db-client",
        "SSL_KEY": "db-client",
    }
    assert "slurmNodes.accounting.externalDB.tls" not in parts.ignored


def test_a_claim_below_spool_is_made_for_each_worker() -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "50Gi"}}}
    given = nodeset("cpu", slurmd={"volumes": {"spool": {"volumeClaimTemplateSpec": claim}}})
    _, found, told = nodeset_child(given)
    (template,) = found.spec.volume_claim_templates
    assert template["spec"] == claim
    (place,) = (it for it in found.spec.slurmd["volumeMounts"] if it["mountPath"] == "/var/spool/slurmd")
    assert place["name"] == template["metadata"]["name"]
    assert place["name"] not in [it["name"] for it in found.spec.template.spec["volumes"]]
    assert not told.problems
    both = nodeset("cpu", slurmd={"volumes": {"spool": {"volumeClaimTemplateSpec": claim, "emptyDir": {}}}})
    assert "set either a volume source (emptyDir) or volumeClaimTemplateSpec" in nodeset_child(both)[2].problems[0]


@pytest.mark.parametrize("written", ["{{ .PodName }}", "{{.PodName}}", "{{- .PodName -}}"])
def test_the_name_of_the_pod_is_filled_in(written: str) -> None:
    _, found, told = nodeset_child(nodeset("cpu", nodeConfig={"dynamic": f"InstanceId={written}"}))
    assert found.spec.slurmd["args"] == ["--extra", "InstanceId=$(ISTHMUS_NODE)"]
    assert not told.problems
    controller = msgspec.convert({"metadata": {"name": "demo", "namespace": "hpc"}, "spec": {}}, Controller)
    pod = worker.template(found, controller, settings=Settings()).spec["containers"][0]
    assert "ISTHMUS_NODE" in [it["name"] for it in pod["env"]]
    assert pod["args"][-1] == "InstanceId=$(ISTHMUS_NODE)"


def test_a_template_that_nobody_fills_in_is_named() -> None:
    problems = nodeset_child(nodeset("cpu", nodeConfig={"dynamic": "Rack={{ .Rack }}"}))[2].problems
    assert problems == ("NodeSet cpu, nodeConfig.dynamic: the only template supported is {{ .PodName }}",)


def test_a_nodeset_and_the_cluster_s_own_workers_cannot_share_a_name() -> None:
    _, told = nodeset_part(nodeset("worker"), cluster(slurmNodes={"worker": {"size": 2}}), prefix="")
    assert len(told.problems) == 1
    assert "slurmNodes.worker.size" in told.problems[0]
    # As the problem says, it can have the name when there are none.
    none = cluster(slurmNodes={"worker": {"size": 0}})
    assert not nodeset_part(nodeset("worker"), none, prefix="")[1].problems
    assert not [it for it in made(none, nodeset("worker")).children if it.kind is NODESETS]
    assert [it for it in made(none, nodeset("gpu")).children if it.kind is NODESETS]


@pytest.mark.parametrize("name", ["1st", "a" * 41, "with.dot"])
def test_a_name_that_hosts_cannot_have_is_a_problem(name: str) -> None:
    assert parts_of(cluster(name), prefix="", settings=Settings()).problems


def test_the_same_cluster_is_always_made_of_the_same_parts() -> None:
    spec: dict[str, Any] = {
        "slurmNodes": {"worker": {"size": 3}, "accounting": {"enabled": True}},
        "users": [{"name": "soperator", "uid": 1000, "sshPublicKeys": ["ssh-ed25519 AAAA"]}],
    }
    assert made(cluster(**spec)) == made(cluster(**spec))
    (user,) = controller(made(cluster(**spec))).spec.users
    assert (user.name, user.uid, user.ssh_public_keys) == ("soperator", 1000, ("ssh-ed25519 AAAA",))

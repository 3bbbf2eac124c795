"""What is refused, and what is warned about, before anything is made from it."""

import re
from typing import Any

import pytest

from isthmus.domain.operator.validation import Findings
from isthmus.model import slinky as parts
from isthmus.model import soperator
from isthmus.model.base import Kind
from isthmus.operator.webhook import KINDS, judge
from tests.unit.operator.manifests import ED25519, Manifest, cluster, nebius_nodeset, slinky

BY_NAME = {(kind.api_version, kind.name): kind for kind in KINDS}


def look(manifest: Manifest) -> Findings:
    return judge(BY_NAME[manifest["apiVersion"], manifest["kind"]], manifest)


def user(name: str = "alice", uid: int = 2000, **more: Any) -> Manifest:
    return {"name": name, "uid": uid, **more}


FINE = {
    "the smallest Controller": slinky("Controller"),
    "a Controller with lines of its own": slinky(
        "Controller", extraConf="# a note\nPartitionName=all Nodes=ALL Default=YES\nSchedulerParameters=bf_max=10\n"
    ),
    "users": slinky("Controller", users=[user(sshPublicKeys=[ED25519]), user("bob", 2001, groups=["physics"])]),
    "the smallest NodeSet": slinky("NodeSet"),
    "a NodeSet with numbers for amounts": slinky("NodeSet", slurmd={"resources": {"limits": {"cpu": 2}}}),
    "a Controller with nulls, as slurm-operator's chart writes them": slinky(
        "Controller", configFileRefs=None, prologScriptRefs=None, epilogSlurmctldScriptRefs=None
    ),
    "a NodeSet with nulls, as Helm writes them": slinky(
        "NodeSet", slurmd={"env": None, "resources": None}, template={"spec": {"tolerations": None}}
    ),
    "an elastic NodeSet": slinky(
        "NodeSet",
        replicas=20,
        autoscale={
            "min": 1,
            "max": 10,
            "warm": 2,
            "idleTime": "10m",
            "budget": {"nodeHoursPerDay": 100},
            "schedule": [{"from": "18:00", "to": "08:00", "days": ["Sat", "Sun"], "timeZone": "UTC", "min": 0}],
        },
    ),
    "settings of nodes": slinky("NodeSet", extraConf="Weight=10 Feature=fast,new\n"),
    "a partition": slinky("NodeSet", partition={"enabled": True, "config": "State=UP MaxTime=UNLIMITED"}),
    "a hostname prefix": slinky("NodeSet", "slurm-worker-slinky", template={"spec": {"hostname": "slinky-"}}),
    "a LoginSet with root's keys": slinky("LoginSet", rootSshAuthorizedKeys=f"# root\n{ED25519}\n"),
    "an Accounting with lines of its own": slinky("Accounting", extraConf="CommitDelay=1\nDebugLevel=info"),
    "a RestApi": slinky("RestApi"),
    "a Token": slinky("Token"),
    "the smallest cluster": cluster(),
    "workers of a cluster": cluster(slurmNodes={"worker": {"size": 4, "maxUnavailable": "20%"}}),
    "a NodeSet of a cluster": nebius_nodeset(slurmd={"resources": {"cpu": "4", "memory": "8Gi"}}),
}


@pytest.mark.parametrize("manifest", FINE.values(), ids=FINE.keys())
def test_what_works_is_let_in_without_a_word(manifest: Manifest) -> None:
    found = look(manifest)
    # Of workers that ask for nothing, see below.
    warnings = [it for it in found.warnings if "BestEffort" not in it]
    assert (found.problems, warnings) == ([], [])


ASKED = {"requests": {"memory": "1Gi"}}


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        (slinky("NodeSet"), "spec.slurmd.resources"),
        (slinky("NodeSet", slurmd={"resources": ASKED}), ""),
        (slinky("NodeSet", template={"spec": {"containers": [{"name": "slurmd", "resources": ASKED}]}}), ""),
        (slinky("NodeSet", template={"spec": {"resources": ASKED}}), ""),
        (slinky("NodeSet", replicas=0), ""),
        (cluster(), "spec.slurmNodes.worker.resources"),
        (cluster(slurmNodes={"worker": {"resources": {"memory": "1Gi"}}}), ""),
        (cluster(slurmNodes={"worker": {"size": 0}}), ""),
        (nebius_nodeset(replicas=1), "spec.slurmd.resources"),
        (nebius_nodeset(replicas=1, slurmd={"resources": {"memory": "1Gi"}}), ""),
    ],
)
def test_workers_that_ask_for_nothing_are_warned_of(manifest: Manifest, field: str) -> None:
    (told,) = [it for it in look(manifest).warnings if "BestEffort" in it] or [""]
    assert told.partition(" ")[0] == field


@pytest.mark.parametrize(("seconds", "told"), [(0, 0), (1, 1), (4, 1), (5, 0), (120, 0)])
def test_health_checks_that_keep_slurmctld_from_registering_nodes_are_warned_of(seconds: int, told: int) -> None:
    config = {
        "healthCheckInterval": seconds,
        "healthCheckProgram": "/usr/bin/true",
        "healthCheckNodeState": [{"state": "ANY"}],
    }
    found = look(cluster(healthCheckConfig=config))
    assert len([it for it in found.warnings if "healthCheckInterval" in it]) == told


WHOLE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def sub_mount(claim: Manifest) -> Manifest:
    mount = {"name": "two", "mountPath": "/tmp/2", "volumeClaimTemplateSpec": claim}  # noqa: S108 - of a pod
    return nebius_nodeset(slurmd={"volumes": {"jail": {"emptyDir": {}}, "jailSubMounts": [mount]}})


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        (sub_mount({}), "claim mount-two: it has no accessModes and no resources.requests.storage"),
        (sub_mount({**WHOLE, "accessModes": []}), "claim mount-two: it has no accessModes:"),
        (sub_mount(WHOLE), ""),
        (
            slinky("NodeSet", volumeClaimTemplates=[{"metadata": {"name": "d"}}]),
            "claim d: it has no accessModes and",
        ),
        (slinky("NodeSet", volumeClaimTemplates=[{"metadata": {"name": "d"}, "spec": WHOLE}]), ""),
    ],
)
def test_claims_that_kubernetes_would_not_make_are_warned_of(manifest: Manifest, told: str) -> None:
    """The values of Soperator's chart have one: no worker of that NodeSet would ever come."""
    found = look(manifest)
    assert found.problems == []
    warned = [it for it in found.warnings if "claim" in it]
    assert len(warned) == bool(told)
    assert told in "".join(warned)


REFUSED = {
    # Slurm configuration that is none, or would be more than it seems
    "no setting": (slinky("Controller", extraConf="ReturnToService"), "extraConf, line 1: cannot read"),
    "a line that takes in what follows": (
        slinky("Controller", extraConf="Prolog=x \\"),
        "ends with a backslash",
    ),
    "another name of the cluster": (slinky("Controller", extraConf="ClusterName=x"), "use spec.clusterName"),
    "a zero byte": (slinky("Controller", extraConf="Prolog=\0"), r"spec\.extraConf: has the control character"),
    "an escape sequence": (slinky("LoginSet", extraSshdConfig="\x1b[2J"), "control character"),
    "an unquoted quote": (slinky("Controller", extraConf='Prolog="x'), "cannot read"),
    "Windows": (slinky("Controller", extraConf="ReturnToService=2\r\nPrologFlags=x"), "carriage return"),
    "slurmdbd.conf": (slinky("Accounting", extraConf="what"), "extraConf, line 1"),
    "another slurmdbd": (slinky("Accounting", extraConf="DbdHost=elsewhere"), "sets DbdHost"),
    "a password in the clear": (slinky("Accounting", extraConf="StoragePass=hunter2"), "put it into a Secret"),
    # Nodes
    "shell in settings of nodes": (slinky("NodeSet", extraConf="Weight=$(reboot)"), "not Key=Value"),
    "quotes in settings of nodes": (slinky("NodeSet", extraConf="Extra='x'"), "not Key=Value"),
    "another name of nodes": (slinky("NodeSet", extraConf="NodeName=root"), "sets NodeName"),
    "a second line in a partition": (
        slinky("NodeSet", partition={"enabled": True, "config": "State=UP\nInclude /etc/shadow"}),
        "partition.config",
    ),
    "a partition of workers that takes in the line behind it": (
        slinky("NodeSet", partition={"enabled": True, "config": "State=UP \\"}),
        "ends with a backslash",
    ),
    "another partition in a partition": (
        slinky("NodeSet", partition={"enabled": True, "config": "Nodes=ALL"}),
        "sets nodes twice",
    ),
    "half a CPU": (slinky("NodeSet", slurmd={"resources": {"limits": {"cpu": "500m"}}}), "less than one"),
    "less than nothing": (
        slinky("NodeSet", slurmd={"resources": {"limits": {"memory": "-1"}}}),
        "is negative",
    ),
    "no amount": (slinky("NodeSet", slurmd={"resources": {"limits": {"memory": "lots"}}}), "limits.memory"),
    "a container that is none": (slinky("NodeSet", slurmd={"resources": "all"}), "spec.slurmd"),
    "containers that are none": (slinky("NodeSet", template={"spec": {"containers": "x"}}), "spec.template.spec"),
    "a container without a name": (slinky("NodeSet", template={"spec": {"containers": [{}]}}), "name"),
    "a hostname that is none": (slinky("NodeSet", template={"spec": {"hostname": "A_b"}}), "cannot be called"),
    "names that are too long": (
        slinky("NodeSet", "n" * 50, template={"spec": {"hostname": "h" * 63}}),
        "host name",
    ),
    "claims without names": (slinky("NodeSet", volumeClaimTemplates=[{"spec": {}}]), "volumeClaimTemplates"),
    "claims of one name": (
        slinky("NodeSet", volumeClaimTemplates=[{"metadata": {"name": "a"}}, {"metadata": {"name": "a"}}]),
        r"volumeClaimTemplates\[1\]",
    ),
    "more nodes than Slurm can count": (slinky("NodeSet", replicas=10**9), "replicas"),
    # People
    "a user of the system": (slinky("Controller", users=[user("slurm")]), "a system user"),
    "two with one number": (slinky("Controller", users=[user(), user("bob")]), "2000 is already used by alice"),
    "a group of the system": (slinky("Controller", users=[user(groups=["root"])]), "a system group"),
    "a private key": (
        slinky("LoginSet", rootSshAuthorizedKeys="-----BEGIN OPENSSH PRIVATE KEY-----"),
        "private key",
    ),
    "a name with a line break": (slinky("Controller", users=[user("a\nb:x:0:0")]), "users"),
    "a reference without a name": (slinky("Controller", configFileRefs=[{"name": ""}]), r"configFileRefs\[0\]"),
    # Whole clusters
    "an unknown node filter": (
        cluster(slurmNodes={"login": {"k8sNodeFilterName": "gpu"}}, k8sNodeFilters=[{"name": "cpu"}]),
        r"login\.k8sNodeFilterName: there is no node filter 'gpu' in k8sNodeFilters \(there: cpu\)",
    ),
    "an unknown volume source": (
        cluster(slurmNodes={"controller": {"volumes": {"spool": {"volumeSourceName": "nowhere"}}}}),
        "there is no volume source 'nowhere'",
    ),
    "a mount of nothing": (
        cluster(slurmNodes={"login": {"volumes": {"customMounts": [{"name": "a", "mountPath": "/a"}]}}}),
        "set either volumeSourceName or volumeClaimTemplateSpec",
    ),
    "free text that is no configuration": (cluster(customSlurmConfig="hello"), "customSlurmConfig, line 1"),
    "a partition that is none": (
        cluster(partitionConfiguration={"configType": "custom", "rawConfig": ["what is this"]}),
        "what is this",
    ),
    "a partition that takes in the line behind it": (
        cluster(partitionConfiguration={"configType": "custom", "rawConfig": ["PartitionName=a Nodes=ALL \\"]}),
        r"partitionConfiguration\.rawConfig, line 1: .*ends with a backslash",
    ),
    "a structured partition that does": (
        cluster(
            partitionConfiguration={
                "configType": "structured",
                "partitions": [{"name": "a", "isAll": True, "config": "MaxTime=1 \\"}],
            }
        ),
        r"partitions\[a\]\.config: .*ends with a backslash",
    ),
    "a name of the cluster in a cluster": (
        cluster(customSlurmConfig="ClusterName=x"),
        r"^customSlurmConfig sets clustername, which the operator manages \(use metadata\.name\)$",
    ),
    "a cluster without slurmctld": (
        cluster(slurmNodes={"controller": {"size": 0}}),
        r"slurmNodes\.controller\.size: .*maintenance: downscale",
    ),
    "a port that is the node's own": (
        cluster(slurmNodes={"login": {"sshdServiceType": "NodePort", "sshdServiceNodePort": 22}}),
        r"sshdServiceNodePort: 22 .*30000",
    ),
    "a port of a part that is the node's own": (
        slinky("LoginSet", service={"spec": {"type": "NodePort"}, "nodePort": 22}),
        r"spec\.service\.nodePort: 22 .*30000",
    ),
    "a comment in a value": (cluster(slurmConfig={"taskPluginParam": "Cores#x"}), "begins a comment"),
    "half a CPU in a cluster": (cluster(slurmNodes={"worker": {"resources": {"cpu": "0.5"}}}), "less than one"),
    "two databases": (
        cluster(slurmNodes={"accounting": {"externalDB": {"enabled": True}, "mariadbOperator": {"enabled": True}}}),
        "choose one",
    ),
    "a database nowhere": (
        cluster(slurmNodes={"accounting": {"enabled": True, "externalDB": {"enabled": True}}}),
        r"externalDB\.host: is required",
    ),
    "root as a user of a cluster": (cluster(users=[user("root")]), r"^spec\.users\[root\]"),
    "half a CPU in a NodeSet": (nebius_nodeset(slurmd={"resources": {"cpu": "100m"}}), "less than one"),
    "settings that are none": (nebius_nodeset(nodeConfig={"static": "Weight"}), "nodeConfig.static"),
    "more nodes at least than at most": (
        slinky("NodeSet", replicas=9, autoscale={"min": 5, "max": 3}),
        r"^spec\.autoscale\.min: 5 is more than max, 3",
    ),
    "a time zone that is none": (
        nebius_nodeset(
            ephemeralNodes=True, autoscale={"budget": {"nodeHoursPerDay": 9, "timeZone": "Europe/Atlantis"}}
        ),
        r"^spec\.autoscale\.budget\.timeZone: time zone 'Europe/Atlantis' is not known \(write a name",
    ),
    "an elastic DaemonSet": (
        slinky("NodeSet", scalingMode="DaemonSet", autoscale={}),
        r"^spec\.autoscale: needs scalingMode StatefulSet",
    ),
    "shell in a feature": (nebius_nodeset(nodeConfig={"features": ["$(id)"]}), "features"),
}


@pytest.mark.parametrize(("manifest", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_could_not_work_is_refused_with_the_reason(manifest: Manifest, why: str) -> None:
    problems = "\n".join(look(manifest).problems)
    assert re.search(why, problems), problems


WARNED = {
    "addresses of others": (slinky("RestApi", service={"spec": {"externalIPs": ["192.0.2.1"]}}), "is dropped"),
    "a key that is none": (slinky("LoginSet", rootSshAuthorizedKeys="YOUR KEY HERE"), "does not look like"),
    "a word misspelt in a container": (
        slinky("NodeSet", slurmd={"imgae": "x"}),
        r"unknown fields.*spec\.slurmd\.imgae",
    ),
    "a word misspelt in a pod": (
        slinky("LoginSet", template={"spec": {"tolerationz": [], "containers": [{"name": "side", "argz": []}]}}),
        r"template\.spec\.tolerationz, spec\.template\.spec\.containers\[side\]\.argz",
    ),
    "a port that most API servers refuse": (
        slinky("LoginSet", service={"spec": {"type": "NodePort"}, "nodePort": 8022}),
        r"spec\.service\.nodePort: 8022 .*--service-node-port-range",
    ),
    "a partition that is off": (slinky("NodeSet", partition={"config": "State=UP"}), "has no effect"),
    "a file of the image": (slinky("Controller", extraConf="Include /opt/site.conf"), "must be in the image"),
    "fields without effect": (
        cluster(plugStackConfig={"pyxis": {"required": True}}, topology={"blockSize": 4}),
        r"fields that have no effect yet: .*spec\.plugStackConfig\.pyxis.*spec\.topology",
    ),
    "a ServiceMonitor": (
        slinky("Controller", metrics={"enabled": False, "serviceMonitor": {"enabled": True}}),
        r"no effect: spec\.metrics\.serviceMonitor \(",
    ),
    "metrics that are private": (
        slinky("Controller", metrics={"enabled": True}, extraConf="PrivateData=jobs"),
        "serves no metrics while PrivateData is set",
    ),
    "logs of slurmctld": (slinky("Controller", logfile={"image": "alpine"}), r"no effect: spec\.logfile \("),
    "a directory of users on workers, logs, revisions": (
        slinky(
            *("NodeSet",),
            ssh={"enabled": True, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}},
            logfile={"image": "alpine"},
            revisionHistoryLimit=3,
        ),
        r"no effect: spec\.ssh\.sssdConfRef \(.*\), spec\.logfile \(.*\), spec\.revisionHistoryLimit \(",
    ),
    "how login nodes get their configuration": (
        slinky("LoginSet", initconf={"image": "alpine"}, strategy={"rollingUpdate": {"maxSurge": 1}}),
        r"no effect: spec\.initconf \(.*\), spec\.strategy\.rollingUpdate \(",
    ),
    "somebody who may become root": (
        slinky("Controller", users=[user(sudo=True)]),
        r"alice can become root on login",
    ),
    "somebody who may, of a cluster": (cluster(users=[user(sudo=True)]), r"alice can become root on login"),
    "a policy for more nodes than there are": (
        slinky("NodeSet", replicas=2, autoscale={"max": 3}),
        r"spec\.autoscale\.max: 3 is more than replicas, 2",
    ),
    "a policy for nodes that are always there": (nebius_nodeset(autoscale={"max": 1}), "ephemeralNodes is false"),
    "fields of a NodeSet without effect": (
        nebius_nodeset(workerInitRandomDelaySeconds=60),
        r"spec\.workerInitRandomDelaySeconds",
    ),
    "a wait of nodes that are always there": (
        nebius_nodeset(ephemeralTopologyWaitTimeout=60),
        r"spec\.ephemeralTopologyWaitTimeout \(ephemeralNodes is false\)",
    ),
}


@pytest.mark.parametrize(("manifest", "what"), WARNED.values(), ids=WARNED.keys())
def test_what_is_let_in_but_not_as_meant_is_warned_about(manifest: Manifest, what: str) -> None:
    found = look(manifest)
    assert found.problems == []
    assert re.search(what, "\n".join(found.warnings)), found.warnings


def test_everything_is_found_at_once() -> None:
    found = look(
        cluster(
            slurmNodes={"login": {"k8sNodeFilterName": "a"}, "worker": {"k8sNodeFilterName": "b"}},
            users=[user("root")],
        )
    )
    assert len(found.problems) == 3


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_no_outline_of_a_pod_makes_it_fail(kind: Kind[Any]) -> None:
    strange: list[Any] = ["", 1, [], {}, True, [1], {"a": 1}, None]
    needed = slinky(kind.name)["spec"] if kind.group == parts.GROUP else {}
    for value in strange:
        for field in ("template", "slurmd", "slurmctld", "login", "service", "volumeClaimTemplates", "users"):
            for inner in (value, {"spec": value}, {"resources": value}, {"spec": {"containers": value}}):
                spec = needed | {field: inner}
                judge(kind, {"metadata": {"name": "x"}, "spec": spec})


def test_a_cluster_in_a_cluster_is_looked_at_under_its_own_names() -> None:
    status = {"namePrefix": "second-"}
    found = judge(soperator.SLURM_CLUSTERS, cluster("second") | {"status": status})
    assert found.problems == []


def test_what_a_part_could_not_change_is_refused_for_the_whole() -> None:
    def with_state(claim: str) -> Manifest:
        sources = [{"name": "state", "persistentVolumeClaim": {"claimName": claim}}]
        spool = {"volumeSourceName": "state"}
        return cluster(volumeSources=sources, slurmNodes={"controller": {"volumes": {"spool": spool}}})

    assert judge(soperator.SLURM_CLUSTERS, with_state("a"), with_state("a")).problems == []
    (problem,) = judge(soperator.SLURM_CLUSTERS, with_state("b"), with_state("a")).problems
    assert "where slurmctld keeps its state" in problem

    def with_scratch(size: str) -> Manifest:
        mount = {"name": "scratch", "mountPath": "/scratch"}
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        mounts = [mount | {"volumeClaimTemplateSpec": claim}]
        return nebius_nodeset(slurmd={"volumes": {"customVolumeMounts": mounts}})

    assert judge(soperator.NEBIUS_NODESETS, with_scratch("1Gi"), with_scratch("1Gi")).problems == []
    (problem,) = judge(soperator.NEBIUS_NODESETS, with_scratch("2Gi"), with_scratch("1Gi")).problems
    assert "the claims that each worker has" in problem


def test_who_wants_another_number_of_slurmctld_is_told_what_to_do() -> None:
    one, two = (cluster(slurmNodes={"controller": {"size": size}}) for size in (1, 2))
    (problem,) = judge(soperator.SLURM_CLUSTERS, two, one).problems
    assert "delete the cluster (claims stay), copy that claim to one with ReadWriteMany" in problem
    (problem,) = judge(soperator.SLURM_CLUSTERS, one, two).problems
    assert "volumes.spool.volumeSourceName: state" in problem
    sources = [{"name": "state", "persistentVolumeClaim": {"claimName": "controller-spool"}}]
    volumes = {"spool": {"volumeSourceName": "state"}}
    as_told = cluster(volumeSources=sources, slurmNodes={"controller": {"size": 1, "volumes": volumes}})
    assert judge(soperator.SLURM_CLUSTERS, as_told, two).problems == []


def test_scaling_is_no_change_of_what_is_fixed() -> None:
    few, many = (cluster(slurmNodes={"worker": {"size": size}}) for size in (2, 15))
    assert judge(soperator.SLURM_CLUSTERS, many, few).problems == []

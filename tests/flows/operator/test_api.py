"""The kinds of Slurm clusters, served and enforced by a real API server: schema, defaults and rules alone."""

from typing import Any

import pytest

from isthmus.kube.client import Client
from isthmus.kube.errors import ApiError, Invalid
from isthmus.model import slinky as parts
from isthmus.model import soperator
from isthmus.model.autoscaler import AUTOSCALERS
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.operator.webhook import KINDS
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually_read
from tests.flows.operator.others import CLUSTERS_OF_OTHERS
from tests.unit.operator.manifests import KEYS, Manifest, cluster, nebius_nodeset, slinky, written

RAW: dict[tuple[str, str], Kind[Manifest]] = {
    (kind.api_version, kind.name): Kind(dict[str, Any], kind.api_version, kind.plural, kind.name) for kind in KINDS
}


async def create(kube: Client, namespace: str, manifest: Manifest) -> Manifest:
    kind = RAW[manifest["apiVersion"], manifest["kind"]]
    return await kube.create(kind, manifest | {"metadata": manifest["metadata"] | {"namespace": namespace}})


async def change(kube: Client, namespace: str, manifest: Manifest, patch: Manifest) -> Manifest:
    kind = RAW[manifest["apiVersion"], manifest["kind"]]
    return await kube.merge_patch(kind, Key(namespace, manifest["metadata"]["name"]), patch)


async def test_defaults_are_filled_in(kube: Client, namespace: str) -> None:
    made = (await create(kube, namespace, slinky("NodeSet", "workers")))["spec"]
    assert made == {
        "controllerRef": {"name": "slurm"},
        "replicas": 1,
        "scalingMode": "StatefulSet",
        "ssh": {"enabled": False},
        "partition": {"enabled": False},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
        "revisionHistoryLimit": 0,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "minReadySeconds": 0,
        "ordinalPadding": 0,
        "pinToNode": False,
        "workloadDisruptionProtection": True,
        "pruneSlurmNodeRecords": "Never",
        "oversubscribeNode": False,
        "drain": {"onTimeout": "Wait"},
        "registration": "Dynamic",
        "initialNumberEphemeralNodes": 0,
        "fabric": "root",
    }


async def test_what_the_server_keeps_is_what_we_read(kube: Client, namespace: str) -> None:
    await create(kube, namespace, slinky("Controller", users=[{"name": "alice", "uid": 2000}]))
    found = await kube.get(parts.CONTROLLERS, Key(namespace, "slurm"))
    assert found.spec == parts.ControllerSpec(
        slurm_key_ref=parts.KeyReference(**KEYS["slurmKeyRef"]),
        jwt_key_ref=parts.KeyReference(**KEYS["jwtKeyRef"]),
        users=(parts.User(name="alice", uid=2000),),
    )


async def test_the_smallest_cluster_says_nothing_at_all(kube: Client, namespace: str) -> None:
    await create(kube, namespace, cluster("small"))
    found = await kube.get(soperator.SLURM_CLUSTERS, Key(namespace, "small"))
    assert found.spec == soperator.SlurmClusterSpec()


async def test_the_documents_scale_a_cluster_by_a_patch(kube: Client, namespace: str) -> None:
    first = cluster("ml-cluster", slurmNodes={"worker": {"size": 2, "maxUnavailable": "20%"}})
    await create(kube, namespace, first)
    made = await change(kube, namespace, first, {"spec": {"slurmNodes": {"worker": {"size": 15}}}})
    assert made["spec"]["slurmNodes"]["worker"]["size"] == 15
    assert made["spec"]["slurmNodes"]["worker"]["maxUnavailable"] == "20%"


def ref(name: str, key: str = "jwt.key") -> Manifest:
    return {"name": name, "key": key}


REFUSED = {
    "no slurm key": (slinky("Controller", slurmKeyRef=None), "slurmKeyRef is required unless external"),
    "no jwt key": (slinky("Controller", jwtKeyRef=None), "jwtKeyRef is required unless external"),
    "an external one nowhere": (slinky("Controller", external=True), "externalConfig is required"),
    "standbys without shared state": (slinky("Controller", ha={"enabled": True}), "ha needs persistence"),
    "no standby at all": (slinky("Controller", ha={"enabled": True, "backups": 0}), "ha.backups"),
    "a cluster name for a shell": (slinky("Controller", clusterName="a;reboot"), "clusterName"),
    "a cluster name that is too long": (slinky("Controller", clusterName="a" * 41), "clusterName"),
    "a name that no Service can have": (slinky("Controller", "1st"), "hosts and Services are named after it"),
    "a name that no host can have": (slinky("NodeSet", "a.b"), "hosts and Services are named after it"),
    "a name with nothing left for a number": (slinky("NodeSet", "n" * 60), "hosts and Services are named after"),
    "a name of a key that is a path": (slinky("Controller", jwtKeyRef=ref("a", "../x")), "jwtKeyRef.key"),
    "a Secret of another namespace": (slinky("Controller", jwtKeyRef=ref("other/a")), "jwtKeyRef.name"),
    "an accounting without keys": (slinky("Accounting", slurmKeyRef=None), "slurmKeyRef is required"),
    "a database behind a line break": (
        slinky("Accounting", storageConfig={"host": "db\nStorageType=x", "passwordKeyRef": ref("a")}),
        "storageConfig.host",
    ),
    "a database user with a comment": (
        slinky("Accounting", storageConfig={"host": "db", "username": "a#b", "passwordKeyRef": ref("a")}),
        "storageConfig.username",
    ),
    "a REST API of nothing": (slinky("RestApi", controllerRef={}), "controllerRef.name is required"),
    "less than no nodes": (slinky("NodeSet", replicas=-1), "replicas"),
    "more nodes than Slurm can count": (slinky("NodeSet", replicas=2**40), "replicas"),
    "a mode that there is not": (slinky("NodeSet", scalingMode="Job"), "scalingMode"),
    "a partition of two lines": (slinky("NodeSet", partition={"config": "a=b\nc=d"}), "partition.config"),
    "settings of two lines": (slinky("NodeSet", extraConf="Weight=1\nNodeName=x"), "extraConf"),
    "nothing may be away": (
        slinky("NodeSet", updateStrategy={"rollingUpdate": {"maxUnavailable": 0}}),
        "maxUnavailable is a number from 1",
    ),
    "no percent may be away": (
        slinky("NodeSet", updateStrategy={"rollingUpdate": {"maxUnavailable": "0%"}}),
        "maxUnavailable is a number from 1",
    ),
    "a schedule without a start": (
        slinky("NodeSet", updateStrategy={"type": "ScheduledUpdate"}),
        "needs scheduledUpdate.startTime",
    ),
    "a window of seconds": (
        slinky("NodeSet", updateStrategy={"scheduledUpdate": {"duration": "30s"}}),
        "between one minute and a year",
    ),
    "a drain that never ends": (slinky("NodeSet", drain={"timeout": "999999h"}), "at most ten years"),
    "no duration": (slinky("NodeSet", drain={"timeout": "soon"}), "drain.timeout"),
    "an end that there is not": (slinky("NodeSet", drain={"onTimeout": "Kill"}), "drain.onTimeout"),
    "a user with a colon": (slinky("Controller", users=[{"name": "a:b", "uid": 2000}]), r"users\[0\].name"),
    "a user like root": (slinky("Controller", users=[{"name": "toor", "uid": 0}]), r"users\[0\].uid"),
    "a user without a number": (slinky("Controller", users=[{"name": "alice"}]), "uid"),
    "a user twice": (
        slinky("Controller", users=[{"name": "a", "uid": 2000}, {"name": "a", "uid": 2001}]),
        "Duplicate",
    ),
    "a shell with arguments": (
        slinky("Controller", users=[{"name": "a", "uid": 2000, "shell": "/bin/sh -c x"}]),
        "shell",
    ),
    "a token for two lines": (slinky("Token", username="a\nb"), "username"),
    "a token for ever": (slinky("Token", lifetime="9999999h"), "between one minute and ten years"),
    "a token for a moment": (slinky("Token", lifetime="1ms"), "between one minute and ten years"),
    "a token without a key": (slinky("Token", jwtKeyRef=None), "jwtKeyRef is required"),
    "a partition of nothing": (
        cluster(partitionConfiguration={"configType": "structured"}),
        "needs at least one partition",
    ),
    "a partition with a space": (
        cluster(partitionConfiguration={"configType": "structured", "partitions": [{"name": "a b"}]}),
        "partitions",
    ),
    "more memory than there is": (
        cluster(slurmNodes={"login": {"userIsolation": {"memoryHigh": "2Gi", "memoryMax": "1Gi"}}}),
        "memoryHigh must not exceed memoryMax",
    ),
    "a filter twice": (cluster(k8sNodeFilters=[{"name": "a"}, {"name": "a"}]), "Duplicate"),
    "a volume without a name": (cluster(volumeSources=[{"emptyDir": {}}]), "name"),
    "a program with arguments": (
        cluster(
            healthCheckConfig={
                "healthCheckInterval": 1,
                "healthCheckProgram": "/bin/sh -c x",
                "healthCheckNodeState": [{"state": "ANY"}],
            }
        ),
        "healthCheckProgram",
    ),
    "a value of two lines": (cluster(slurmConfig={"prolog": "/a\nInclude /b"}), "slurmConfig.prolog"),
    "a number past all": (cluster(slurmConfig={"maxJobCount": 2**33}), "maxJobCount"),
    "an amount that is none": (cluster(slurmNodes={"worker": {"resources": {"cpu": "many"}}}), "resources.cpu"),
    "a key of two lines": (
        cluster(slurmNodes={"login": {"sshRootPublicKeys": ["ssh-rsa a\ncommand=x ssh-rsa b"]}}),
        "sshRootPublicKeys",
    ),
    "more away than there are": (
        cluster(slurmNodes={"worker": {"maxUnavailable": "200%"}}),
        "maxUnavailable is a number from 1, or a percentage from 1% to 100%",
    ),
    "too many away": (nebius_nodeset(maxUnavailable=501), "maxUnavailable is a number from 1 to 500"),
    "a feature for a shell": (nebius_nodeset(nodeConfig={"features": ["a;b"]}), "features"),
}


@pytest.mark.parametrize(("manifest", "why"), REFUSED.values(), ids=REFUSED.keys())
async def test_schema_and_rules_refuse(kube: Client, namespace: str, manifest: Manifest, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        await create(kube, namespace, manifest)


FIXED = {
    "the name in accounting": (slinky("Controller", clusterName="a"), {"clusterName": "b"}, "clusterName cannot"),
    "a name after the fact": (slinky("Controller"), {"clusterName": "b"}, "clusterName cannot"),
    "the Secret of the key": (slinky("Controller"), {"slurmKeyRef": {"name": "b"}}, "slurmKeyRef.name cannot"),
    "the key of tokens": (slinky("Controller"), {"jwtKeyRef": {"name": "b"}}, "jwtKeyRef cannot"),
    "the key of tokens, by its old name": (
        slinky("Controller", jwtKeyRef=None, jwtHs256KeyRef=ref("a")),
        {"jwtKeyRef": ref("b")},
        "jwtKeyRef cannot",
    ),
    "whether state is kept": (
        slinky("Controller"),
        {"persistence": {"enabled": False}},
        "persistence.enabled cannot",
    ),
    "where state is kept": (
        slinky("Controller", persistence={"existingClaim": "a"}),
        {"persistence": {"existingClaim": "b"}},
        "persistence.existingClaim cannot",
    ),
    "the key of slurmdbd": (slinky("Accounting"), {"jwtKeyRef": {"key": "b"}}, "jwtKeyRef cannot"),
    "the key of a token": (slinky("Token"), {"jwtKeyRef": {"key": "b"}}, "jwtKeyRef cannot"),
    "whose REST API": (slinky("RestApi"), {"controllerRef": {"name": "b"}}, "controllerRef cannot"),
    "whose login nodes": (slinky("LoginSet"), {"controllerRef": {"name": "b"}}, "controllerRef cannot"),
    "whose workers": (slinky("NodeSet"), {"controllerRef": {"name": "b"}}, "controllerRef cannot"),
    "claims": (
        slinky("NodeSet", volumeClaimTemplates=[{"metadata": {"name": "a"}}]),
        {"volumeClaimTemplates": [{"metadata": {"name": "b"}}]},
        "volumeClaimTemplates cannot",
    ),
    "claims after the fact": (
        slinky("NodeSet"),
        {"volumeClaimTemplates": [{"metadata": {"name": "b"}}]},
        "volumeClaimTemplates cannot",
    ),
    "whether a password is guarded": (
        cluster(slurmNodes={"accounting": {"mariadbOperator": {"protectedSecret": True}}}),
        {"slurmNodes": {"accounting": {"mariadbOperator": {"protectedSecret": False}}}},
        "protectedSecret cannot",
    ),
}


@pytest.mark.parametrize(("manifest", "patch", "why"), FIXED.values(), ids=FIXED.keys())
async def test_what_is_fixed_stays(
    kube: Client, namespace: str, manifest: Manifest, patch: Manifest, why: str
) -> None:
    await create(kube, namespace, manifest)
    with pytest.raises(Invalid, match=why):
        await change(kube, namespace, manifest, {"spec": patch})


FREE = {
    "the same key under its new name": (
        slinky("Controller", jwtKeyRef=None, jwtHs256KeyRef=ref("a")),
        {"jwtKeyRef": ref("a"), "jwtHs256KeyRef": None},
    ),
    "a Controller for who had none": (slinky("NodeSet", controllerRef=None), {"controllerRef": {"name": "a"}}),
    "another key in the same Secret": (slinky("Controller"), {"slurmKeyRef": {"key": "slurm.jwks"}}),
    "other lines": (slinky("Controller"), {"extraConf": "ReturnToService=2"}),
    "more nodes": (slinky("NodeSet", volumeClaimTemplates=[{"metadata": {"name": "a"}}]), {"replicas": 5}),
}


@pytest.mark.parametrize(("manifest", "patch"), FREE.values(), ids=FREE.keys())
async def test_everything_else_may_change(
    kube: Client, namespace: str, manifest: Manifest, patch: Manifest
) -> None:
    await create(kube, namespace, manifest)
    await change(kube, namespace, manifest, {"spec": patch})


@pytest.mark.parametrize("manifest", CLUSTERS_OF_OTHERS.values(), ids=CLUSTERS_OF_OTHERS.keys())
async def test_manifests_of_other_operators_are_taken_whole(
    kube: Client, namespace: str, manifest: Manifest, control_plane: ControlPlaneBed
) -> None:
    made = await create(kube, namespace, manifest)  # with strict validation: no field is unknown
    assert {name for name, value in manifest["spec"].items() if value} <= set(made["spec"])
    kind = RAW[manifest["apiVersion"], manifest["kind"]]
    typed = next(it for it in KINDS if (it.api_version, it.name) == (kind.api_version, kind.name))
    await kube.get(typed, Key(namespace, manifest["metadata"]["name"]))
    assert manifest["metadata"]["name"] in control_plane.kubectl(
        "get", f"{kind.plural}.{kind.group}", "-n", namespace
    )


async def test_nulls_that_helm_applies_on_the_server_are_taken(kube: Client, namespace: str) -> None:
    """slurm-operator's chart writes empty lists of references so, and Helm 4 leaves merging to the server."""
    scripts = (f"{it}ScriptRefs" for it in ("prolog", "epilog", "prologSlurmctld", "epilogSlurmctld"))
    nulls = dict.fromkeys(("configFileRefs", *scripts))
    keys = {"slurmKeyRef": {"name": "k", "key": "slurm.key"}, "jwtKeyRef": {"name": "k", "key": "jwt.key"}}
    manifest = {"metadata": {"namespace": namespace, "name": "slurm"}, "spec": {**keys, **nulls}}
    made = await kube.apply(parts.CONTROLLERS, manifest, manager="helm")
    assert made == await kube.get(parts.CONTROLLERS, made.metadata.key)
    assert not made.spec.config_file_refs


async def test_kubectl_scales_and_lists_a_whole_cluster(
    kube: Client, namespace: str, control_plane: ControlPlaneBed
) -> None:
    await create(kube, namespace, slinky("Controller"))
    await create(kube, namespace, slinky("NodeSet", "compute"))
    control_plane.kubectl("scale", "--replicas=4", "nodeset", "compute", "-n", namespace)
    assert (await kube.get(parts.NODESETS, Key(namespace, "compute"))).spec.replicas == 4
    listed = control_plane.kubectl("get", "slurm", "-n", namespace)
    assert "controller.slinky.slurm.net/slurm" in listed
    assert "nodeset.slinky.slurm.net/compute" in listed
    status = {"desired": 4, "replicas": 4, "readyReplicas": 3, "slurmAllocated": 2}
    await kube.merge_patch(parts.NODESETS, Key(namespace, "compute"), {"status": status}, subresource="status")
    headings, row = control_plane.kubectl("get", "nodesets.slinky.slurm.net", "-n", namespace).splitlines()
    shown = dict(zip(headings.split(), row.split(), strict=True))
    assert list(shown) == ["NAME", "DESIRED", "REPLICAS", "UPDATED", "READY", "IDLE", "ALLOCATED", "DRAIN", "AGE"]
    assert (shown["DESIRED"], shown["READY"], shown["ALLOCATED"]) == ("4", "3", "2")


async def test_an_autoscaler_of_kubernetes_scales_a_nodeset(kube: Client, namespace: str) -> None:
    """Kubernetes' own controller does it: a minimum needs no metrics."""
    await create(kube, namespace, slinky("NodeSet", "compute"))
    target = {"apiVersion": parts.NODESETS.api_version, "kind": "NodeSet", "name": "compute"}
    spec = {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 5}
    await kube.create(AUTOSCALERS, {"metadata": {"name": "by-load", "namespace": namespace}, "spec": spec})
    await eventually_read(
        lambda: kube.get(parts.NODESETS, Key(namespace, "compute")), holds=lambda it: it.spec.replicas == 3
    )


async def test_a_sample_with_a_word_misspelt_is_refused_by_name(kube: Client, namespace: str) -> None:
    misspelt = written("slinky.slurm.net/v1beta1", "NodeSet", "workers", {"replica": 3})
    with pytest.raises(ApiError, match=r"unknown field.*spec\.replica"):
        await create(kube, namespace, misspelt)

"""What sconfigcontroller is allowed, and what follows from `sConfigController` of a SlurmCluster."""

from typing import Any

import msgspec

from isthmus.domain.operator.clusterparts import parts_of
from isthmus.domain.operator.clusterparts.cluster import Parts
from isthmus.domain.operator.manifests.common import Settings
from isthmus.model.base import Kind
from isthmus.model.objects import DEPLOYMENTS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from isthmus.model.slinky import CONTROLLERS
from isthmus.model.soperator import NodeSet, SlurmCluster

SETTINGS = Settings(isthmus_image="isthmus:1")


def parts(
    *nodesets: NodeSet,
    prefix: str = "",
    written: tuple[str, ...] = (),
    promised: tuple[str, ...] = (),
    **spec: Any,
) -> Parts:
    wish = {"populateJail": {}, **spec}
    cluster = msgspec.convert({"metadata": {"name": "demo", "namespace": "ns"}, "spec": wish}, SlurmCluster)
    return parts_of(cluster, nodesets, prefix=prefix, settings=SETTINGS, written=written, promised=promised)


def made(kind: Kind[Any], found: Parts) -> dict[str, Any]:
    (child,) = (it for it in found.children if it.kind is kind)
    return child.manifest


def pod(found: Parts) -> dict[str, Any]:
    spec: dict[str, Any] = made(DEPLOYMENTS, found)["spec"]["template"]["spec"]
    return spec


def test_it_may_read_configmaps_and_tell_how_jailedconfigs_are_and_nothing_else() -> None:
    rules = made(ROLES, parts())["rules"]
    allowed = {
        (group, resource, verb)
        for it in rules
        for group in it["apiGroups"]
        for resource in it["resources"]
        for verb in it["verbs"]
    }
    read = ("get", "list", "watch")
    assert allowed == {
        *(("", "configmaps", verb) for verb in read),
        *(("slurm.nebius.ai", "jailedconfigs", verb) for verb in read),
        ("slurm.nebius.ai", "jailedconfigs/status", "patch"),
    }
    (subject,) = made(ROLE_BINDINGS, parts())["subjects"]
    account = made(SERVICE_ACCOUNTS, parts())["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    assert pod(parts())["serviceAccountName"] == account["name"] == "sconfigcontroller"


def test_it_is_root_without_any_of_roots_powers() -> None:
    found = pod(parts())
    (container,) = found["containers"]
    assert found["securityContext"]["runAsUser"] == 0
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [it["mountPath"] for it in container["volumeMounts"]] == ["/mnt/jail"]
    assert container["image"] == "isthmus:1"


def test_it_begins_when_the_shared_root_is_filled() -> None:
    (first,) = pod(parts())["initContainers"]
    assert (first["name"], first["image"]) == ("init-dir", "isthmus:1")
    assert "until [ -e /mnt/jail/.isthmus/ready ]" in first["command"][-1]
    assert first["securityContext"] == pod(parts())["containers"][0]["securityContext"]


def test_names_begin_as_those_of_the_other_parts() -> None:
    assert made(DEPLOYMENTS, parts(prefix="demo-"))["metadata"]["name"] == "demo-sconfigcontroller"
    assert made(DEPLOYMENTS, parts())["metadata"]["labels"]["app.kubernetes.io/component"] == "sconfigcontroller"


def test_it_knows_what_nodes_hide_behind_something_of_their_own() -> None:
    mount = {"name": "data", "mountPath": "/data/", "volumeSourceName": "data"}
    of_set = {"name": "local", "mountPath": "/mnt/local", "volumeSource": {"emptyDir": {}}}
    nodeset = msgspec.convert(
        {
            "metadata": {"name": "gpu", "namespace": "ns"},
            "spec": {"slurmd": {"volumes": {"jailSubMounts": [of_set]}}},
        },
        NodeSet,
    )
    found = parts(
        nodeset,
        volumeSources=[{"name": "data", "emptyDir": {}}],
        slurmNodes={"login": {"volumes": {"jailSubMounts": [mount]}}},
    )
    (container,) = pod(found)["containers"]
    covered = [
        after for word, after in zip(container["args"], container["args"][1:], strict=False) if word == "--covered"
    ]
    assert {"/data", "/mnt/local", "/tmp", "/etc/hosts"} <= set(covered)  # noqa: S108 - a path in the shared root
    assert "/opt/slurm_scripts" not in covered


def test_wishes_for_it_count_or_are_named() -> None:
    found = parts(
        k8sNodeFilters=[{"name": "cpu", "nodeSelector": {"kind": "cpu"}}],
        sConfigController={
            "node": {"k8sNodeFilterName": "cpu", "priorityClass": "high", "size": 2},
            "container": {"image": "other:1", "resources": {"memory": "1Gi"}, "command": ["sh"]},
            "runAsUid": 1001,
            "runAsGid": 1001,
            "reconfigurePollInterval": "20s",
            "reconfigureWaitTimeout": "1m",
            "serviceAccountName": "theirs",
        },
    )
    (container,) = pod(found)["containers"]
    assert pod(found)["nodeSelector"] == {"kind": "cpu"}
    assert pod(found)["priorityClassName"] == "high"
    assert container["image"] == "other:1"
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert container["command"] == ["isthmus"]
    assert [it for it in found.ignored if it.startswith("sConfigController")] == [
        "sConfigController.container.command",
        "sConfigController.node.size (one is enough)",
        "sConfigController.reconfigurePollInterval",
        "sConfigController.runAsGid",
        "sConfigController.runAsUid",
        "sConfigController.serviceAccountName",
    ]


def test_slurm_runs_a_script_when_it_lies_on_the_shared_root_and_not_before() -> None:
    wish: dict[str, Any] = {
        "slurmConfig": {
            "prolog": "/opt/slurm_scripts/prolog.sh",
            "epilog": "/srv/epilog.sh",
            "taskProlog": "/srv/task_prolog.sh",
        },
        "slurmNodes": {"worker": {"size": 1}},
    }
    scripts = ("/opt/slurm_scripts/prolog.sh", "/srv/epilog.sh", "/srv/task_prolog.sh")

    def lines(found: Parts) -> str:
        text: str = made(CONTROLLERS, found)["spec"]["extraConf"]
        return text

    before, after = parts(**wish), parts(written=scripts, **wish)
    assert "prolog" not in lines(before).lower()
    told = "slurmConfig.prolog (/opt/slurm_scripts/prolog.sh is not on a volume of the workers, and jobs would fail"
    assert f"{told} without it: let a JailedConfig put it there)" in before.ignored
    assert "Prolog=/opt/slurm_scripts/prolog.sh" in lines(after)
    assert "TaskProlog=/srv/task_prolog.sh" in lines(after)
    # slurmd runs this one, and sees of the shared root only what is in /opt/slurm_scripts.
    assert "Epilog" not in lines(after)
    assert [it.partition(" ")[0] for it in after.ignored] == ["slurmConfig.epilog"]


def test_a_script_that_a_jailedconfig_brings_is_waited_for_without_an_alarm() -> None:
    script = "/opt/slurm_scripts/prolog.sh"
    wish: dict[str, Any] = {
        "slurmConfig": {"prolog": script, "epilog": "/srv/epilog.sh"},
        "slurmNodes": {"worker": {"size": 1}},
    }
    found = parts(promised=(script, "/srv/epilog.sh"), **wish)
    assert "prolog" not in made(CONTROLLERS, found)["spec"]["extraConf"].lower(), "jobs would fail without it"
    # slurmd never sees the other one, whoever writes it.
    assert [it.partition(" ")[0] for it in found.ignored] == ["slurmConfig.epilog"]


def test_there_is_none_without_a_shared_root_and_none_at_work_while_the_cluster_rests() -> None:
    found = parts(populateJail=None, sConfigController={"runAsUid": 1})
    assert not [it for it in found.children if it.kind in {DEPLOYMENTS, ROLES}]
    assert "sConfigController (there is no shared root without populateJail)" in found.ignored
    assert made(DEPLOYMENTS, parts(maintenance="downscale"))["spec"]["replicas"] == 0
    assert made(DEPLOYMENTS, parts())["spec"]["replicas"] == 1

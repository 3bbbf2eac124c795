"""The Job that fills a shared root."""

from typing import Any

import pytest

from isthmus import names
from isthmus.domain.operator.manifests import populate
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.manifests.populate import Action, Filling

CLAIM = {"persistentVolumeClaim": {"claimName": "jail"}}
BASELINE = {
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
}
"""What Kubernetes' own level "baseline" lets anybody add."""


def filling(**other: Any) -> Filling:
    given: dict[str, Any] = {
        "cluster": "demo",
        "namespace": "hpc",
        "prefix": "",
        "root": CLAIM,
        "image": "login:1",
    }
    return Filling(**(given | other))


def pod(of: Filling | None = None, action: Action = "populate") -> dict[str, Any]:
    made = populate.job(of or filling(), action, settings=Settings(isthmus_image="isthmus:1"))
    return dict(made["spec"]["template"]["spec"])


def test_the_image_sleeps_beside_the_command_that_copies_its_files() -> None:
    made = pod()
    (image,), (ours,) = made["initContainers"], made["containers"]
    assert made["shareProcessNamespace"] is True
    assert (image["image"], image["restartPolicy"]) == ("login:1", "Always")
    assert image["command"] == ["sh", "-c", "ln -sfn /proc/$$$$/root /run/isthmus/source && exec sleep infinity"]
    assert image["startupProbe"]["exec"] == {"command": ["test", "-L", "/run/isthmus/source"]}
    assert ours["image"] == "isthmus:1"
    assert [*ours["command"], *ours["args"]] == [
        "isthmus",
        "jail",
        "populate",
        "--source=/run/isthmus/source",
        "--root=/mnt/jail",
        "--image=login:1",
    ]
    volumes = {it["name"]: it for it in made["volumes"]}
    assert volumes["jail"] == {"name": "jail", **CLAIM}
    assert {it["mountPath"]: volumes[it["name"]] for it in ours["volumeMounts"]}["/mnt/jail"] == volumes["jail"]
    assert {it["mountPath"] for it in image["volumeMounts"]} == {"/run/isthmus"}


def test_it_may_what_copying_takes_and_no_more() -> None:
    made = pod()
    assert made["automountServiceAccountToken"] is False
    assert made["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*made["containers"], *made["initContainers"]):
        allowed = container["securityContext"]
        assert allowed["runAsUser"] == 0
        assert allowed["allowPrivilegeEscalation"] is False
        assert allowed["readOnlyRootFilesystem"] is True
        assert allowed["capabilities"]["drop"] == ["ALL"]
        assert set(allowed["capabilities"].get("add", ())) <= BASELINE
        assert "privileged" not in allowed
    assert "add" not in made["initContainers"][0]["securityContext"]["capabilities"]


def test_what_is_refused_is_not_tried_again_and_everything_else_is() -> None:
    spec = populate.job(filling(), "populate", settings=Settings())["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    refused, lost_node = spec["podFailurePolicy"]["rules"]
    assert refused["action"] == "FailJob"
    assert refused["onExitCodes"] == {"containerName": "populate", "operator": "In", "values": [3]}
    assert lost_node["action"] == "Ignore"
    assert spec["backoffLimit"] > 10
    assert "ttlSecondsAfterFinished" not in spec


def test_a_snapshot_takes_the_place_of_the_image() -> None:
    made = pod(filling(snapshot={"persistentVolumeClaim": {"claimName": "snapshot"}}, image="volume:snapshot"))
    assert "initContainers" not in made
    assert "shareProcessNamespace" not in made
    (ours,) = made["containers"]
    (source,) = (it for it in ours["volumeMounts"] if it["mountPath"] == "/run/isthmus/source")
    assert source["readOnly"] is True
    (volume,) = (it for it in made["volumes"] if it["name"] == source["name"])
    assert volume["persistentVolumeClaim"] == {"claimName": "snapshot"}


def test_a_plan_cannot_write() -> None:
    (ours,) = pod(action="plan")["containers"]
    assert all(it.get("readOnly") for it in ours["volumeMounts"])
    assert populate.job(filling(), "plan", settings=Settings())["spec"]["backoffLimit"] == 0


@pytest.mark.parametrize(
    "other",
    [
        {"image": "login:2"},
        {"pod": {"priorityClassName": "high"}},
        {"pull_policy": "Always"},
        {"root": {"nfs": {}}},
    ],
)
def test_a_job_that_was_made_from_something_else_is_known_by_its_hash(other: dict[str, Any]) -> None:
    def hash_of(of: Filling) -> str:
        made = populate.job(of, "populate", settings=Settings())
        return str(made["metadata"]["annotations"][names.JAIL_HASH_ANNOTATION])

    assert hash_of(filling()) == hash_of(filling())
    assert hash_of(filling(**other)) != hash_of(filling())


def test_no_pod_of_it_is_on_the_control_plane_unless_asked_for() -> None:
    assert "node-role.kubernetes.io/control-plane" in str(pod()["affinity"])
    asked = {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}
    assert "affinity" not in pod(filling(pod=asked))

"""The objects of a Controller, as far as somebody depends on how they look."""

import json
from typing import Any

import msgspec
import pytest

from isthmus import names
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import controller as manifests
from isthmus.domain.operator.manifests import controller_scripts, users
from isthmus.domain.operator.manifests.common import Settings
from isthmus.model.slinky import Controller

SETTINGS = Settings(cgroup="none")


def controller(annotations: dict[str, str] | None = None, **spec: Any) -> Controller:
    keys = {"slurmKeyRef": {"name": "k", "key": "slurm.key"}, "jwtKeyRef": {"name": "k", "key": "jwt.key"}}
    meta = {"name": "slurm", "namespace": "ns", "annotations": annotations or {}}
    return msgspec.convert({"metadata": meta, "spec": keys | spec}, Controller)


def pod(given: Controller) -> dict[str, Any]:
    made: dict[str, Any] = manifests.statefulset(given, SETTINGS)["spec"]["template"]["spec"]
    return made


def mounts(container: dict[str, Any]) -> dict[str, str]:
    return {it["mountPath"]: it["name"] for it in container["volumeMounts"]}


def test_the_pod_of_slurmctld() -> None:
    made = pod(controller())
    assert [it["name"] for it in made["initContainers"]] == ["reconfigure"]
    (slurmctld,) = made["containers"]
    assert slurmctld["command"][:2] == ["bash", "-c"]
    assert mounts(slurmctld) == {
        "/mnt/slurm": "slurm-config",
        "/etc/slurm": "slurm-etc",
        "/run/slurmctld": "run",
        "/var/spool/slurmctld": "statesave",
        "/var/lib/extrausers": users.VOLUME,
    }
    assert made["automountServiceAccountToken"] is False
    assert made["dnsConfig"]["searches"] == [
        "slurm-workers-slurm.ns.svc.cluster.local",
        "slurm-controller-internal.ns.svc.cluster.local",
    ]


def test_standbys_have_names_that_stay_while_their_pods_are_away() -> None:
    pair = controller(ha={"enabled": True}, persistence={"existingClaim": "s"})
    _, _, *each = manifests.services(pair)
    assert [it["metadata"]["name"] for it in each] == ["slurm-controller-0", "slurm-controller-1"]
    for service in each:
        assert "clusterIP" not in service["spec"]  # one that is headless has no name without a pod
        assert service["spec"]["publishNotReadyAddresses"] is True
        selected = service["spec"]["selector"]
        assert selected["statefulset.kubernetes.io/pod-name"] == service["metadata"]["name"]
    assert partnames.controller_hosts(pair) == ("slurm-controller-0.ns.svc", "slurm-controller-1.ns.svc")


def test_a_slurmctld_that_is_away_refuses_by_a_closed_port_of_another() -> None:
    pair = controller(ha={"enabled": True}, persistence={"existingClaim": "s"})
    there = {"slurm-controller-0": "10.0.0.5", "slurm-controller-1": "fd00::6"}
    first, second = manifests.refusing(pair, there)
    assert first["metadata"]["labels"]["kubernetes.io/service-name"] == "slurm-controller-0"
    assert (first["addressType"], second["addressType"]) == ("IPv6", "IPv4")
    (endpoint,) = first["endpoints"]
    assert endpoint["addresses"] == ["fd00::6"]
    # Only where the Service has no endpoint that is ready.
    assert endpoint["conditions"] == {"ready": False, "serving": True, "terminating": True}
    (port,) = first["ports"]
    assert port["name"] == "slurmctld"
    assert port["port"] != partnames.SLURMCTLD_PORT
    assert [it["metadata"]["name"] for it in manifests.refusing(pair, {"slurm-controller-1": "10.0.0.6"})] == [
        "slurm-controller-0-away"
    ]
    assert not manifests.refusing(controller(), {"slurm-controller-0": "10.0.0.5"})


def test_services_have_a_slurmctld_whatever_the_operator_does() -> None:
    """W2: no label that only a running operator writes decides whether slurmctld is found."""
    internal, any_of_them = manifests.services(controller(service={"port": 7000, "spec": {"type": "NodePort"}}))
    for service in (internal, any_of_them):
        assert set(service["spec"]["selector"]) == {names.NAME_LABEL, names.INSTANCE_LABEL}
        assert service["spec"]["publishNotReadyAddresses"] is True
    assert internal["spec"]["clusterIP"] == "None"
    assert any_of_them["spec"]["ports"][0] | {"protocol": "TCP"} == {
        "name": "slurmctld",
        "port": 7000,
        "targetPort": 6817,
        "protocol": "TCP",
    }


def test_nothing_that_can_change_while_slurmctld_runs_is_in_its_template() -> None:
    """W41: files, keys, NodeSets and accounting come by the mounted volume."""
    quiet = manifests.statefulset(controller(), SETTINGS)
    other = manifests.statefulset(
        controller(extraConf="KillWait=3", accountingRef={"name": "a"}, users=[{"name": "eve", "uid": 2000}]),
        SETTINGS,
    )
    assert quiet == other


def test_no_text_of_the_user_is_part_of_a_script() -> None:
    hostile = '"; touch /tmp/owned; "'
    made = manifests.statefulset(
        controller(extraConf=hostile, slurmctld={"args": [hostile], "env": [{"name": "X", "value": hostile}]}),
        SETTINGS,
    )
    (slurmctld,) = made["spec"]["template"]["spec"]["containers"]
    assert slurmctld["command"] == ["bash", "-c", controller_scripts.START, controller_scripts.SUPERVISE]
    assert slurmctld["args"] == [hostile]


def test_a_claim_is_made_named_or_left_out() -> None:
    made = manifests.statefulset(controller(), SETTINGS)["spec"]["volumeClaimTemplates"][0]
    assert made["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    wish = {"storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}
    made = manifests.statefulset(controller(persistence=wish), SETTINGS)["spec"]["volumeClaimTemplates"][0]
    assert made["spec"]["storageClassName"] == "fast"
    for persistence, volume in (
        ({"existingClaim": "mine"}, {"persistentVolumeClaim": {"claimName": "mine"}}),
        ({"enabled": False}, {"emptyDir": {}}),
    ):
        given = manifests.statefulset(controller(persistence=persistence), SETTINGS)
        assert "volumeClaimTemplates" not in given["spec"]
        assert {"name": "statesave", **volume} in given["spec"]["template"]["spec"]["volumes"]


def test_standbys_run_on_other_nodes_whatever_else_the_user_asks_for() -> None:
    """W23: an anti-affinity of the user must not take ours away."""
    theirs = {"topologyKey": "zone", "labelSelector": {}}
    wish = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [theirs]}}}
    pair = controller(ha={"enabled": True}, persistence={"existingClaim": "s"}, template={"spec": wish})
    assert manifests.statefulset(pair, SETTINGS)["spec"]["replicas"] == 2
    terms = pod(pair)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [it["topologyKey"] for it in terms] == ["zone", "kubernetes.io/hostname"]


def test_munge_runs_beside_slurmctld_where_it_is_asked_for() -> None:
    made = pod(controller(authType="munge"))
    assert [it["name"] for it in made["initContainers"]] == ["munge", "reconfigure"]
    assert mounts(made["containers"][0])["/run/munge"] == "munge-socket"
    secret = made["volumes"][0]["projected"]["sources"][1]["secret"]
    assert "slurm.jwks" not in {it["key"] for it in secret["items"]}


def test_zero_values_of_the_user_count() -> None:
    """W26: false and 0 are wishes, too."""
    wish = {"securityContext": {"runAsUser": 0, "allowPrivilegeEscalation": False}}
    made = pod(controller(slurmctld=wish, template={"spec": {"terminationGracePeriodSeconds": 0}}))
    assert made["containers"][0]["securityContext"]["runAsUser"] == 0
    assert made["terminationGracePeriodSeconds"] == 0


def test_a_probe_by_http_becomes_one_that_every_version_of_slurm_answers() -> None:
    """As Soperator's chart has it. Slurm 24.11 serves no HTTP, and would be killed by it."""
    livez = {"failureThreshold": 5, "httpGet": {"path": "/livez", "port": 6817}}
    other = {"httpGet": {"path": "/ready", "port": 8080}}
    probed = {"livenessProbe": livez, "readinessProbe": other}
    for given in (
        controller(slurmctld=probed),
        controller(template={"spec": {"containers": [{"name": "slurmctld", **probed}]}}),
    ):
        slurmctld = pod(given)["containers"][0]
        assert slurmctld["livenessProbe"]["tcpSocket"] == {"port": 6817}
        assert slurmctld["livenessProbe"]["failureThreshold"] == 5
        assert "httpGet" not in slurmctld["livenessProbe"]
        assert slurmctld["readinessProbe"]["httpGet"] == other["httpGet"], "somebody else's port is left alone"


@pytest.mark.parametrize("asks", [False, True])
def test_it_stays_off_the_control_plane_unless_it_asks_for_it(asks: bool) -> None:  # noqa: FBT001 - a parameter
    wish = {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}
    made = pod(controller(template={"spec": wish} if asks else {}))
    assert ("DoesNotExist" in json.dumps(made.get("affinity", {}))) is not asks


def test_keys_are_in_the_secret_and_marked_with_a_revision() -> None:
    made = manifests.auth(controller(), {"jwt.key": b"\x00\x01"}, revision="r", changed_at="t")
    assert made["data"] == {"jwt.key": "AAE=", "revision.keys": "cgo="}
    assert made["metadata"]["annotations"] == {
        names.CONFIG_HASH_ANNOTATION: "r",
        names.CHANGED_AT_ANNOTATION: "t",
    }


def test_a_stand_in_is_where_slurmctld_may_be_and_costs_next_to_nothing() -> None:
    wish = {"spec": {"nodeSelector": {"disk": "ssd"}, "hostNetwork": True}}
    given = controller({names.WORKLOAD_NAME_ANNOTATION: "controller"}, template=wish)
    made = manifests.placeholder(given, SETTINGS)
    assert made["metadata"]["name"] == "controller-placeholder"
    spec = made["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert "hostNetwork" not in spec
    names_ = [it["name"] for it in (*spec["initContainers"], *spec["containers"])]
    assert names_ == ["munge", "slurmctld"]
    # Who wonders about it finds out by kubectl describe.
    told = made["spec"]["template"]["metadata"]["annotations"]["kubernetes.io/description"]
    assert "Keeps the image of slurmctld on this node" in told
    assert names.PLACEHOLDER_ANNOTATION in told
    # No Service of slurmctld must find it.
    assert made["spec"]["template"]["metadata"]["labels"][names.NAME_LABEL] != "slurmctld"


def test_weakness_w41_slurmctld_is_made_anew_for_wishes_alone() -> None:
    asked = manifests.inputs(controller(), SETTINGS)
    assert (
        manifests.inputs(controller(extraConf="MaxJobCount=9", users=[{"name": "a", "uid": 1000}]), SETTINGS)
        == asked
    )
    assert manifests.inputs(controller(slurmctld={"image": "other"}), SETTINGS) != asked
    assert manifests.inputs(controller(authType="munge"), SETTINGS) != asked

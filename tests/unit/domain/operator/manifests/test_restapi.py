from typing import Any

from isthmus import names
from isthmus.domain.operator.manifests import restapi
from isthmus.domain.operator.manifests.common import Settings
from isthmus.model.slinky import Controller, RestApi
from tests.unit.domain.operator.manifests.objects import controller, part

FILES = {"slurm.conf": "ClusterName=x\nSlurmctldHost=a\n", "cgroup.conf": "CgroupPlugin=disabled\n"}


def api(**spec: Any) -> RestApi:
    return part(RestApi, "slurm", **spec)


def template(of: RestApi | None = None, by: Controller | None = None) -> dict[str, Any]:
    made = restapi.deployment(of or api(), by or controller(), settings=Settings(), files=FILES)
    return dict(made["spec"]["template"])


def test_slurmrestd_runs_as_nobody_it_would_refuse_and_holds_no_key() -> None:
    pod = template()["spec"]
    assert pod["securityContext"]["runAsUser"] not in {0, 64030, 65534}
    (container, _) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [it.get("secret") for it in pod["volumes"]] == [None]
    assert container["command"] == ["slurmrestd"]


def test_it_serves_accounts_only_where_there_are_some() -> None:
    (without, _) = template()["spec"]["containers"]
    assert without["args"] == ["-a", "rest_auth/jwt", "-s", "openapi/slurmctld", "0.0.0.0:6820"]
    (with_accounts, _) = template(by=controller(accountingRef={"name": "slurm"}))["spec"]["containers"]
    assert with_accounts["args"] == ["-a", "rest_auth/jwt", "0.0.0.0:6820"]


def test_the_users_arguments_go_behind_ours() -> None:
    (container, _) = template(api(slurmrestd={"args": ["-vv"], "image": "mine"}))["spec"]["containers"]
    assert (container["args"][-1], container["image"]) == ("-vv", "mine")


def test_w12_it_is_made_anew_for_what_it_reads_and_not_for_nodes() -> None:
    first = restapi.config_hash(FILES)
    nodes = "NodeName=n1 CPUs=2\nNodeSet=a Feature=a\nPartitionName=p Nodes=a\n# a note\n"
    assert restapi.config_hash({**FILES, "slurm.conf": FILES["slurm.conf"] + nodes}) == first
    assert restapi.config_hash({**FILES, "slurm.conf": "ClusterName=x\nSlurmctldHost=b\n"}) != first
    assert template()["metadata"]["annotations"][names.SLURM_CONFIG_HASH_ANNOTATION] == first


def test_one_that_does_not_end_is_not_waited_for() -> None:
    spec = template()["spec"]
    waits = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert waits.startswith("sleep 3;")
    assert 3 < spec["terminationGracePeriodSeconds"] < 10
    longer = template(api(template={"spec": {"terminationGracePeriodSeconds": 60}}))["spec"]
    assert longer["terminationGracePeriodSeconds"] == 60


def test_w11_the_port_is_the_services_own() -> None:
    (port,) = restapi.service(api(service={"port": 8080, "nodePort": 30080}), "slurm")["spec"]["ports"]
    assert port == {
        "name": "slurmrestd",
        "port": 8080,
        "targetPort": 6820,
        "protocol": "TCP",
        "nodePort": 30080,
    }


def test_the_completer_has_no_rights_and_slurmrestds_image() -> None:
    (_, completer) = template(api(slurmrestd={"image": "mine", "args": ["-vv"]}))["spec"]["containers"]
    assert completer["image"] == "mine"
    assert "args" not in completer
    assert completer["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["mountPath"] for mount in completer["volumeMounts"]] == ["/etc/slurm"]


def test_the_completer_is_not_seen_where_slurmrestd_is_seen_from_outside() -> None:
    outside = api(service={"port": 80, "spec": {"type": "LoadBalancer"}})
    assert restapi.service(outside, "slurm")["spec"]["type"] == "LoadBalancer"
    inside = restapi.completer_service(outside, "slurm")
    assert inside["metadata"]["name"] == "slurm-completer"
    assert "type" not in inside["spec"]
    assert [port["port"] for port in inside["spec"]["ports"]] == [6821]


def test_there_is_no_gap_when_it_is_replaced() -> None:
    made = restapi.deployment(api(), controller(), settings=Settings(), files=FILES)
    assert made["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}

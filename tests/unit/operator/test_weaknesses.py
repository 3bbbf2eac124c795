"""What users of other operators run into, where no other test shows that ours do not: docs/weaknesses.md has all.

The numbers are those of that page: `w14` is of slurm-operator, `s14` of soperator.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from isthmus.domain.languages import slurmconf
from isthmus.domain.operator import validation
from isthmus.domain.operator.clusterparts import parts_of
from isthmus.domain.operator.manifests import accounting, controller, database, login, restapi, worker
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.domain.operator.nodeset.departures import Departures, departures
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.domain.operator.nodeset.marks import revisions
from isthmus.domain.operator.nodeset.rollout import to_update
from isthmus.domain.operator.slurmfiles import Inputs, Workers, slurm_conf
from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Condition, Key, ObjectMeta
from isthmus.model.slinky import NODESETS, Accounting, Controller, LoginSet, RestApi, Token, TokenStatus
from isthmus.model.soperator import SLURM_CLUSTERS, SlurmCluster
from isthmus.model.soperator import NodeSet as NebiusNodeSet
from isthmus.operator.accountings import AccountingSync
from isthmus.operator.applier import Applier
from isthmus.operator.metrics import ClusterMetrics
from isthmus.operator.statuswriter import Reporter
from isthmus.operator.world import World
from isthmus.processes import operator
from isthmus.runtime.metrics import Metrics
from tests.unit.domain.operator.nodeset.views import OLD, kube_node, nodeset, pod, view

SETTINGS = Settings(slurm_image="here/slurm:1", login_image="here/login:1", mariadb_image="here/mariadb:1")
META = {"name": "slurm", "namespace": "slurm", "uid": "c"}
KEYS = {"slurmKeyRef": {"name": "k", "key": "slurm.key"}, "jwtKeyRef": {"name": "k", "key": "jwt.key"}}
OURS = {"controllerRef": {"name": "slurm"}}
SLURM = msgspec.convert({"metadata": META, "spec": KEYS}, Controller)


def made(type_: type[Any], **spec: Any) -> Any:
    return msgspec.convert({"metadata": META, "spec": spec}, type_)


def slurmdbd(**spec: Any) -> Manifest:
    given = made(Accounting, **KEYS, **spec)
    return accounting.statefulset(given, settings=SETTINGS, files={"slurmdbd.conf": b""}, hash_="h")


def pods(settings: Settings = SETTINGS) -> dict[str, Manifest]:
    """Make a pod of each kind for specifications that say nothing."""
    workers = nodeset(1)
    files = {"slurm.conf": "ClusterName=slurm\n"}
    owners = {
        "slurmctld": controller.statefulset(SLURM, settings),
        "login": login.statefulset(made(LoginSet, **OURS), SLURM, settings=settings),
        "slurmrestd": restapi.deployment(made(RestApi, **OURS), SLURM, settings=settings, files=files),
        "slurmdbd": slurmdbd(),
        "mariadb": database.statefulset(made(Accounting, **KEYS), settings=settings, password_version="1"),
    }
    found = {name: it["spec"]["template"]["spec"] for name, it in owners.items()}
    found["slurmd"] = worker.template(workers, SLURM, settings=settings).fill(numbered(workers, 0))["spec"]
    return found


def containers(of: Manifest) -> Iterator[Manifest]:
    yield from of["containers"]
    yield from of.get("initContainers", ())


def cluster(**spec: Any) -> SlurmCluster:
    return msgspec.convert({"metadata": {"name": "demo", "namespace": "hpc"}, "spec": spec}, SlurmCluster)


# slurm-operator


def test_weakness_w09_who_goes_back_to_a_specification_goes_back_to_its_pods() -> None:
    """Nothing is kept of older specifications, so nothing of it can leak or be taken for another one."""
    before, after = nodeset(2, extraConf="Weight=1"), nodeset(2, extraConf="Weight=2")
    first, second = (worker.template(it, SLURM, settings=SETTINGS).revision for it in (before, after))
    assert first != second
    old_pods = [pod(ordinal, hash_=first) for ordinal in range(2)]
    there: dict[str, Any] = {"of": after}
    updating = msgspec.structs.replace(view(*old_pods, **there), hash=second)
    assert to_update(updating)
    back = msgspec.structs.replace(updating, nodeset=before, hash=first)
    assert to_update(back) == ()


def test_weakness_w14_a_pod_on_another_node_changes_nothing_in_slurm() -> None:
    """Neither is a node made idle that somebody has set down, nor are its comments used for anything."""
    down = ("DOWN",)
    here = view(pod(0, *down, reason="broken fan", since=600, kube=kube_node("k1")), pod(1, kube=kube_node("k2")))
    there = view(pod(0, *down, reason="broken fan", since=600, kube=kube_node("k3")), pod(1, kube=kube_node("k1")))
    for found in (here, there):
        assert departures(found) == Departures()
        assert revisions(found) == ()


def test_weakness_w13_there_is_room_in_slurm_for_more_nodes_than_there_are() -> None:
    """slurmctld takes no node beyond MaxNodeCount, and reads it only when it starts."""
    for replicas in (1, 3000, 5000):
        workers = Workers.of(nodeset(replicas, registration="Static"))
        text = slurm_conf(Inputs(controller=SLURM, settings=SETTINGS, workers=(workers,)))
        most = slurmconf.parse(text, name="slurm.conf").get("MaxNodeCount")
        assert most is not None
        assert int(most) >= max(2 * replicas, 4096)


def test_weakness_w20_an_accounting_is_woken_by_the_controllers_that_name_it() -> None:
    kube = Client(Config(server="http://127.0.0.1:1", credentials=Fixed()))
    world = World(kube, SETTINGS)
    recorder = Recorder(kube, controller="test", instance="here")
    sync = AccountingSync(
        world, applier=Applier(kube), reporter=Reporter(kube), recorder=recorder, metrics=Metrics()
    )
    world.controllers.put(made(Controller, **KEYS, accountingRef={"name": "books"}))
    assert sync.controller.queue.take() == Key("slurm", "books")
    assert sync.controller.queue.take() is None  # and there is no Accounting with the name of the Controller


def test_weakness_w20_marks_of_the_template_reach_pods_of_slurmdbd() -> None:
    marks = {"labels": {"team": "hpc"}, "annotations": {"scrape": "yes"}}
    found = slurmdbd(template={"metadata": marks})["spec"]["template"]["metadata"]
    assert found["labels"]["team"] == "hpc"
    assert found["annotations"]["scrape"] == "yes"
    assert "team" not in slurmdbd()["spec"]["template"]["metadata"]["labels"]


def test_weakness_w30_sshd_on_workers_is_there_for_who_asks_for_it() -> None:
    found = worker.template(nodeset(1, ssh={"enabled": True}), SLURM, settings=SETTINGS).spec
    (container,) = found["containers"]
    assert {"name": "ssh", "containerPort": 22, "protocol": "TCP"} in container["ports"]
    plain = worker.template(nodeset(1), SLURM, settings=SETTINGS).spec["containers"][0]
    assert container["readinessProbe"] == plain["readinessProbe"]


def test_weakness_w38_every_image_is_one_that_was_chosen() -> None:
    """None is fetched from elsewhere, and none by a tag under which there is another one tomorrow."""
    chosen = {SETTINGS.slurm_image, SETTINGS.login_image, SETTINGS.mariadb_image}
    for name, found in pods().items():
        assert {it["image"] for it in containers(found)} <= chosen, name
    plain = Settings()
    assert not [it for it in (plain.slurm_image, plain.login_image, plain.mariadb_image) if ":" not in it]
    assert not [it for it in (plain.slurm_image, plain.login_image, plain.mariadb_image) if it.endswith(":latest")]


def test_weakness_w39_prometheus_is_told_of_nodes_slurm_tokens_and_readiness() -> None:
    world = World(Client(Config(server="http://127.0.0.1:1", credentials=Fixed())), SETTINGS)
    registry = CollectorRegistry()
    registry.register(ClusterMetrics([world]))
    ready = (Condition(type="Ready", status="True"),)
    workers = nodeset(5)
    counts = msgspec.structs.replace(workers.status, desired=5, slurm_drain=2, updated_replicas=3, conditions=ready)
    world.nodesets.put(msgspec.structs.replace(workers, status=counts))
    world.controllers.put(SLURM)
    ends = TokenStatus(expires_at=datetime.fromtimestamp(2_000_000_000, UTC))
    token = made(Token, username="slurm", jwtKeyRef=KEYS["jwtKeyRef"])
    world.tokens.put(msgspec.structs.replace(token, metadata=ObjectMeta(name="t", namespace="slurm"), status=ends))

    of_set = {"namespace": "slurm", "nodeset": "worker"}
    for state, count in (("desired", 5), ("draining", 2), ("updated", 3), ("down", 0)):
        assert registry.get_sample_value("isthmus_operator_nodes", {**of_set, "state": state}) == count
    of_slurm = {"namespace": "slurm", "controller": "slurm"}
    assert registry.get_sample_value("isthmus_operator_slurm_in_touch", of_slurm) == 0
    of_token = {"namespace": "slurm", "token": "t"}
    expiry = "isthmus_operator_token_expiry_timestamp_seconds"
    assert registry.get_sample_value(expiry, of_token) == 2_000_000_000
    for kind, name, held in (("NodeSet", "worker", 1), ("Controller", "slurm", 0)):
        of_kind = {"kind": kind, "namespace": "slurm", "name": name}
        assert registry.get_sample_value("isthmus_operator_ready", of_kind) == held


# soperator


def test_weakness_s14_a_node_that_slurm_does_not_know_stops_no_update() -> None:
    lost = pod(0, known=False, ready=False, hash_=OLD)
    others = [pod(ordinal, hash_=OLD) for ordinal in range(1, 4)]
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    assert set(to_update(view(lost, *others, of=nodeset(4, updateStrategy=rolling)))) == {"worker-0", "worker-3"}


@pytest.mark.parametrize("name", ["login", "slurmdbd", "mariadb", "slurmrestd"])
def test_weakness_s28_the_daemon_itself_gets_the_signal_to_end(name: str) -> None:
    """It takes the place of the script that starts it.

    That of slurmctld has flows of its own; that of slurmd passes signals on, which is tried with its manifests. So
    does that of sackd, which would not heed TERM as the first process of its container; that is tried end to end.
    """
    for container in containers(pods()[name]):
        command = container["command"]
        if command[0] == "bash":
            script = command[2].replace("\\\n", "").strip()
            last = script.splitlines()[-1]
            if container["name"] == "sackd":
                assert last == 'wait "$sackd"'
                assert re.search(r"""^trap '.*kill "\$sackd".*' TERM$""", script, re.MULTILINE)
            else:
                assert last.startswith("exec "), container["name"]
        else:
            assert command == [name]


def test_weakness_s32_no_pod_but_that_of_slurmd_has_privileges() -> None:
    for name, found in pods().items():
        privileged = [it["name"] for it in containers(found) if it.get("securityContext", {}).get("privileged")]
        assert privileged == (["slurmd"] if name == "slurmd" else []), name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(found), name
        assert not [it["name"] for it in found["volumes"] if "hostPath" in it], name


def test_weakness_s39_the_domain_of_the_kubernetes_cluster_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("nameserver 198.18.0.10\nsearch isthmus.svc.example.org svc.example.org example.org\n")
    monkeypatch.setattr(operator, "_RESOLVER", resolver)
    domain = operator.domain_here()
    assert domain == "example.org"
    for name in ("slurmd", "slurmctld", "login", "slurmrestd"):
        searches = pods(Settings(domain=domain))[name]["dnsConfig"]["searches"]
        assert searches
        assert all(it.endswith(".slurm.svc.example.org") for it in searches), name


@pytest.mark.parametrize("type_", ["ClusterIP", "NodePort", "LoadBalancer"])
def test_weakness_s40_people_come_in_by_any_kind_of_service(type_: str) -> None:
    given = cluster(slurmNodes={"login": {"sshdServiceType": type_}})
    assert not validation.check(SLURM_CLUSTERS, given).problems
    parts = parts_of(given, prefix="", settings=SETTINGS)
    (found,) = (it.manifest for it in parts.children if it.kind.name == "LoginSet")
    _, outer = login.services(msgspec.convert(found, LoginSet), "demo")
    assert outer["spec"]["type"] == type_
    assert "nodePort" not in outer["spec"]["ports"][0]  # Kubernetes chooses one


def test_weakness_s45_workers_push_nobody_aside_unless_somebody_says_so() -> None:
    for name, found in pods().items():
        assert "priorityClassName" not in found, name
    gpu: dict[str, Any] = {"metadata": {"name": "gpu", "namespace": "hpc"}, "spec": {"clusterName": "demo"}}
    sets = [msgspec.convert(gpu, NebiusNodeSet)]
    quiet = parts_of(cluster(slurmNodes={"worker": {"size": 2}}), sets, prefix="", settings=SETTINGS)
    assert "priorityClassName" not in msgspec.json.encode([it.manifest for it in quiet.children]).decode()
    loud = parts_of(cluster(slurmNodes={"worker": {"priorityClass": "high"}}), prefix="", settings=SETTINGS)
    (workers,) = (it.manifest for it in loud.children if it.kind is NODESETS)
    assert workers["spec"]["template"]["spec"]["priorityClassName"] == "high"

"""What Prometheus is told of clusters, from caches that a test fills."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from isthmus import names
from isthmus.domain.operator.manifests.common import Settings
from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.model.jailedconfig import JailedConfig, JailedConfigStatus
from isthmus.model.meta import Condition, ObjectMeta
from isthmus.model.nodeconfigurator import NodeConfigurator, NodeConfiguratorStatus
from isthmus.model.objects import ConfigMap
from isthmus.model.slinky import Controller, ControllerStatus, NodeSetStatus, Token, TokenStatus
from isthmus.model.soperator import NodeSet as NebiusNodeSet
from isthmus.model.soperator import NodeSetSpec as NebiusNodeSetSpec
from isthmus.model.soperator import NodeSetStatus as NebiusNodeSetStatus
from isthmus.operator.metrics import ClusterMetrics
from isthmus.operator.world import World
from tests.unit.domain.operator.nodeset.views import nodeset

KEYS = {"slurmKeyRef": {"name": "k", "key": "slurm.key"}, "jwtKeyRef": {"name": "k", "key": "jwt.key"}}


class Bed:
    """A world with nobody behind it."""

    def __init__(self) -> None:
        settings = Settings(slurm_image="here/slurm:1", login_image="here/login:1", mariadb_image="here/mariadb:1")
        self.world = World(Client(Config(server="http://127.0.0.1:1", credentials=Fixed())), settings)
        self.registry = CollectorRegistry()
        self.registry.register(ClusterMetrics([self.world]))

    def value(self, metric: str, /, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"isthmus_operator_{metric}", {"namespace": "slurm", **labels})

    def put_controller(self, status: ControllerStatus, **spec: Any) -> None:
        meta = {"name": "slurm", "namespace": "slurm", "uid": "c"}
        made = msgspec.convert({"metadata": meta, "spec": {**KEYS, **spec}}, Controller)
        self.world.controllers.put(msgspec.structs.replace(made, status=status))


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_a_rollout_shows_how_many_pods_are_updated_and_how_many_are_not(bed: Bed) -> None:
    bed.world.nodesets.put(
        msgspec.structs.replace(nodeset(5), status=NodeSetStatus(replicas=5, updated_replicas=2))
    )
    assert bed.value("rollout_pods", nodeset="worker", state="updated") == 2
    assert bed.value("rollout_pods", nodeset="worker", state="outdated") == 3


def test_the_slurmctld_in_charge_is_1_and_a_standby_0(bed: Bed) -> None:
    two = {"ha": {"enabled": True, "backups": 1}}
    bed.put_controller(ControllerStatus(), **two)
    assert bed.value("active_controller", controller="slurm", pod="slurm-controller-0") is None
    for active in (0, 1):
        bed.put_controller(ControllerStatus(active=f"slurm-controller-{active}"), **two)
        found = [bed.value("active_controller", controller="slurm", pod=f"slurm-controller-{it}") for it in (0, 1)]
        assert found == [float(it == active) for it in (0, 1)]


def test_a_configuration_tells_since_when_it_is_and_whether_it_is_applied(bed: Bed) -> None:
    bed.put_controller(ControllerStatus())
    assert bed.value("config_applied", controller="slurm") == 0
    assert bed.value("config_changed_timestamp_seconds", controller="slurm") is None
    bed.put_controller(ControllerStatus(conditions=(Condition(type="ConfigApplied", status="True"),)))
    for written in ("2033-05-18T03:33:20+00:00", "yesterday"):
        changed = {names.CHANGED_AT_ANNOTATION: written}
        bed.world.configmaps.put(ConfigMap(ObjectMeta(name="slurm-config", namespace="slurm", annotations=changed)))
        moment = bed.value("config_changed_timestamp_seconds", controller="slurm")
        assert moment == (2_000_000_000 if written != "yesterday" else None)
    assert bed.value("config_applied", controller="slurm") == 1


def test_a_token_tells_when_it_was_issued(bed: Bed) -> None:
    assert bed.value("token_issued_timestamp_seconds", token="t") is None
    spec = {"username": "slurm", "jwtKeyRef": KEYS["jwtKeyRef"]}
    token = msgspec.convert({"metadata": {"name": "t", "namespace": "slurm"}, "spec": spec}, Token)
    issued = TokenStatus(issued_at=datetime.fromtimestamp(1_900_000_000, UTC))
    bed.world.tokens.put(msgspec.structs.replace(token, status=issued))
    assert bed.value("token_issued_timestamp_seconds", token="t") == 1_900_000_000
    assert bed.value("token_expiry_timestamp_seconds", token="t") is None


def test_what_needs_attention_is_degraded(bed: Bed) -> None:
    for status in ("True", "False"):
        held = (Condition(type="Degraded", status=status),)
        bed.world.nodesets.put(msgspec.structs.replace(nodeset(1), status=NodeSetStatus(conditions=held)))
        assert bed.value("degraded", kind="NodeSet", name="worker") == float(status == "True")


def test_kinds_of_soperator_are_told_apart_from_those_of_slinky_and_none_is_forgotten(bed: Bed) -> None:
    """A NodeSet of Soperator becomes one of slinky's under the same name."""
    meta = ObjectMeta(name="worker", namespace="slurm")
    for status in ("True", "False"):
        held = (Condition(type="Degraded", status=status), Condition(type="Ready", status="True"))
        bed.world.nodesets.put(nodeset(1))
        told = NebiusNodeSetStatus(conditions=held)
        bed.world.nebius_nodesets.put(NebiusNodeSet(metadata=meta, spec=NebiusNodeSetSpec(), status=told))
        machines = NodeConfigurator(metadata=meta, status=NodeConfiguratorStatus(conditions=held))
        bed.world.node_configurators.put(machines)
        assert bed.value("degraded", kind="NodeSet", name="worker") == 0
        for kind in ("NodeSet.slurm.nebius.ai", "NodeConfigurator"):
            assert bed.value("degraded", kind=kind, name="worker") == float(status == "True")
            assert bed.value("ready", kind=kind, name="worker") == 1


@pytest.mark.parametrize(
    ("written", "completed", "found"),
    [
        (("True", "Success"), ("True", "Success"), (1.0, 0.0)),
        (("False", "Init"), ("False", "Init"), (0.0, 0.0)),
        (("False", "NotFound"), ("False", "NotFound"), (0.0, 1.0)),
        (("True", "Success"), ("False", "Refused"), (0.0, 1.0)),
    ],
)
def test_a_jailedconfig_needs_attention_when_its_files_do_not_arrive(
    bed: Bed, written: tuple[Any, str], completed: tuple[Any, str], found: tuple[float, float]
) -> None:
    spec = {"configMap": {"name": "motd"}, "items": [{"key": "x", "path": "/etc/motd"}]}
    config = msgspec.convert({"metadata": {"name": "motd", "namespace": "slurm"}, "spec": spec}, JailedConfig)
    told = {"FilesWritten": written, "UpdateActionsCompleted": completed}
    held = tuple(Condition(type=type_, status=status, reason=why) for type_, (status, why) in told.items())
    bed.world.jailed_configs.put(msgspec.structs.replace(config, status=JailedConfigStatus(conditions=held)))
    assert tuple(bed.value(it, kind="JailedConfig", name="motd") for it in ("ready", "degraded")) == found

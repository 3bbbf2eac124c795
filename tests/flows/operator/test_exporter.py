"""The exporter of a SlurmCluster, and monitors for Prometheus, on a real API server with their real kinds."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import jwt
import pytest
import yaml

from isthmus.domain.operator.manifests import exporter
from isthmus.kube import crd
from isthmus.kube.client import Client, path
from isthmus.kube.crd import DEFINITIONS
from isthmus.kube.errors import NotFound
from isthmus.model.base import Kind
from isthmus.model.meta import Key, condition
from isthmus.model.objects import (
    DEPLOYMENTS,
    POD_MONITORS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICE_MONITORS,
    SERVICES,
)
from isthmus.model.slinky import TOKENS
from isthmus.model.soperator import SLURM_CLUSTERS
from tests.bed import monitor_kinds
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator import whole_bed
from tests.flows.operator.test_clusters import Bed, working

if TYPE_CHECKING:
    from isthmus.kube.store import Store

KINDS: tuple[Kind[Any], ...] = (DEPLOYMENTS, SERVICES, SERVICE_ACCOUNTS, TOKENS)
AVAILABLE = "ExporterAvailable"
NAME = exporter.APP
NOT_INSTALLED = "the definitions of monitoring.coreos.com/v1 are not installed"


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[Bed]:
    del kube  # which has the kinds installed
    async with working(control_plane.kubeconfig, namespace) as bed:
        yield bed


@pytest.fixture
async def whole(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[whole_bed.Bed]:
    del kube
    async with whole_bed.working(control_plane.kubeconfig, namespace) as bed:
        yield bed


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it looked often whether a kind is served by now, which is said nowhere."""
    monkeypatch.setattr("isthmus.kube.informer.LONGEST_PAUSE", 0.2)
    monkeypatch.setattr("isthmus.operator.clusters.sync._MONITORS_S", 0.2)
    monkeypatch.setattr("isthmus.operator.slurmctld.sync._MONITORS_S", 0.2)


async def change(bed: Bed | whole_bed.Bed, **spec: Any) -> None:
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), {"spec": spec})


async def raw(bed: whole_bed.Bed, kind: Kind[Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await bed.kube.send("GET", path(kind, bed.key(name))))
    return found


async def test_it_comes_and_goes_with_its_field_and_the_cluster_tells_how_it_is(bed: Bed) -> None:
    await bed.make(slurmNodes={"worker": {"size": 1}, "exporter": {"enabled": True}})
    for kind in KINDS:
        await bed.there(kind, NAME)
    await bed.tell_all(workers=1)
    await eventually(lambda: bed.cluster().status.phase == "Available")
    assert bed.condition(AVAILABLE)[0] == "False", "nobody waits for the exporter"
    await bed.tell_writer(component=exporter.COMPONENT)
    ready = f"slurm-exporter is ready (no PodMonitor, but prometheus.io annotations: {NOT_INSTALLED})"
    await eventually(lambda: bed.condition(AVAILABLE) == ("True", ready))
    await change(bed, maintenance="downscale")
    await eventually(lambda: "maintenance" in bed.condition(AVAILABLE)[1])
    assert (await bed.kube.get(DEPLOYMENTS, bed.key(NAME))).spec.replicas == 0
    await change(bed, maintenance="none", slurmNodes={"exporter": {"enabled": False}})
    world = bed.world
    gone: tuple[Store[Any], ...] = (world.deployments, world.services, world.service_accounts, world.tokens)
    await eventually(lambda: all(bed.key(NAME) not in store for store in gone))
    await eventually(lambda: bed.condition(AVAILABLE) == ("", ""))


async def test_its_token_is_in_a_secret_that_only_its_pod_mounts(whole: whole_bed.Bed) -> None:
    spec = {"slurmNodes": {"exporter": {"enabled": True}}}
    metadata = {"name": "demo", "namespace": whole.namespace}
    await whole.kube.create(SLURM_CLUSTERS, {"metadata": metadata, "spec": spec})
    await eventually(lambda: whole.key(exporter.secret("")) in whole.world.secrets)
    key = (await whole.kube.get(SECRETS, whole.key("demo-jwt-key"))).data["jwt.key"]
    token = (await whole.kube.get(SECRETS, whole.key(exporter.secret("")))).data["token"]
    assert jwt.decode(token, key, algorithms=["HS256"])["sun"] == "nobody"
    pod = (await raw(whole, DEPLOYMENTS, NAME))["spec"]["template"]["spec"]
    assert exporter.secret("") in {it.get("secret", {}).get("secretName") for it in pod["volumes"]}
    # Whoever turns PrivateData on has it read by the only one who still sees all.
    await change(whole, customSlurmConfig="PrivateData=jobs\n")

    async def user() -> str:
        found = (await whole.kube.get(SECRETS, whole.key(exporter.secret("")))).data["token"]
        return str(jwt.decode(found, key, algorithms=["HS256"])["sun"])

    await eventually(lambda: (it := whole.world.tokens.get(whole.key(NAME))) and it.spec.username == "slurm")
    await whole.quiet()
    assert await user() == "slurm"


@pytest.mark.usefixtures("soon")
async def test_monitors_come_with_their_kinds_and_go_with_them(whole: whole_bed.Bed) -> None:
    world, kube, cluster = whole.world, whole.kube, whole.key("demo")
    monitor = {"interval": "15s", "labels": {"release": "prometheus"}}
    nodes = {
        "exporter": {
            "enabled": True,
            "podMonitorConfig": {
                **monitor,
                "jobLabel": "job",
                "scrapeTimeout": "5s",
                "relabelConfig": [{"action": "replace", "targetLabel": "a", "replacement": "b"}],
                "metricRelabelConfigs": [{"action": "labeldrop", "regex": "c"}],
            },
        },
        "controller": {"openMetrics": {"serviceMonitor": {**monitor, "endpoints": ["jobs", "nodes"]}}},
    }
    metadata = {"name": "demo", "namespace": whole.namespace}
    await kube.create(SLURM_CLUSTERS, {"metadata": metadata, "spec": {"slurmNodes": nodes}})

    def told(store: "Store[Any]", type_: str) -> str:
        found = store.get(cluster)
        held = condition(found.status.conditions, type_) if found else None
        return held.message if held else ""

    async def until_annotated(*, wanted: bool) -> None:
        async with asyncio.timeout(30):
            while True:
                pod = (await raw(whole, DEPLOYMENTS, NAME))["spec"]["template"]["metadata"]
                if ("prometheus.io/scrape" in pod["annotations"]) is wanted:
                    return
                await asyncio.sleep(0.05)

    await eventually(lambda: f"podMonitorConfig ({NOT_INSTALLED})" in told(world.clusters, "FieldsWithoutEffect"))
    await eventually(lambda: NOT_INSTALLED in told(world.controllers, "ServiceMonitorCreated"))
    await until_annotated(wanted=True)
    definitions = monitor_kinds.files("podmonitors", "servicemonitors")
    try:
        for file in definitions.values():
            await crd.install(kube, yaml.load(file.read_text(), yaml.CSafeLoader), manager="test")
        await eventually(lambda: whole.key(NAME) in world.pod_monitors)
        await eventually(lambda: whole.key("demo-controller") in world.service_monitors)
        made = await raw(whole, POD_MONITORS, NAME)
        assert made["metadata"]["labels"]["release"] == "prometheus"
        assert made["spec"]["jobLabel"] == "job"
        assert [it["port"] for it in made["spec"]["podMetricsEndpoints"]] == ["metrics", "monitoring"]
        assert (await raw(whole, SERVICE_MONITORS, "demo-controller"))["spec"]["endpoints"][1]["path"] == (
            "/metrics/nodes"
        )
        await eventually(lambda: not told(world.clusters, "FieldsWithoutEffect"))
        await eventually(lambda: "demo-controller" in told(world.controllers, "ServiceMonitorCreated"))
        await until_annotated(wanted=False)
        # What somebody else deletes or changes is put right.
        before = made["metadata"]["uid"]
        await kube.delete(POD_MONITORS, whole.key(NAME))
        await eventually(
            lambda: (it := world.pod_monitors.get(whole.key(NAME))) is not None and it.metadata.uid != before
        )
        await change(whole, slurmNodes={"controller": {"openMetrics": None}})
        await eventually(lambda: whole.key("demo-controller") not in world.service_monitors)
    finally:
        for name in definitions:
            await kube.delete(DEFINITIONS, Key("", name))
    await eventually(lambda: NOT_INSTALLED in told(world.clusters, "FieldsWithoutEffect"), within=30)
    await until_annotated(wanted=True)
    with pytest.raises(NotFound):
        await kube.get(POD_MONITORS, whole.key(NAME))

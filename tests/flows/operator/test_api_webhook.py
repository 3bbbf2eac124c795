"""Our webhooks, called by a real API server: what is refused, warned about, and written in another version."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
import pytest_asyncio

from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.errors import ApiError, NotFound
from isthmus.model.autoscaler import AUTOSCALERS
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.model.slinky import CONTROLLERS, LOGINSETS, NODESETS
from isthmus.model.soperator import NEBIUS_NODESETS
from isthmus.operator import crds, registration
from isthmus.operator.conversion import KEPT_FULL
from isthmus.operator.webhook import KINDS, Webhook
from isthmus.runtime import server
from isthmus.runtime.metrics import Metrics
from tests.bed import operator_webhooks
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.operator_webhooks import Place
from tests.bed.scale import set_scale
from tests.flows.kube.conftest import NAMESPACES
from tests.flows.operator.conftest import own_control_plane, until_listed
from tests.flows.operator.others import CLUSTERS_OF_OTHERS
from tests.flows.operator.parts_bed import LIMIT
from tests.unit.operator.manifests import Manifest, cluster, nebius_nodeset, slinky

# One event loop: the webhooks answer in it, and are registered once for nearly all tests.
pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST = "127.0.0.1"
OPERATOR = "isthmus-system"
TEAM = "hpc"

RAW: dict[tuple[str, str], Kind[Manifest]] = {
    (kind.api_version, kind.name): Kind(dict[str, Any], kind.api_version, kind.plural, kind.name) for kind in KINDS
}
SHORT_NODESETS: Kind[Manifest] = Kind(dict[str, Any], "slinky.slurm.net/v1alpha1", "nodesets", "NodeSet")
SHORT_LOGINSETS: Kind[Manifest] = Kind(dict[str, Any], "slinky.slurm.net/v1alpha1", "loginsets", "LoginSet")
RAW_NODESETS = RAW[NODESETS.api_version, "NodeSet"]

OF_THE_DOCUMENTS = """
apiVersion: slinky.slurm.net/v1alpha1
kind: NodeSet
metadata:
  name: compute-cluster
spec:
  replicas: 20
  template:
    spec:
      containers:
      - name: compute-node
        image: hpc-node:latest
"""


class Door:
    """The webhooks in this process, and an API server that asks at them."""

    def __init__(self, bed: ControlPlaneBed, client: Client, closing: AsyncExitStack) -> None:
        self.bed = bed
        self.client = client
        self.close = closing.aclose
        """Takes the webhooks away, as a crash of every replica would."""

    async def create(self, manifest: Manifest) -> Manifest:
        kind = RAW[manifest["apiVersion"], manifest["kind"]]
        return await self.client.create(kind, manifest | {"metadata": manifest["metadata"] | {"namespace": TEAM}})

    async def refusal(self, manifest: Manifest) -> str:
        with pytest.raises(ApiError) as caught:
            await self.create(manifest)
        return caught.value.status.message

    async def kubectl(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl without stopping the webhooks, which are in this very thread."""
        program = self.bed.plane.binaries["kubectl"]
        command = [str(program), f"--kubeconfig={self.bed.kubeconfig}", f"--namespace={TEAM}", *words]

        def run() -> subprocess.CompletedProcess[str]:
            return subprocess.run(command, check=True, text=True, input=stdin, capture_output=True)

        return await asyncio.to_thread(run)


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[ControlPlaneBed]:
    """Kinds are converted here."""
    with own_control_plane(request, "webhook") as bed:
        yield bed


@asynccontextmanager
async def opened(bed: ControlPlaneBed) -> AsyncIterator[Door]:
    metrics = Metrics()
    async with Client(load(bed.kubeconfig)) as client:
        webhook = Webhook(client, metrics)
        for name in (OPERATOR, TEAM):
            await client.apply(NAMESPACES, {"metadata": {"name": name}}, manager="test")
        keeper = registration.certificates(client, Place(OPERATOR), metrics=metrics, hosts=[HOST])
        async with AsyncExitStack() as closing:
            await keeper.refresh()  # first the certificate, then the listener
            port = await closing.enter_async_context(
                server.serve(webhook.routes, host=HOST, port=0, tls=keeper.context)
            )
            await operator_webhooks.register(client, Place(OPERATOR, url=f"https://{HOST}:{port}"))
            await keeper.refresh()
            await until_listed(client, crds.definitions(conversion=Place(OPERATOR).conversion))
            await _until_asked(client)
            yield Door(bed, client, closing)
        await operator_webhooks.unregister(client, Place(OPERATOR))


class Entrance:
    """Where the one door is that tests share, as long as nobody wants one to break."""

    def __init__(self, bed: ControlPlaneBed) -> None:
        self._bed = bed
        self._stack = AsyncExitStack()
        self._shared: Door | None = None

    async def shared(self) -> Door:
        if self._shared is None:
            self._shared = await self._stack.enter_async_context(opened(self._bed))
        return self._shared

    async def close(self) -> None:
        self._shared = None
        await self._stack.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def entrance(bed: ControlPlaneBed) -> AsyncIterator[Entrance]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_webhooks, "_TIMEOUT", 30)  # as long as the API server allows: machines may be slow
        entrance = Entrance(bed)
        yield entrance
        await entrance.close()


@pytest_asyncio.fixture(loop_scope="module")
async def door(entrance: Entrance) -> AsyncIterator[Door]:
    door = await entrance.shared()
    yield door
    await clear(door.client)


@pytest_asyncio.fixture(loop_scope="module")
async def own_door(bed: ControlPlaneBed, entrance: Entrance) -> AsyncIterator[Door]:
    """A door that a test may break."""
    await entrance.close()
    async with opened(bed) as door:
        yield door
    async with Client(load(bed.kubeconfig)) as client:
        await clear(client)


async def clear(client: Client) -> None:
    for kind in KINDS:
        await client.delete_all(kind, namespace=TEAM)


async def _until_asked(client: Client) -> None:
    """Wait until the API server asks us about writes, and for conversions."""
    bad = slinky("Controller", "probe", extraConf="nonsense")
    bad["metadata"]["namespace"] = TEAM
    short: Manifest = {"metadata": {"name": "probe", "namespace": TEAM}, "spec": {}}
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                await client.create(CONTROLLERS, bad, dry_run=True)
            except ApiError as error:
                if "extraConf, line 1" in error.status.message:
                    with suppress(ApiError):
                        for kind in (SHORT_NODESETS, SHORT_LOGINSETS):
                            await client.create(kind, short, dry_run=True)
                        return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "manifest", [cluster(), slinky("NodeSet", "worker"), slinky("Controller")], ids=lambda it: it["kind"]
)
async def test_what_is_drained_first_is_never_deleted_in_the_foreground(door: Door, manifest: Manifest) -> None:
    kind, name = RAW[manifest["apiVersion"], manifest["kind"]], manifest["metadata"]["name"]
    # As our controllers do until all is drained.
    finalizers = ["slurm.isthmus.dev/still-draining"]
    await door.create(manifest | {"metadata": manifest["metadata"] | {"finalizers": finalizers}})
    try:
        words = ("delete", f"{kind.plural}.{kind.group}", name, "--cascade=foreground", "--wait=false")
        with pytest.raises(subprocess.CalledProcessError) as caught:
            await door.kubectl(*words, "--dry-run=server")
        assert "deletionTimestamp" not in (await door.client.get(kind, Key(TEAM, name)))["metadata"]
        with pytest.raises(subprocess.CalledProcessError) as caught:
            await door.kubectl(*words)
        assert "its nodes are drained first, then it is removed" in caught.value.stderr
        found = (await door.client.get(kind, Key(TEAM, name)))["metadata"]
        assert found["deletionTimestamp"]
        # With foregroundDeletion here, the garbage collector would delete all that belongs to it at once.
        assert found["finalizers"] == finalizers
    finally:
        await door.client.merge_patch(kind, Key(TEAM, name), {"metadata": {"finalizers": None}})


async def test_what_schema_cannot_say_is_refused_with_every_reason(door: Door) -> None:
    why = await door.refusal(
        cluster(
            slurmNodes={"login": {"k8sNodeFilterName": "gpu"}, "worker": {"k8sNodeFilterName": "tpu"}},
            k8sNodeFilters=[{"name": "cpu"}],
        )
    )
    assert "there is no node filter 'gpu' in k8sNodeFilters (there: cpu)" in why
    assert "there is no node filter 'tpu'" in why
    for manifest, reason in (
        (slinky("NodeSet", slurmd={"resources": {"limits": {"cpu": "500m"}}}), "less than one"),
        (slinky("NodeSet", extraConf="Weight=`id`"), "not Key=Value"),
        (slinky("Controller", extraConf="Prolog=\0"), "control character"),
        (cluster(customSlurmConfig="ClusterName=x"), "customSlurmConfig sets clustername"),
        (nebius_nodeset(nodeConfig={"static": "x"}), "nodeConfig.static"),
    ):
        assert reason in await door.refusal(manifest)


@pytest.mark.parametrize("manifest", CLUSTERS_OF_OTHERS.values(), ids=CLUSTERS_OF_OTHERS.keys())
async def test_manifests_of_other_operators_pass(door: Door, manifest: Manifest) -> None:
    await door.create(manifest)


async def test_kubectl_shows_which_fields_have_no_effect(door: Door) -> None:
    manifest = cluster("small", plugStackConfig={"pyxis": {"required": True}})
    done = await door.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    assert "Warning: fields that have no effect yet: spec.plugStackConfig.pyxis" in done.stderr
    done = await door.kubectl("label", "slurmcluster/small", "a=b")
    assert "Warning" not in done.stderr


async def test_the_short_form_of_the_documents_is_a_whole_nodeset(door: Door) -> None:
    await door.kubectl("apply", "-f", "-", stdin=OF_THE_DOCUMENTS)
    found = await door.client.get(NODESETS, Key(TEAM, "compute-cluster"))
    assert found.spec.replicas == 20
    assert found.spec.slurmd == {"name": "compute-node", "image": "hpc-node:latest"}
    assert found.spec.controller_ref.name == ""  # the only Controller of the namespace
    assert found.spec.workload_disruption_protection
    # And back: the same words, changed by whoever speaks the other version.
    await door.client.merge_patch(NODESETS, found.metadata.key, {"spec": {"replicas": 3, "extraConf": "Weight=2"}})
    shown = await door.client.get(SHORT_NODESETS, found.metadata.key)
    assert shown["spec"]["replicas"] == 3
    assert shown["spec"]["template"]["spec"]["containers"] == [{"name": "compute-node", "image": "hpc-node:latest"}]
    assert json.loads(shown["metadata"]["annotations"][KEPT_FULL]) == {"extraConf": "Weight=2"}
    # Applied again, the short form changes what it speaks of and nothing else.
    await door.kubectl("apply", "-f", "-", stdin=OF_THE_DOCUMENTS)
    again = await door.client.get(NODESETS, found.metadata.key)
    assert (again.spec.replicas, again.spec.extra_conf) == (20, "Weight=2")
    listed = await door.kubectl("get", "nodesets.v1alpha1.slinky.slurm.net")
    assert "compute-cluster" in listed.stdout
    await door.kubectl("scale", "--replicas=7", "nodesets.v1alpha1.slinky.slurm.net/compute-cluster")
    assert (await door.client.get(NODESETS, found.metadata.key)).spec.replicas == 7


async def test_a_nodeset_is_scaled_by_one_at_a_time(door: Door) -> None:
    await door.create(slinky("NodeSet", "plain", replicas=1))
    await door.create(slinky("NodeSet", "elastic", replicas=1, autoscale={}))
    await door.create(nebius_nodeset("ephemeral", ephemeralNodes=True))
    await set_scale(door.client, NODESETS, Key(TEAM, "plain"), 0)
    await set_scale(door.client, NODESETS, Key(TEAM, "plain"), 3)
    with pytest.raises(ApiError, match="already scaled by its field autoscale"):
        await set_scale(door.client, NODESETS, Key(TEAM, "elastic"), 0)
    with pytest.raises(ApiError, match="already scaled by its field ephemeralNodes"):
        await set_scale(door.client, NEBIUS_NODESETS, Key(TEAM, "ephemeral"), 3)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        await door.kubectl("scale", "--replicas=7", "nodesets.v1alpha1.slinky.slurm.net/elastic")
    assert "already scaled by its field autoscale" in caught.value.stderr
    # It is its owner's to say how many nodes Slurm knows.
    await door.client.merge_patch(NODESETS, Key(TEAM, "elastic"), {"spec": {"replicas": 2}})
    # And the other way round.
    target = {"apiVersion": NODESETS.api_version, "kind": "NodeSet", "name": "plain"}
    await door.client.create(
        AUTOSCALERS,
        {
            "metadata": {"name": "by-load", "namespace": TEAM},
            "spec": {"scaleTargetRef": target, "maxReplicas": 5},
        },
    )
    with pytest.raises(ApiError, match="HorizontalPodAutoscaler by-load already scales this NodeSet"):
        await door.client.merge_patch(NODESETS, Key(TEAM, "plain"), {"spec": {"autoscale": {}}})
    await door.client.merge_patch(NODESETS, Key(TEAM, "plain"), {"spec": {"replicas": 4}})
    await door.client.delete(AUTOSCALERS, Key(TEAM, "by-load"))
    await door.client.merge_patch(NODESETS, Key(TEAM, "plain"), {"spec": {"autoscale": {}}})


async def test_a_short_loginset(door: Door) -> None:
    containers = [{"name": "login", "image": "login:1"}]
    spec = {"replicas": 2, "clusterName": "slurm", "template": {"spec": {"containers": containers}}}
    await door.client.create(SHORT_LOGINSETS, {"metadata": {"name": "login", "namespace": TEAM}, "spec": spec})
    found = await door.client.get(LOGINSETS, Key(TEAM, "login"))
    assert (found.spec.controller_ref.name, found.spec.login) == ("slurm", {"image": "login:1"})
    with pytest.raises(ApiError, match="clusterName cannot be changed"):
        await door.client.merge_patch(SHORT_LOGINSETS, found.metadata.key, {"spec": {"clusterName": "other"}})


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        ({"partition": {"enabled": True, "config": "State=UP\nInclude /etc/shadow"}}, "sets"),
        ({"extraConf": "Weight=$(id)"}, "not Key=Value"),
        ({"ordinalPadding": 99}, "ordinalPadding"),
        ({"registration": "Wild"}, "registration"),
    ],
)
async def test_nothing_slips_in_by_the_annotation_of_the_short_form(door: Door, kept: Manifest, why: str) -> None:
    metadata = {"name": "sly", "namespace": TEAM, "annotations": {KEPT_FULL: json.dumps(kept)}}
    with pytest.raises(ApiError, match=why):
        await door.client.create(SHORT_NODESETS, {"metadata": metadata, "spec": {}})


async def test_without_us_nothing_new_comes_but_everything_can_be_used_and_go(own_door: Door) -> None:
    door = own_door
    key = Key(TEAM, "workers")
    made = slinky("NodeSet", "workers")
    made["metadata"]["finalizers"] = ["nodeset.slinky.slurm.net/drain"]
    await door.create(made)
    await door.close()
    assert "failed calling webhook" in await door.refusal(slinky("NodeSet", "more"))
    assert (await door.client.list(NODESETS, namespace=TEAM)).items
    await door.client.merge_patch(NODESETS, key, {"metadata": {"labels": {"a": "b"}}})
    await door.client.merge_patch(NODESETS, key, {"status": {"replicas": 1}}, subresource="status")
    await set_scale(door.client, NODESETS, key, 4)
    await door.client.delete(NODESETS, key)
    await door.client.merge_patch(NODESETS, key, {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await door.client.get(NODESETS, key)


async def test_what_was_let_in_before_us_can_go(own_door: Door) -> None:
    """An object that we would refuse, from a time without webhooks, loses its finalizer and is gone."""
    door = own_door
    bad = slinky("Controller", "old", extraConf="nonsense")
    bad["metadata"] |= {"namespace": TEAM, "finalizers": ["example.org/wait"]}
    await operator_webhooks.unregister(door.client, Place(OPERATOR))
    async with asyncio.timeout(LIMIT):
        while True:
            with suppress(ApiError):
                await door.client.create(CONTROLLERS, bad)
                break
            await asyncio.sleep(0.02)
    await operator_webhooks.register(door.client, Place(OPERATOR, url=await _url(door)))
    await registration.certificates(door.client, Place(OPERATOR), metrics=Metrics(), hosts=[HOST]).refresh()
    await _until_asked(door.client)
    key = Key(TEAM, "old")
    await door.client.merge_patch(CONTROLLERS, key, {"metadata": {"labels": {"a": "b"}}})
    await door.client.delete(CONTROLLERS, key)
    await door.client.merge_patch(CONTROLLERS, key, {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await door.client.get(CONTROLLERS, key)


async def _url(door: Door) -> str:
    found = (await door.kubectl("get", "crd", "nodesets.slinky.slurm.net", "-o", "json")).stdout
    return str(json.loads(found)["spec"]["conversion"]["webhook"]["clientConfig"]["url"]).removesuffix("/convert")

"""What decides where and when a single pod runs: its own wishes, Kubernetes' room, and people in both worlds."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from isthmus import names
from isthmus.bridge.cache.jobs import OurJob
from isthmus.domain.bridge import jobstates
from isthmus.domain.languages.hostlist import expand
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.errors import NotFound
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from isthmus.model.policy import POLICIES
from isthmus.model.storage import CLAIMS, STORAGE_CLASSES, VOLUMES
from isthmus.model.workload import JOBS
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import Bridge, make_node, pod, running, until
from tests.flows.bridge.whole import whole

DAEMONS = {"e1": "300m", "e2": "100m", "e3": "1", "e4": "4"}
SHARED = {f"{names.JOB_ANNOTATIONS}exclusive": "false"}
RAW_CLAIMS: Kind[dict[str, Any]] = Kind(dict[str, Any], "v1", "persistentvolumeclaims", "PersistentVolumeClaim")


@pytest.fixture
async def placing(bridge: Bridge) -> AsyncIterator[Bridge]:
    async with whole(bridge):
        yield bridge


def jobs_of(bridge: Bridge, key: Key) -> list[OurJob]:
    """The living jobs of a pod."""
    found = [it for it in bridge.world.jobs if (it.marker.namespace, it.marker.name) == key]
    return [it for it in found if jobstates.living(it.job.job_state)]


async def label(bridge: Bridge, node: str, **labels: str | None) -> None:
    await bridge.world.kube.merge_patch(NODES, node, {"metadata": {"labels": labels}})

    def seen() -> bool:
        found = bridge.world.nodes.get(Key("", node))
        return found is not None and all(found.metadata.labels.get(key) == value for key, value in labels.items())

    await until(seen)


async def test_wishes_for_nodes_reach_slurm_as_exclusions(
    placing: Bridge, namespace: str, slurm_with_external_nodes: SlurmBed
) -> None:
    await label(placing, "e3", disk="fast")
    key = await placing.create(pod(namespace, "picky", nodeSelector={"disk": "fast"}))
    (found,) = await placing.bound(key)
    assert found.spec.node_name == "e3"
    job_id = found.metadata.labels[names.JOB_ID_LABEL]
    (job, *_) = await placing.world.slurm.job(int(job_id))
    assert set(expand(job.excluded_nodes or "")) == {"e1", "e2", "e4", "n1"}
    shown = slurm_with_external_nodes.command("scontrol", "show", "job", job_id)
    assert "ReqNodeList=(null)" in shown, "a job that requires nodes fails with them"


async def test_required_affinity_and_taints_are_honoured(placing: Bridge, namespace: str) -> None:
    await label(placing, "e2", zone="a")
    await label(placing, "e4", zone="a")
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    await placing.world.kube.merge_patch(NODES, "e4", {"spec": {"taints": [taint]}})
    await until(lambda: (it := placing.world.nodes.get(Key("", "e4"))) and it.spec.taints)
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    first = await placing.create(pod(namespace, "plain", affinity=affinity))
    (plain,) = await placing.bound(first)
    assert plain.spec.node_name == "e2"
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    second = await placing.create(pod(namespace, "tolerant", affinity=affinity, tolerations=tolerations))
    (tolerant,) = await placing.bound(second)
    assert tolerant.spec.node_name == "e4"


async def test_a_pod_that_no_node_fits_says_so_and_starts_when_one_does(placing: Bridge, namespace: str) -> None:
    key = await placing.create(pod(namespace, "early", nodeSelector={"disk": "fast"}))
    told = await placing.told(key, "Unschedulable")
    assert "0 of 5 nodes fit: 4 do not match the node selector" in told
    assert not jobs_of(placing, key), "a pod that fits nowhere is in Slurm's queue"
    await label(placing, "e2", disk="fast")
    (found,) = await placing.bound(key)
    assert found.spec.node_name == "e2"


async def daemon(bridge: Bridge, namespace: str, node: str, cpu: str) -> Key:
    """Put a pod on a node that Slurm did not place there."""
    body = pod(namespace, f"daemon-{node}", cpu=cpu, schedulerName="somebody-else", nodeName=node)
    key = await bridge.create(body)
    await until(lambda: bridge.world.pods.get(key))
    return key


def returned(bridge: Bridge) -> int:
    return int(bridge.counted(names.RETURNED))


async def test_a_node_is_left_out_that_could_not_take_the_pod_even_when_empty(
    placing: Bridge, namespace: str
) -> None:
    for node in ("e1", "e2", "e4"):
        await daemon(placing, namespace, node, "300m")
    (found,) = await placing.bound(await placing.create(pod(namespace, "large", cpu="4")))
    assert found.spec.node_name == "e3"
    (job, *_) = await placing.world.slurm.job(int(found.metadata.labels[names.JOB_ID_LABEL]))
    assert set(expand(job.excluded_nodes or "")) == {"e1", "e2", "e4", "n1"}
    fits = [await placing.create(pod(namespace, f"small-{number}", cpu="3700m")) for number in range(3)]
    assert {it.spec.node_name for it in await placing.bound(*fits)} == {"e1", "e2", "e4"}
    assert returned(placing) == 0


async def test_a_pod_that_is_too_large_for_every_node_is_told_the_largest_and_takes_nothing(
    placing: Bridge, namespace: str
) -> None:
    keys = {node: await daemon(placing, namespace, node, cpu) for node, cpu in DAEMONS.items()}
    large = await placing.create(pod(namespace, "large", cpu="4"))
    told = await placing.told(large, "Unschedulable")
    assert "0 of 5 nodes fit: 4 are too small" in told
    assert "The largest node, e2, is too small even without other pods of Slurm: needs 4 CPUs, 3.9 are free" in told
    assert not [it for it in placing.world.jobs if it.marker.keys == (large,)], "it was submitted"
    await placing.world.kube.delete(PODS, keys["e3"], grace=0)
    (found,) = await placing.bound(large)
    assert found.spec.node_name == "e3"
    assert returned(placing) == 0


async def test_a_waiting_job_learns_of_nodes_that_fit_now(placing: Bridge, namespace: str) -> None:
    await label(placing, "e1", disk="fast")
    first = await placing.create(pod(namespace, "first", nodeSelector={"disk": "fast"}))
    await placing.bound(first)
    second = await placing.create(pod(namespace, "second", nodeSelector={"disk": "fast"}))
    await placing.told(second, "SlurmPending")
    await label(placing, "e3", disk="fast")
    (found,) = await placing.bound(second)
    assert found.spec.node_name == "e3"


async def test_a_node_that_is_none_of_kubernetes_is_given_back(
    config: Config, client: Client, nodes: list[str], namespace: str, slurm_with_external_nodes: SlurmBed
) -> None:
    """A node of both goes from Kubernetes while nobody looks, and Slurm gives it to a waiting job."""
    slurm = slurm_with_external_nodes
    async with running(config, slurm) as bridge:
        fillers = [await bridge.create(pod(namespace, f"filler-{number}")) for number in range(len(nodes))]
        (filler, *_) = await bridge.bound(*fillers)
        key = await bridge.create(pod(namespace, "late"))
        await bridge.told(key, "SlurmPending")
        (waiting,) = jobs_of(bridge, key)
    node = filler.spec.node_name
    await client.delete(NODES, node)
    slurm.command("scancel", filler.metadata.labels[names.JOB_ID_LABEL])
    await until(lambda: slurm.command("squeue", "-h", "-j", str(waiting.job_id), "-o", "%T").strip() == "RUNNING")
    async with running(config, slurm) as bridge, whole(bridge):
        (another,) = await until(lambda: [it for it in jobs_of(bridge, key) if it.job_id != waiting.job_id])
        await make_node(client, node)
        (found,) = await bridge.bound(key)
        assert found.metadata.labels[names.JOB_ID_LABEL] == str(another.job_id)


async def test_a_gated_pod_takes_nothing_until_its_gates_open(placing: Bridge, namespace: str) -> None:
    key = await placing.create(pod(namespace, "gated", schedulingGates=[{"name": "example.com/wait"}]))
    other = await placing.create(pod(namespace, "other"))
    await placing.bound(other)
    assert not [it for it in placing.world.jobs if it.marker.name == "gated"]
    await placing.world.kube.merge_patch(PODS, key, {"spec": {"schedulingGates": None}})
    await placing.bound(key)


async def test_a_pod_that_is_still_leaving_delays_the_binding(placing: Bridge, namespace: str) -> None:
    stays = pod(namespace, "slow", cpu="3", schedulerName="somebody-else", nodeName="e2")
    slow = await placing.create(stays)
    await until(lambda: placing.world.pods.get(slow))
    await placing.world.kube.delete(PODS, slow)
    await until(lambda: (it := placing.world.pods.get(slow)) and it.leaving)
    key = await placing.create(pod(namespace, "next", cpu="3", nodeName="", nodeSelector={}))
    await label(placing, "e2", only="this")
    picky = await placing.create(pod(namespace, "picky", cpu="3", nodeSelector={"only": "this"}))
    told = await placing.told(picky, "WaitingForRoom")
    assert f"pod {slow} is still terminating" in told
    # It keeps its nodes, since room is about to be made. The cache hears of the job with the next look at jobs.
    await until(lambda: jobs_of(placing, picky))
    await placing.world.kube.delete(PODS, slow, grace=0)
    (found, _) = await placing.bound(picky, key)
    assert found.spec.node_name == "e2"


async def test_two_pods_do_not_share_a_host_port(placing: Bridge, namespace: str) -> None:
    await label(placing, "e1", only="this")

    def listening(name: str) -> dict[str, Any]:
        body = pod(namespace, name, nodeSelector={"only": "this"}, annotations=SHARED)
        body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        return body

    first = await placing.create(listening("first"))
    await placing.bound(first)
    second = await placing.create(listening("second"))
    assert "host port 8080/TCP is taken" in await placing.told(second, "WaitingForRoom")
    await placing.world.kube.delete(PODS, first, grace=0)
    await placing.bound(second)


async def make_class(bridge: Bridge, mode: str) -> str:
    name = f"test-{uuid4().hex[:8]}"
    body = {"metadata": {"name": name}, "provisioner": "example.com/none", "volumeBindingMode": mode}
    await bridge.world.kube.create(STORAGE_CLASSES, body)
    await until(lambda: bridge.world.classes.get(Key("", name)))
    return name


async def make_claim(bridge: Bridge, namespace: str, storage_class: str, **spec: Any) -> Key:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    wanted["storageClassName"] = storage_class
    meta = {"namespace": namespace, "name": "data"}
    await bridge.world.kube.create(RAW_CLAIMS, {"metadata": meta, "spec": wanted})
    key = Key(namespace, "data")
    await until(lambda: bridge.world.claims.get(key))
    return key


async def make_volume(bridge: Bridge, claim: Key, storage_class: str, node: str) -> None:
    """Provision the volume of a claim, as a driver would."""
    term = {"matchFields": [], "matchExpressions": [{"key": "host", "operator": "In", "values": [node]}]}
    found = await bridge.world.kube.get(CLAIMS, claim)
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "hostPath": {"path": "/nowhere"},
        "claimRef": {"namespace": claim.namespace, "name": claim.name, "uid": found.metadata.uid},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    await bridge.world.kube.create(VOLUMES, {"metadata": {"name": f"volume-{uuid4().hex[:8]}"}, "spec": spec})


USES_DATA = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


async def test_a_volume_that_is_not_there_yet_takes_no_nodes_and_its_place_decides(
    placing: Bridge, namespace: str
) -> None:
    await label(placing, "e3", host="e3")
    storage_class = await make_class(placing, "Immediate")
    claim = await make_claim(placing, namespace, storage_class)
    key = await placing.create(pod(namespace, "reader", volumes=USES_DATA))
    assert "is not bound yet" in await placing.told(key, "WaitingForVolume")
    assert not jobs_of(placing, key), "a pod that cannot start holds nodes"
    await make_volume(placing, claim, storage_class, "e3")
    (found,) = await placing.bound(key)
    assert found.spec.node_name == "e3"


async def test_a_volume_is_made_where_slurm_places_its_first_consumer(placing: Bridge, namespace: str) -> None:
    storage_class = await make_class(placing, "WaitForFirstConsumer")
    claim = await make_claim(placing, namespace, storage_class)
    key = await placing.create(pod(namespace, "writer", volumes=USES_DATA))

    def selected() -> str:
        known = placing.world.claims.get(claim)
        return known.metadata.annotations.get(names.SELECTED_NODE_ANNOTATION, "") if known else ""

    node = str(await until(selected))
    # The node is taken from Slurm's answer to the scheduler; the cache hears of it with the next look at jobs.
    await until(lambda: [it.job.nodes for it in jobs_of(placing, key)] == [node])
    (job,) = jobs_of(placing, key)
    assert not (placing.world.pods.get(key) or pytest.fail("the pod is gone")).bound
    await label(placing, node, host=node)
    await make_volume(placing, claim, storage_class, node)
    (found,) = await placing.bound(key)
    assert found.spec.node_name == node
    assert found.metadata.labels[names.JOB_ID_LABEL] == str(job.job_id)


async def test_what_is_wrong_with_an_owner_is_told_on_its_pod(placing: Bridge, namespace: str) -> None:
    template = pod(namespace, "", restartPolicy="Never")
    del template["metadata"]
    annotations = {f"{names.JOB_ANNOTATIONS}timelimit": "soon"}
    meta = {"namespace": namespace, "name": "wrong", "annotations": annotations}
    await placing.world.kube.create(JOBS, {"metadata": meta, "spec": {"template": template}})
    found = await until(lambda: [it for it in placing.world.pods.values() if it.metadata.namespace == namespace])
    told = await placing.told(found[0].metadata.key, "SlurmRefused")
    assert f"Job {namespace}/wrong" in told
    assert "timelimit is 'soon'" in told
    await placing.world.kube.merge_patch(JOBS, Key(namespace, "wrong"), {"metadata": {"annotations": None}})
    await placing.world.kube.delete(JOBS, Key(namespace, "wrong"))


async def test_a_namespace_gets_no_more_than_its_policy_allows(placing: Bridge, namespace: str) -> None:
    name = f"policy-{namespace}"
    spec = {"namespaces": [namespace], "partitions": {"default": "main", "allowed": ["main"]}}
    await placing.world.kube.create(POLICIES, {"metadata": {"name": name}, "spec": spec})
    try:
        await until(lambda: placing.world.policies.get(Key("", name)))
        asks = {f"{names.JOB_ANNOTATIONS}partition": "secret"}
        greedy = await placing.create(pod(namespace, "greedy", annotations=asks))
        told = await placing.told(greedy, "SlurmRefused")
        assert "secret" in told
        asks = {f"{names.JOB_ANNOTATIONS}user-id": "1000"}
        impostor = await placing.create(pod(namespace, "impostor", annotations=asks))
        assert "user" in await placing.told(impostor, "SlurmRefused")
        modest = await placing.create(pod(namespace, "modest"))
        await placing.bound(modest)
        assert not jobs_of(placing, greedy)
        assert not jobs_of(placing, impostor)
    finally:
        await placing.world.kube.delete(POLICIES, name)


async def test_a_job_is_that_of_the_user_whom_its_policy_names(
    placing: Bridge, namespace: str, slurm_with_external_nodes: SlurmBed
) -> None:
    """Also where a node is free: of an allocation that starts at once, slurmctld takes the token's user."""
    name = f"policy-{namespace}"
    spec = {"namespaces": [namespace], "users": {"default": "alice", "allowed": ["alice"]}}
    await placing.world.kube.create(POLICIES, {"metadata": {"name": name}, "spec": spec})
    try:
        await until(lambda: placing.world.policies.get(Key("", name)))
        (found,) = await placing.bound(await placing.create(pod(namespace, "hers")))
        job_id = found.metadata.labels[names.JOB_ID_LABEL]
        assert slurm_with_external_nodes.command("squeue", "-ho%u", f"--job={job_id}").split() == ["alice"]
    finally:
        await placing.world.kube.delete(POLICIES, name)
        slurm_with_external_nodes.command("scancel", "--user=alice")


async def waiting_pod(placing: Bridge, namespace: str) -> tuple[Key, OurJob]:
    """A pod whose job waits, because other pods have all nodes."""
    fillers = [await placing.create(pod(namespace, f"filler-{number}")) for number in range(4)]
    await placing.bound(*fillers)
    key = await placing.create(pod(namespace, "waiting"))
    await placing.told(key, "SlurmPending")
    (waiting,) = jobs_of(placing, key)
    return key, waiting


async def test_a_pod_whose_waiting_job_is_cancelled_goes_and_is_not_submitted_again(
    placing: Bridge, namespace: str, slurm_with_external_nodes: SlurmBed
) -> None:
    key, waiting = await waiting_pod(placing, namespace)
    slurm_with_external_nodes.command("scancel", str(waiting.job_id))
    await until(lambda: placing.world.pods.get(key) is None)
    assert not jobs_of(placing, key)
    with pytest.raises(NotFound):
        await placing.world.kube.get(PODS, key)


async def test_a_pod_whose_job_is_held_is_told_how_to_release_it(
    placing: Bridge, namespace: str, slurm_with_external_nodes: SlurmBed
) -> None:
    key, waiting = await waiting_pod(placing, namespace)
    slurm_with_external_nodes.command("scontrol", "hold", str(waiting.job_id))
    assert f"scontrol release {waiting.job_id}" in (await placing.told(key, "SlurmHeld")).lower()

"""Claims on devices with real drivers and real kubelets: a container sees exactly what Slurm chose.

The example driver names its devices in the environment of a container; the driver of CPUs pins it to them.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from isthmus import names
from isthmus.local.node import Node
from tests.bed.bridge_ground import BridgeGround
from tests.bed.device_drivers import CPU_DRIVER, GPU_DRIVER, running_cpus, running_gpus, runtime_with_devices
from tests.bed.waiting import eventually
from tests.e2e.bridge import EXAMPLES, Bridge, installed, job_id
from tests.e2e.pods import TOOLS

NAMESPACE = "slurm-devices"
COUNT = 4
CLASSES = [
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
    }
    for driver in (GPU_DRIVER, CPU_DRIVER)
]
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "two"},
    "spec": {
        "spec": {
            "devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": GPU_DRIVER, "count": 2}}]},
        }
    },
}


@pytest.fixture(scope="module")
def bridge(bridge_ground: BridgeGround) -> Iterator[Bridge]:
    bridge_ground.kubectl("label", "node", *bridge_ground.cluster.workers, f"{names.EXTERNAL_NODE_LABEL}=")
    with installed(bridge_ground, NAMESPACE) as bridge:
        yield bridge


@pytest.fixture(scope="module")
def node(bridge: Bridge) -> Iterator[Node]:
    """A worker whose containers get devices, and four GPUs of it, which Slurm has as its GRES."""
    cluster = bridge.ground.cluster
    worker = bridge.workers[0]
    node = next(it for it in cluster.cluster.nodes if it.name == worker)
    for each in CLASSES:
        bridge.kubectl("apply", "--filename=-", stdin=json.dumps(each))
    with runtime_with_devices(node), running_gpus(node, cluster.kubeconfig, count=COUNT):
        registered(bridge, node, gres=f"gpu:{GPU_DRIVER}:{COUNT}")
        yield node
        bridge.kubectl("delete", "resourceslices", "--all")
    bridge.kubectl("delete", "deviceclass", GPU_DRIVER, CPU_DRIVER)


def registered(bridge: Bridge, node: Node, **facts: Any) -> None:
    """Wait until Slurm knows this of a node."""
    eventually(
        lambda: bridge.external_nodes().get(node.name, {}),
        f"Slurm to have {facts} of {node.name}",
        holds=lambda it: facts.items() <= it.items(),
    )


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """Make a pod that shares its node."""
    resources = {"requests": {"cpu": "100m", "memory": "16Mi"}} | spec.pop("resources", {})
    container = {"name": "main", "image": TOOLS, "command": ["sleep", "infinity"], "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {f"{names.JOB_ANNOTATIONS}exclusive": "false"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def claims(bridge: Bridge) -> dict[str, dict[str, Any]]:
    """The claims by the pod that uses them."""
    found = json.loads(bridge.kubectl("get", "resourceclaims", "-o", "json"))["items"]
    return {by["name"]: it for it in found for by in it["status"].get("reservedFor", ())}


def given(bridge: Bridge, job: str) -> list[str]:
    """The devices whose indices Slurm gave to a job."""
    shown = bridge.slurm("scontrol", "show", "job", "--details", job)
    (found,) = re.findall(r"GRES=\S+?\(IDX:([0-9,-]+)\)", shown)
    return [f"gpu-{at}" for at in indices(found)]


def indices(text: str) -> list[int]:
    """Read a list such as `0,2-3`."""
    parts = (part.partition("-") for part in text.split(","))
    return [at for first, _, last in parts for at in range(int(first), int(last or first) + 1)]


def devices_in(claim: dict[str, Any]) -> list[str]:
    return sorted(it["device"] for it in claim["status"]["allocation"]["devices"]["results"])


def gpus_seen(bridge: Bridge, name: str) -> list[str]:
    """The GPUs that a container finds in its environment."""
    shown = bridge.kubectl("exec", name, "--", "env")
    return sorted(re.findall(r"^GPU_DEVICE_\d+=\W*(gpu-\d+)", shown, re.MULTILINE))


def cpus_seen(bridge: Bridge, name: str) -> list[int]:
    """The CPUs on which a container may run."""
    shown = bridge.kubectl("exec", name, "--", "sh", "-c", "grep Cpus_allowed_list /proc/1/status")
    return indices(shown.partition(":")[2].strip())


@pytest.mark.usefixtures("node")
def test_a_container_sees_exactly_the_devices_that_slurm_chose(bridge: Bridge) -> None:
    bridge.kubectl("apply", "--filename=-", stdin=json.dumps(TEMPLATE))
    use = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "two"}]}
    for name in ("one", "other"):
        body = pod(name, resources={"claims": [{"name": "gpus"}]}, **use)
        bridge.kubectl("apply", "--filename=-", stdin=json.dumps(body))
    seen: list[str] = []
    for name in ("one", "other"):
        chosen = given(bridge, job_id(bridge.running(name)))
        assert devices_in(claims(bridge)[name]) == sorted(chosen)
        assert gpus_seen(bridge, name) == sorted(chosen)
        seen += chosen
    assert sorted(seen) == [f"gpu-{at}" for at in range(COUNT)]
    bridge.clear()
    eventually(lambda: claims(bridge), "all claims to be released", holds=lambda it: not it)


def test_examples_with_devices_run(bridge: Bridge, node: Node) -> None:
    """A Job and a PodGroup that ask for a DeviceClass as a resource, as those of slurm-bridge do."""
    bridge.kubectl("apply", "--filename=-", stdin=example("devices-job"))
    bridge.kubectl("wait", "--for=condition=Complete", "job/with-gpu", "--timeout=180s")
    assert re.search(r"GPU_DEVICE_\d+=\W*gpu-\d", bridge.kubectl("logs", "job/with-gpu"))
    second = next(it for it in bridge.ground.cluster.cluster.nodes if it.name == bridge.workers[1])
    with running_gpus(second, bridge.ground.cluster.kubeconfig, count=COUNT):
        registered(bridge, second, gres=f"gpu:{GPU_DRIVER}:{COUNT}")
        bridge.kubectl("apply", "--filename=-", stdin=example("devices-podgroup"))
        pods = [bridge.running(name, phase="Succeeded") for name in ("gpu-pair-1", "gpu-pair-2")]
        assert {it["spec"]["nodeName"] for it in pods} == {node.name, second.name}
        assert len({job_id(it) for it in pods}) == 1
        for pod_ in pods:
            assert pod_["status"]["extendedResourceClaimStatus"]["requestMappings"]
        bridge.clear()
        eventually(lambda: claims(bridge), "all claims to be released", holds=lambda it: not it)
    bridge.kubectl("delete", "resourceslices", f"--field-selector=spec.nodeName={second.name}")


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.yaml").read_text().replace("slurm-bridge\n", f"{NAMESPACE}\n")


def test_a_container_runs_on_the_cpus_that_slurm_chose(bridge: Bridge, node: Node) -> None:
    """Each of two pods has a CPU of the machine, by the class as a resource, as in the examples of slurm-bridge."""
    asked = {"requests": {"memory": "16Mi"}, "limits": {f"deviceclass.resource.kubernetes.io/{CPU_DRIVER}": "1"}}
    with running_cpus(node, bridge.ground.cluster.kubeconfig):
        numbers = eventually(lambda: published(bridge), "the driver to publish CPUs")
        registered(bridge, node, cpus=len(numbers))
        pinned = [f"pinned-{at}" for at in range(min(2, len(numbers)))]
        for name in pinned:
            bridge.kubectl("apply", "--filename=-", stdin=json.dumps(pod(name, resources=asked)))
        seen = []
        for name in pinned:
            job = job_id(bridge.running(name))
            (chosen,) = devices_in(claims(bridge)[name])
            (core,) = re.findall(r"CPU_IDs=(\d+) ", bridge.slurm("scontrol", "show", "job", "--details", job))
            assert sorted(numbers.values())[int(core)] == numbers[chosen]
            assert cpus_seen(bridge, name) == [numbers[chosen]]
            seen.append(chosen)
        assert len(set(seen)) == len(pinned)
        bridge.clear()
        eventually(lambda: claims(bridge), "all claims to be released", holds=lambda it: not it)


def published(bridge: Bridge) -> dict[str, int]:
    """The CPUs that their driver has published, by the names of their devices."""
    slices = json.loads(bridge.kubectl("get", "resourceslices", "-o", "json"))["items"]
    devices = (it for each in slices if each["spec"]["driver"] == CPU_DRIVER for it in each["spec"]["devices"])
    return {it["name"]: it["attributes"]["dra.cpu/cpuID"]["int"] for it in devices}

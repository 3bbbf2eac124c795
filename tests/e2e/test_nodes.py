"""Nodes that are stopped, cut off, or lose a daemon, and what brings them back."""

import pytest

from isthmus.errors import Terminal
from isthmus.local import lifecycle
from isthmus.local.machine import Machine
from isthmus.local.progress import PlainProgress
from tests.bed.cluster import ClusterBed
from tests.bed.waiting import eventually
from tests.e2e.pods import pod

_KUBELET = 10250


def _settle(cluster: ClusterBed, node: str) -> None:
    _says(cluster, node, "True")


def _says(cluster: ClusterBed, node: str, ready: str) -> None:
    """Wait until Kubernetes says that a node is ready, or that it does not know."""
    eventually(lambda: cluster.node_ready(node), f"Ready of {node} to be {ready}", holds=lambda it: it == ready)


def _restarts(cluster: ClusterBed, namespace: str, pod_name: str) -> int | None:
    """How often the pod's container was started again; None as long as kubelet says nothing about it."""
    told = cluster.get(f"pod/{pod_name}", namespace)["status"].get("containerStatuses", [])
    return int(told[0]["restartCount"]) if told else None


def test_a_stopped_node_and_a_cut_one_are_not_ready_and_come_back(cluster: ClusterBed, namespace: str) -> None:
    """Both at once, as Kubernetes takes its time to give up a node. The cut one goes on alone meanwhile."""
    cut, stopped, untouched = cluster.workers
    pods = pod("alone", node=cut), pod("stays", node=stopped)
    cluster.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin="\n---\n".join(pods))
    ready = ("wait", f"--namespace={namespace}", "--for=condition=Ready", "--timeout=180s")
    cluster.kubectl(*ready, "pod/alone", "pod/stays")
    try:
        lifecycle.cut_node(cluster.name, cut)
        lifecycle.stop_node(cluster.name, stopped)
        _says(cluster, cut, "Unknown")
        _says(cluster, stopped, "Unknown")
        found = {view.name: view for view in cluster.cluster.look()}
        assert (found[cut].machine, found[cut].stopped) == ("cut off", ())
        assert found[stopped].machine == "off"
        assert (found[untouched].machine, cluster.node_ready(untouched)) == ("on", "True")
    finally:
        lifecycle.heal_node(cluster.name, cut)
        lifecycle.start_node(cluster.name, stopped)
    _settle(cluster, cut)
    _settle(cluster, stopped)
    assert _restarts(cluster, namespace, "alone") == 0
    eventually(
        lambda: _restarts(cluster, namespace, "stays"), "the pod to be started again", holds=lambda it: it == 1
    )
    cluster.kubectl(*ready, "pod/stays")
    assert cluster.exec("stays", "hostname", namespace=namespace) == "stays\n"


@pytest.mark.parametrize("part", ["containerd", "kubelet", "kube-proxy"])
def test_up_starts_a_killed_daemon_again(cluster: ClusterBed, part: str) -> None:
    node = cluster.cluster.node(cluster.workers[0])
    node.machine.kill(part)
    eventually(lambda: not node.machine.runs(part), f"{part} to be gone")
    assert [view.stopped for view in cluster.cluster.look() if view.name == node.name] == [(part,)]
    lifecycle.up(cluster.name, progress=PlainProgress())
    assert node.machine.runs(part)
    _settle(cluster, node.name)


@pytest.mark.parametrize(
    "part", ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "provisioner"]
)
def test_up_repairs_the_control_plane(cluster: ClusterBed, part: str) -> None:
    machine = cluster.cluster.nodes[0].machine
    cluster.kubectl("create", "configmap", f"before-{part}")
    machine.kill(part)
    eventually(lambda: not machine.runs(part), f"{part} to be gone")
    lifecycle.up(cluster.name, progress=PlainProgress())
    assert machine.runs(part)
    assert f"before-{part}" in cluster.kubectl("get", "configmaps", "-o", "name")


def test_up_repairs_a_lost_switch(cluster: ClusterBed) -> None:
    """Kubernetes would not notice for a while: the control plane asks the kubelets itself."""

    def reached() -> list[str]:
        plane, *workers = cluster.cluster.nodes
        return [it.name for it in workers if _answers(it.address, machine=plane.machine)]

    assert reached() == cluster.workers
    cluster.cluster.switch.halt()
    try:
        assert reached() == []
    finally:
        lifecycle.up(cluster.name, progress=PlainProgress())
    eventually(reached, "all nodes to be reached", holds=lambda it: it == cluster.workers)
    for node in cluster.workers:
        _settle(cluster, node)


def _answers(address: str, *, machine: Machine) -> bool:
    """Whether a kubelet takes connections from a machine."""
    try:
        machine.run("timeout", "10", "bash", "-c", ': < "/dev/tcp/$0/$1"', address, str(_KUBELET))
    except Terminal:
        return False
    return True


def test_pods_that_request_local_storage_run_and_those_that_exceed_it_are_evicted(
    cluster: ClusterBed, namespace: str
) -> None:
    within = pod("within", more="      resources: {requests: {ephemeral-storage: 10Mi}}\n")
    beyond = pod(
        "beyond",
        command="head -c 4000000 /dev/zero > /big; exec sleep infinity",
        more="      resources: {limits: {ephemeral-storage: 1Mi}}\n",
    )
    cluster.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=f"{within}\n---\n{beyond}")
    cluster.kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", "--timeout=180s", "pod/within")
    eventually(
        lambda: cluster.get("pod/beyond", namespace)["status"].get("reason"),
        "the pod that wrote too much to be evicted",
        holds=lambda it: it == "Evicted",
    )

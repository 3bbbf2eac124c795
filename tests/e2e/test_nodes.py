"""Nodes that are stopped, cut off, or lose a daemon, and what brings them back."""

import pytest

from isthmus.local import lifecycle
from isthmus.local.progress import PlainProgress
from tests.bed.cluster import ClusterBed
from tests.bed.waiting import eventually
from tests.e2e.pods import pod


def _settle(cluster: ClusterBed, node: str) -> None:
    _says(cluster, node, "True")


def _says(cluster: ClusterBed, node: str, ready: str) -> None:
    """Wait until Kubernetes says that a node is ready, or that it does not know."""
    eventually(lambda: cluster.node_ready(node), f"Ready of {node} to be {ready}", holds=lambda it: it == ready)


def _restarts(cluster: ClusterBed, namespace: str, pod_name: str) -> int:
    status = cluster.get(f"pod/{pod_name}", namespace)["status"]["containerStatuses"]
    return int(status[0]["restartCount"])


def test_a_stopped_node_is_not_ready_and_comes_back_with_its_pods(cluster: ClusterBed, namespace: str) -> None:
    node = cluster.workers[1]
    cluster.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=pod("stays", node=node))
    cluster.kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", "pod/stays", "--timeout=180s")
    lifecycle.stop_node(cluster.name, node)
    try:
        _says(cluster, node, "Unknown")
        states = {view.name: view.machine for view in cluster.cluster.look()}
        assert states[node] == "off"
        assert states[cluster.workers[0]] == "on"
    finally:
        lifecycle.start_node(cluster.name, node)
    _settle(cluster, node)
    eventually(
        lambda: _restarts(cluster, namespace, "stays"), "the pod to be started again", holds=lambda it: it == 1
    )
    cluster.kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", "pod/stays", "--timeout=180s")
    assert cluster.exec("stays", "hostname", namespace=namespace) == "stays\n"


def test_a_cut_node_goes_on_alone_and_heals(cluster: ClusterBed, namespace: str) -> None:
    node = cluster.workers[0]
    cluster.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=pod("alone", node=node))
    cluster.kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", "pod/alone", "--timeout=180s")
    lifecycle.cut_node(cluster.name, node)
    try:
        _says(cluster, node, "Unknown")
        view = next(view for view in cluster.cluster.look() if view.name == node)
        assert view.machine == "cut off"
        assert view.stopped == ()
    finally:
        lifecycle.heal_node(cluster.name, node)
    _settle(cluster, node)
    assert _restarts(cluster, namespace, "alone") == 0


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
    cluster.cluster.switch.halt()
    lifecycle.up(cluster.name, progress=PlainProgress())
    for node in cluster.workers:
        _settle(cluster, node)

"""The commands as a person types them, and what they say when something is wrong."""

import socket
from pathlib import Path

import pytest

from tests.bed.cluster import ClusterBed
from tests.e2e.command import isthmus


def _refused(*words: str, user: str = "root") -> str:
    done = isthmus(*words, user=user)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "→" in done.stderr, f"no remedy in: {done.stderr}"
    return done.stderr


def test_status_shows_nodes_and_says_when_something_does_not_run(cluster: ClusterBed) -> None:
    done = isthmus("status", "--name", cluster.name)
    assert done.returncode == 0, done.stdout
    assert f"{cluster.name}-worker2" in done.stdout
    machine = cluster.cluster.nodes[1].machine
    machine.kill("kube-proxy")
    try:
        done = isthmus("status", "--name", cluster.name)
        assert done.returncode == 1
        assert "kube-proxy" in done.stdout
        assert "isthmus up" in done.stdout
    finally:
        machine.start(cluster.cluster.nodes[1].proxy())


def test_kubectl_and_kubeconfig_point_at_the_cluster(cluster: ClusterBed) -> None:
    listed = isthmus("kubectl", "--name", cluster.name, "get", "nodes", "-o", "name").stdout
    assert f"node/{cluster.name}-control-plane" in listed
    assert Path(isthmus("kubeconfig", "--name", cluster.name).stdout.strip()) == cluster.kubeconfig


def test_helm_installs_a_chart(cluster: ClusterBed, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: tried\nversion: 1.0.0\n")
    (chart / "templates" / "map.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tried}\n")
    done = isthmus("helm", "--name", cluster.name, "install", "tried", str(chart))
    assert done.returncode == 0, done.stderr
    assert "configmap/tried" in cluster.kubectl("get", "configmap", "tried", "-o", "name")
    assert "tried" in isthmus("helm", "--name", cluster.name, "list").stdout


def test_logs_are_listed_and_shown(cluster: ClusterBed) -> None:
    assert "kubelet" in isthmus("logs", "--name", cluster.name).stdout.split()
    shown = isthmus("logs", "kubelet", "--name", cluster.name, "--node", "worker")
    assert "kubelet" in shown.stdout.lower()
    assert "choose one of" in _refused("logs", "nonsense", "--name", cluster.name)


def test_images_are_listed_and_written_as_archives(cluster: ClusterBed, tmp_path: Path) -> None:
    assert cluster
    assert "isthmus.local/slurm:26.05" in isthmus("images", "list").stdout
    done = isthmus("images", "build", "pause", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "pause.oci.tar").stat().st_size > 0
    assert "choose from" in _refused("images", "build", "nonsense")


@pytest.mark.parametrize("name", ["Demo", "-x", "a" * 31, "a/b", "a b", "../x"])
def test_a_bad_name_is_refused(name: str) -> None:
    assert "is not a valid cluster name" in _refused("up", f"--name={name}")


def test_only_root_can_do_it() -> None:
    assert "needs root" in _refused("up", user="nobody")


def test_an_unknown_cluster_is_named_with_those_there_are(cluster: ClusterBed) -> None:
    said = _refused("kubectl", "--name", "nowhere", "get", "nodes")
    assert "no cluster 'nowhere'" in said
    assert cluster.name in said
    assert "no cluster 'nowhere'" in _refused("down", "--name", "nowhere")


def test_an_unknown_node_is_named_with_those_there_are(cluster: ClusterBed) -> None:
    assert f"{cluster.name}-worker2" in _refused("node", "stop", "worker9", "--name", cluster.name)


@pytest.mark.parametrize("words", [("--nodes", "0"), ("--nodes", "99"), ("--publish", "ssh"), ("--publish", "0:1")])
def test_impossible_wishes_are_refused(words: tuple[str, ...]) -> None:
    _refused("up", "--name", "wish", *words)
    assert not Path("/var/lib/isthmus/wish").exists()


def test_a_busy_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} of localhost is in use" in _refused("up", "--name", "wish", "--publish", str(port))


def test_a_cluster_does_not_shrink_or_change_its_slurm(cluster: ClusterBed) -> None:
    assert "cannot shrink" in _refused("up", "--name", cluster.name, "--nodes", "1")
    assert "has Slurm 26.05" in _refused("up", "--name", cluster.name, "--slurm", "24.11")


def test_missing_given_binaries_are_named(tmp_path: Path) -> None:
    assert "has no executable etcd" in _refused("up", "--name", "wish", "--binaries", str(tmp_path))

"""What the daemons of a node are told. That they take it is seen end to end."""

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from isthmus.errors import Terminal
from isthmus.local.addresses import Addresses
from isthmus.local.cluster import Cluster
from isthmus.local.controlplane import ControlPlane
from isthmus.local.machine import Machine
from isthmus.local.node import Node
from isthmus.local.state import Settings
from isthmus.local.supply import PROGRAMS

BINARIES = {name: Path("/programs") / name for name in PROGRAMS}
ADDRESSES = Addresses(1)


def plane(directory: Path) -> ControlPlane:
    return ControlPlane(
        name="demo",
        directory=directory,
        address=ADDRESSES.node(0),
        service_range=ADDRESSES.services,
        service_address=ADDRESSES.api_service,
        binaries=BINARIES,
    )


def node(directory: Path, index: int, *, machine: Machine | None = None) -> Node:
    never_booted = Machine(directory / "node", hostname="demo-worker", group="isthmus/demo/demo-worker")
    return Node(
        name="demo-worker",
        index=index,
        machine=machine or never_booted,
        plane=plane(directory),
        addresses=ADDRESSES,
        pause_image="isthmus.local/pause:1",
    )


@pytest.fixture
def worker(tmp_path: Path) -> Node:
    worker = node(tmp_path, 1)
    worker.write_configuration()
    return worker


def read(worker: Node, name: str) -> Any:
    text = (worker.machine.directory / name).read_text()
    return tomllib.loads(text) if name.endswith("toml") else yaml.safe_load(text)


def test_no_authority_is_taken_for_another_by_its_name(tmp_path: Path) -> None:
    found = plane(tmp_path)
    authorities = (found.authority, found.etcd_authority, found.front_proxy_authority)
    subjects = {x509.load_pem_x509_certificate(it.certificate.read_bytes()).subject for it in authorities}
    assert len(subjects) == len(authorities)


def test_containerd_knows_its_pause_image_and_where_networks_are_described(worker: Node) -> None:
    config = read(worker, "containerd.toml")
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert config["grpc"]["address"] == "/run/containerd/containerd.sock"
    assert cri["sandbox_image"] == "isthmus.local/pause:1"
    assert cri["cni"]["conf_dir"] == str(worker.machine.directory / "net.d")
    assert isinstance(cri["restrict_oom_score_adj"], bool)


def test_pods_get_addresses_of_their_nodes_range(worker: Node) -> None:
    network = json.loads((worker.machine.directory / "net.d" / "10-isthmus.conflist").read_text())
    bridge = network["plugins"][0]
    assert bridge["ipam"]["ranges"] == [[{"subnet": ADDRESSES.pods(1)}]]
    assert bridge["ipMasq"] is False


def test_what_a_pod_sends_to_its_own_service_comes_back_to_it(worker: Node) -> None:
    network = json.loads((worker.machine.directory / "net.d" / "10-isthmus.conflist").read_text())
    assert network["plugins"][0]["hairpinMode"] is True


def test_the_kubelet_lets_nobody_in_without_being_asked_who_it_is(worker: Node) -> None:
    config = read(worker, "kubelet.yaml")
    assert config["authentication"]["anonymous"]["enabled"] is False
    assert config["authorization"]["mode"] == "Webhook"
    assert config["address"] == config["healthzBindAddress"] == worker.address
    assert config["clusterDNS"] == [ADDRESSES.dns_service]
    assert config["cgroupRoot"] == "/isthmus/demo/demo-worker"
    assert stat.S_IMODE(Path(config["tlsPrivateKeyFile"]).stat().st_mode) == 0o600


def test_the_resolver_of_a_node_names_no_server(worker: Node) -> None:
    assert "nameserver" not in (worker.machine.directory / "resolv.conf").read_text()


def test_writing_the_configuration_again_changes_nothing(worker: Node) -> None:
    files = [file for file in worker.machine.directory.rglob("*") if file.is_file()]
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}
    worker.write_configuration()
    assert len(before) == 4
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files} == before, "daemons watch them"


def test_only_the_control_plane_is_tainted(tmp_path: Path) -> None:
    def taints(index: int) -> list[str]:
        return [word for word in node(tmp_path, index).kubelet().argv if word.startswith("--register-with-taints")]

    assert taints(0) == ["--register-with-taints=node-role.kubernetes.io/control-plane=:NoSchedule"]
    assert taints(1) == []


def test_daemons_authenticate_as_who_they_are_and_no_secret_is_an_argument(tmp_path: Path) -> None:
    central = plane(tmp_path)
    parts = [central.etcd(), central.apiserver(), central.controller_manager(), central.scheduler()]
    parts += [node(tmp_path, 1).kubelet(), node(tmp_path, 1).proxy()]
    words = [word for part in parts for word in part.argv]
    assert "--authorization-mode=Node,RBAC" in words
    assert "--enable-admission-plugins=NodeRestriction" in words
    assert "--client-cert-auth" in words
    keys = [file.read_text() for file in tmp_path.rglob("*.key")]
    assert len(keys) > 8
    assert not [word for word in words if any(key.splitlines()[1] in word for key in keys)]
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.rglob("*.kubeconfig")} == {0o600}


@pytest.mark.usefixtures("state_home")
def test_nodes_are_named_as_kind_names_them_and_found_by_the_end_of_their_name() -> None:
    cluster = Cluster(Settings("demo", slot=1, workers=3, slurm="26.05"), BINARIES)
    names = ["demo-control-plane", "demo-worker", "demo-worker2", "demo-worker3"]
    assert [each.name for each in cluster.nodes] == names
    assert cluster.node("worker2") is cluster.node("demo-worker2") is cluster.nodes[2]
    assert cluster.nodes[0].is_control_plane
    with pytest.raises(Terminal, match=r"no node 'worker4'\n  → choose one of: demo-control-plane, demo-worker, "):
        cluster.node("worker4")

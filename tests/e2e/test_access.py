"""What administrators and tools do with a cluster: exec, logs, cp, port-forward, metrics, helm, roles."""

import http.client
import re
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.local.addresses import Addresses
from tests.bed.cluster import ClusterBed
from tests.bed.waiting import eventually
from tests.e2e.pods import web


@pytest.fixture(scope="module")
def served(cluster: ClusterBed) -> Iterator[str]:
    """A web server in a namespace of this module."""
    cluster.make_namespace("access")
    cluster.kubectl("apply", "--namespace=access", "--filename=-", stdin=web("web"))
    cluster.kubectl("wait", "--namespace=access", "--for=condition=Ready", "pod/web", "--timeout=180s")
    yield "access"
    cluster.kubectl("delete", "namespace", "access", "--wait=false")


def test_exec_runs_in_the_pod(cluster: ClusterBed, served: str) -> None:
    assert cluster.kubectl("exec", "web", f"--namespace={served}", "--", "hostname") == "web\n"


def test_logs_show_what_the_pod_printed(cluster: ClusterBed, served: str) -> None:
    cluster.exec(
        "web", "python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/')", namespace=served
    )
    logs = ("logs", "web", f"--namespace={served}")
    eventually(
        lambda: cluster.kubectl(*logs), "the request in the log", holds=lambda it: '"GET / HTTP/1.1" 200' in it
    )


def test_cp_copies_both_ways(cluster: ClusterBed, served: str, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("and back")
    cluster.kubectl("cp", f"--namespace={served}", str(tmp_path / "there"), "web:/tmp/there")
    cluster.kubectl("cp", f"--namespace={served}", "web:/tmp/there", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "and back"


def test_port_forward_reaches_the_pod(cluster: ClusterBed, served: str) -> None:
    words = [*cluster.cluster.kubectl, "port-forward", f"--namespace={served}", "pod/web", ":8080"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout
            found = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())
            assert found
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"web\n"
            connection.close()
        finally:
            forward.terminate()


def test_metrics_of_every_part_can_be_read(cluster: ClusterBed) -> None:
    plane = cluster.cluster.plane
    context = ssl.create_default_context(cafile=str(plane.authority.certificate))
    admin = plane.authority.issue("admin", "kubernetes-admin", groups=("system:masters",))
    context.load_cert_chain(admin.certificate, admin.key)
    etcd = plane.client_context(plane.etcd_authority)
    dns = Addresses(cluster.cluster.settings.slot).dns_service
    node = cluster.cluster.nodes[1].address
    parts = {
        f"{plane.url}/metrics": (context, "apiserver_request_total"),
        f"https://{plane.address}:10257/metrics": (context, "workqueue_depth"),
        f"https://{plane.address}:10259/metrics": (context, "scheduler_pending_pods"),
        f"{plane.etcd_http_url}/metrics": (etcd, "etcd_server_has_leader"),
        f"https://{node}:10250/metrics": (context, "kubelet_running_pods"),
        f"http://{node}:10249/metrics": (None, "kubeproxy_sync_proxy_rules_duration_seconds"),
        f"http://{dns}:9153/metrics": (None, "coredns_dns_requests_total"),
    }
    for url, (trust, metric) in parts.items():
        with urllib.request.urlopen(url, timeout=60, context=trust) as answer:  # noqa: S310 - our own servers
            assert metric in answer.read().decode(), url


def test_strangers_read_nothing(cluster: ClusterBed) -> None:
    plane = cluster.cluster.plane
    nobody = ssl.create_default_context(cafile=str(plane.authority.certificate))
    for url in (f"{plane.url}/api/v1/secrets", f"https://{cluster.cluster.nodes[1].address}:10250/pods"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=60, context=nobody)  # noqa: S310 - our own servers
        assert refused.value.code in (401, 403)
        refused.value.close()


def test_a_kubelet_may_change_its_own_node_only(cluster: ClusterBed) -> None:
    mine, other = cluster.workers[:2]
    config = cluster.cluster.directory / f"kubelet-{mine}.kubeconfig"
    kubectl = [cluster.cluster.kubectl[0], f"--kubeconfig={config}", "label", "--overwrite", "node"]
    allowed = subprocess.run([*kubectl, mine, "example.com/tried=1"], check=False, capture_output=True, text=True)
    assert allowed.returncode == 0, allowed.stderr
    refused = subprocess.run([*kubectl, other, "example.com/tried=1"], check=False, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "is not allowed to modify node" in refused.stderr or "forbidden" in refused.stderr.lower()


def test_pod_groups_of_kubernetes_itself_are_served(cluster: ClusterBed) -> None:
    served = cluster.kubectl("api-resources", "--api-group=scheduling.k8s.io", "-o", "name")
    assert "podgroups.scheduling.k8s.io" in served
    assert "workloads.scheduling.k8s.io" in served

"""Pods on different nodes reach each other in every way that Kubernetes offers, and nobody outside."""

import http.client
import socket

import pytest

from tests.bed.cluster import ClusterBed
from tests.bed.commands import CommandError
from tests.bed.waiting import eventually
from tests.e2e.pods import pod, web

_GET = "import sys,urllib.request as u; print(u.urlopen(sys.argv[1], timeout=30).read().decode().strip())"


@pytest.fixture(scope="module")
def server(cluster: ClusterBed) -> str:
    """A web server on the first worker, a client on the second, and Services of each type."""
    cluster.make_namespace("network")
    first, second = cluster.workers[:2]
    services = """
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: network}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless, namespace: network}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: network}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
"""
    client = web("client", node=second)
    cluster.kubectl("apply", "--namespace=network", "--filename=-", stdin=web("web", node=first) + "\n---" + client)
    cluster.apply(services)
    cluster.kubectl(
        "wait", "--namespace=network", "--for=condition=Ready", "pod/web", "pod/client", "--timeout=180s"
    )
    return cluster.kubectl("get", "pod", "web", "--namespace=network", "-o", "jsonpath={.status.podIP}")


def _fetch(cluster: ClusterBed, url: str, *, by: str = "client") -> str:
    """Fetch a page, by default from the pod on the other node; a Service needs a moment for its rules."""
    return eventually(
        lambda: cluster.exec(by, "python3", "-c", _GET, url, namespace="network").strip(),
        f"an answer from {url}",
    )


def test_a_pod_reaches_a_pod_of_another_node_by_address(cluster: ClusterBed, server: str) -> None:
    assert _fetch(cluster, f"http://{server}:8080/") == "web"


def test_a_service_is_reached_by_address(cluster: ClusterBed, server: str) -> None:
    assert server
    address = cluster.kubectl("get", "service", "web", "--namespace=network", "-o", "jsonpath={.spec.clusterIP}")
    assert _fetch(cluster, f"http://{address}/") == "web"


@pytest.mark.parametrize("name", ["web", "web.network", "web.network.svc.cluster.local", "headless:8080"])
def test_a_service_is_reached_by_name(cluster: ClusterBed, server: str, name: str) -> None:
    assert server
    assert _fetch(cluster, f"http://{name}/") == "web"


def test_a_pod_reaches_itself_through_its_service(cluster: ClusterBed, server: str) -> None:
    assert server
    assert _fetch(cluster, "http://web.network/", by="web") == "web"  # its own name is its own address


def test_a_headless_service_names_the_pods_themselves(cluster: ClusterBed, server: str) -> None:
    look_up = "import socket; print(socket.gethostbyname('headless.network.svc.cluster.local'))"
    eventually(
        lambda: cluster.exec("client", "python3", "-c", look_up, namespace="network").strip(),
        "the name to lead to the pod",
        holds=lambda it: it == server,
    )


def test_a_node_port_answers_on_every_node(cluster: ClusterBed, server: str) -> None:
    assert server
    for node in cluster.cluster.nodes:  # each has its own kube-proxy, which learns of the Service in its own time
        eventually(lambda: _answers(node.address, 30080), f"an answer from {node.name}")  # noqa: B023 - now
        connection = http.client.HTTPConnection(node.address, 30080, timeout=30)
        connection.request("GET", "/")
        assert connection.getresponse().read().decode().strip() == "web"
        connection.close()


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=30):
            return True
    except OSError:
        return False


def test_the_host_reaches_pods_and_services(cluster: ClusterBed, server: str) -> None:
    service = cluster.kubectl("get", "service", "web", "--namespace=network", "-o", "jsonpath={.spec.clusterIP}")
    for where in ((server, 8080), (service, 80)):
        eventually(lambda: _answers(*where), f"an answer from {where}")  # noqa: B023 - now


def test_no_node_has_a_way_out_of_the_machine(cluster: ClusterBed) -> None:
    for machine in (cluster.cluster.switch, *(node.machine for node in cluster.cluster.nodes)):
        routes = machine.run("ip", "route").splitlines()
        assert routes or machine is cluster.cluster.switch
        assert not [line for line in routes if not line.startswith("198.18.")], machine.hostname


def test_the_host_port_of_a_pod_is_open_on_its_node(cluster: ClusterBed, namespace: str) -> None:
    more = "      ports: [{containerPort: 8080, hostPort: 28080}]\n"
    manifest = web("hostport", node=cluster.workers[0]) + more
    cluster.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=manifest)
    cluster.kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", "pod/hostport", "--timeout=180s")
    with socket.create_connection((cluster.cluster.nodes[1].address, 28080), timeout=60):
        pass


def test_the_api_server_reaches_admission_webhooks_by_their_service(cluster: ClusterBed, namespace: str) -> None:
    # The pod speaks plain HTTP: that the API server complains of it shows that it got through.
    cluster.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=web("hook") + _HOOK_SERVICE)
    cluster.kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", "pod/hook", "--timeout=180s")
    cluster.apply(_WEBHOOK.format(namespace=namespace))
    try:
        eventually(
            lambda: _refusal(cluster, namespace),
            "the webhook's pod to be found",
            holds=lambda it: "tls: first record" in it,
        )
    finally:
        cluster.kubectl("delete", "validatingwebhookconfiguration", f"hook-{namespace}")


def _refusal(cluster: ClusterBed, namespace: str) -> str:
    """What is said against a ConfigMap; nothing as long as the API server has not heard of the webhook."""
    try:
        cluster.kubectl("create", "configmap", "x", f"--namespace={namespace}", "--dry-run=server")
    except CommandError as refused:
        return str(refused)
    return ""


_HOOK_SERVICE = """
---
apiVersion: v1
kind: Service
metadata: {name: hook}
spec: {selector: {app: hook}, ports: [{port: 443, targetPort: 8080}]}
"""
_WEBHOOK = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: hook-{namespace}}}
webhooks:
  - name: hook.isthmus.test
    admissionReviewVersions: [v1]
    sideEffects: None
    clientConfig: {{service: {{name: hook, namespace: {namespace}}}}}
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
    rules: [{{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]
"""


def test_pods_may_not_be_placed_on_the_control_plane(cluster: ClusterBed, namespace: str) -> None:
    taints = cluster.kubectl("get", "node", cluster.cluster.nodes[0].name, "-o", "jsonpath={.spec.taints[*].key}")
    assert "node-role.kubernetes.io/control-plane" in taints
    manifest = pod("picky", more="  nodeSelector: {node-role.kubernetes.io/control-plane: ''}\n")
    cluster.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=manifest)
    cluster.kubectl(
        "wait", f"--namespace={namespace}", "--for=condition=PodScheduled=False", "pod/picky", "--timeout=180s"
    )

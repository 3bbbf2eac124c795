"""Prometheus, Alertmanager and metrics-server in a local cluster, for `isthmus up --monitoring`.

Who asks whom:

    kubelets, API server, annotated pods and services ◀── Prometheus ──▶ Alertmanager      namespace monitoring
    kubelets ◀── metrics-server ◀── API server ◀── kubectl top                             namespace kube-system
"""

import base64
import hashlib
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from isthmus.local import resources, shell, supply
from isthmus.local.cluster import Cluster
from isthmus.local.images.recipes import reference
from isthmus.local.parallel import for_each
from isthmus.local.pki import Authority, Pair
from isthmus.local.progress import Progress

STEP = "Add monitoring"
PROMETHEUS_PORT = 30090
ALERTMANAGER_PORT = 30093
NAMESPACE = "monitoring"
RULES = "isthmus-rules"
"""The ConfigMap whose keys `*.yaml` are the rule files of Prometheus."""
_MANIFESTS = Path(__file__).parent / "manifests" / "monitoring"
_READY_WITHIN = 300
_DEPLOYMENTS = (("prometheus", NAMESPACE), ("alertmanager", NAMESPACE), ("metrics-server", "kube-system"))


def install(cluster: Cluster, progress: Progress) -> None:
    """Bring monitoring into a running cluster, or up to date there, and wait until it serves."""
    images = supply.images(supply.MONITORING, progress, ready=supply.given(cluster.settings))
    with progress.step(STEP):
        cluster.load_images(images)
        kubectl = cluster.kubectl
        made = objects(cluster.plane.authority, with_rules=not _helm_has_rules(kubectl))
        manifest = yaml.safe_dump_all(made)
        shell.run([*kubectl, "apply", "--server-side", "--force-conflicts", "--filename=-"], stdin=manifest)
        _renew_mounts(kubectl)
        for_each(_DEPLOYMENTS, lambda deployment: _wait(kubectl, *deployment))
        served = ("apiservice/v1beta1.metrics.k8s.io", "--for=condition=Available", f"--timeout={_READY_WITHIN}s")
        shell.run([*kubectl, "wait", *served], remedy="isthmus kubectl describe apiservice v1beta1.metrics.k8s.io")


def addresses(cluster: Cluster) -> dict[str, str]:
    """Where the host reaches Prometheus and Alertmanager, if they are wanted: node ports of the control plane."""
    if not cluster.settings.monitoring:
        return {}
    node = cluster.addresses.node(0)
    return {
        "Prometheus": f"http://{node}:{PROMETHEUS_PORT}",
        "Alertmanager": f"http://{node}:{ALERTMANAGER_PORT}",
    }


def objects(authority: Authority, *, with_rules: bool = True) -> list[dict[str, Any]]:
    """All objects of monitoring. The namespace and what others refer to come first."""
    scrapes, alerts = (_read(name) for name in ("prometheus.yml", "alertmanager.yml"))
    service = "metrics-server.kube-system.svc"
    serving = authority.issue("metrics-server", "metrics-server", hosts=(service,))
    values = {
        "prometheus": reference("prometheus"),
        "prometheus_port": PROMETHEUS_PORT,
        "alertmanager_port": ALERTMANAGER_PORT,
        "alertmanager_hash": _digest(alerts),
        "metrics_server": reference("metrics-server"),
        "authority": _base64(authority.certificate),
    }
    texts = [string.Template(_read(name)).substitute(values) for name in ("prometheus.yaml", "metrics-server.yaml")]
    documents = [document for text in texts for document in yaml.safe_load_all(text)]
    namespace, others = documents[0], documents[1:]
    return [
        namespace,
        _config_map("prometheus", {"prometheus.yml": scrapes}),
        _config_map("alertmanager", {"alertmanager.yml": alerts}),
        *([_config_map(RULES, chart_rules())] if with_rules else []),
        _tls_secret(serving),
        *others,
    ]


def chart_rules() -> dict[str, str]:
    """The alerts of the chart isthmus-monitoring, under the key at which it puts them itself."""
    return {"isthmus.yaml": (resources.chart("isthmus-monitoring") / "files" / "rules.yaml").read_text()}


def _helm_has_rules(kubectl: tuple[str, ...]) -> bool:
    """Whether the chart was installed here: thresholds that somebody chose are not replaced by the defaults."""
    label = r"--output=jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by}"
    words = ("get", "configmap", RULES, f"--namespace={NAMESPACE}", "--ignore-not-found", label)
    return shell.run([*kubectl, *words]) == "Helm"


def _renew_mounts(kubectl: tuple[str, ...]) -> None:
    """Make kubelet mount what changed: it looks at a pod once a minute, and at one that changes immediately."""
    changed = f"isthmus.local/mounts={_digest(_read('prometheus.yml'), *chart_rules().values())}"
    pods = (f"--namespace={NAMESPACE}", "pods", "--selector=app.kubernetes.io/name=prometheus")
    shell.run([*kubectl, "annotate", *pods, "--overwrite", changed])


def _wait(kubectl: tuple[str, ...], name: str, namespace: str) -> None:
    words = ("rollout", "status", f"deployment/{name}", f"--namespace={namespace}", f"--timeout={_READY_WITHIN}s")
    shell.run([*kubectl, *words], remedy=f"isthmus kubectl describe pods --namespace={namespace}")


def _config_map(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": dict(data),
    }


def _tls_secret(pair: Pair) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "metrics-server", "namespace": "kube-system"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": _base64(pair.certificate), "tls.key": _base64(pair.key)},
    }


def _read(name: str) -> str:
    return (_MANIFESTS / name).read_text()


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]

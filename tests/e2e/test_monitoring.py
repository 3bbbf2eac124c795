"""`isthmus up --monitoring` on a running cluster: kubectl top, what Prometheus scrapes, rules that fire."""

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import yaml

from isthmus.local import monitoring, state
from tests.bed.cluster import ClusterBed
from tests.bed.waiting import eventually
from tests.e2e.command import isthmus
from tests.e2e.pods import PYTHON, pod
from tests.unit.monitoring import expressions

NAMESPACE = "monitored"
_TESTED = f'tested_value{{namespace="{NAMESPACE}"}} == 42'
_SERVE = "cd /data && echo tested_value 42 > {name}.txt && exec python3 -m http.server 8080"
_CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
"""
_SERVICE = """
apiVersion: v1
kind: Service
metadata:
  name: behind
  annotations: {prometheus.io/scrape: "true", prometheus.io/port: "8080", prometheus.io/path: /service.txt}
spec:
  selector: {app: service}
  ports: [{port: 80, targetPort: 8080}]
"""
_FIRES = 'ALERTS{alertname="StateFullNow",alertstate="firing"}'
_CLAIMED = "statesave-slurm-controller-0"
_SMALL = "/run/small-volume"
_STATE = """
apiVersion: v1
kind: PersistentVolume
metadata: {{name: small}}
spec:
  capacity: {{storage: 8Mi}}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  claimRef: {{namespace: {namespace}, name: {claim}}}
  local: {{path: {path}}}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{node}]}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {claim}}}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  volumeName: small
  resources: {{requests: {{storage: 8Mi}}}}
"""
_FULL = "head -c 7900000 /dev/zero > /data/ballast; exec sleep infinity"
_ANNOTATIONS = "prometheus.io/scrape=true prometheus.io/port=8080 prometheus.io/path=/pod.txt"


@dataclass(frozen=True)
class Monitored:
    """A cluster with monitoring, and what `up` said about where it is."""

    cluster: ClusterBed
    prometheus: str
    alertmanager: str

    def query(self, expression: str) -> list[Any]:
        """The series of an expression, as Prometheus evaluates it now."""
        found = _read(f"{self.prometheus}/api/v1/query?query={quote(expression)}")
        return list(found["data"]["result"])

    def alerts(self) -> list[str]:
        """The names of the alerts that Alertmanager has."""
        return [alert["labels"]["alertname"] for alert in _read(f"{self.alertmanager}/api/v2/alerts")]


def _read(url: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def monitored(cluster: ClusterBed) -> Iterator[Monitored]:
    """The shared cluster with monitoring and two pods to look at, until the tests of this module have ended."""
    node = cluster.workers[0]
    pods = [_serving(name) for name in ("pod", "service")]
    pods += [_STATE.format(namespace=NAMESPACE, claim=_CLAIMED, path=_SMALL, node=node), _with_state(node)]
    cluster.make_namespace(NAMESPACE)
    _on(cluster, node, f"mkdir {_SMALL}; mount -t tmpfs -o size=8m small {_SMALL}")
    there = f"--namespace={NAMESPACE}"
    cluster.kubectl("apply", there, "--filename=-", stdin="\n---".join([_CLAIM, _SERVICE, *pods]))
    cluster.kubectl("annotate", there, "pod/pod", *_ANNOTATIONS.split())
    done = isthmus("up", "--name", cluster.name, "--monitoring")
    assert done.returncode == 0, done.stderr
    _add_rules(cluster)
    said = dict(re.findall(r"(\w+): (http://\S+)", done.stdout))
    try:
        yield Monitored(cluster, said["Prometheus"], said["Alertmanager"])
    finally:
        _remove(cluster)
        _on(cluster, node, f"umount --lazy {_SMALL}; rmdir {_SMALL}")


def _on(cluster: ClusterBed, node: str, script: str) -> None:
    """Run a script on a node."""
    done = isthmus("node", "exec", "--name", cluster.name, node, "--", "sh", "-euc", script)
    assert done.returncode == 0, done.stderr


def _add_rules(cluster: ClusterBed) -> None:
    """Add a rule about a metric of ours, and the chart's of full volumes, without its patience of five minutes."""
    (full,) = (it["expr"] for it in expressions.alerts() if it["alert"] == "IsthmusStateDiskFull")
    rules = [{"alert": "TestedValue", "expr": f"count({_TESTED}) == 2"}, {"alert": "StateFullNow", "expr": full}]
    text = yaml.safe_dump({"groups": [{"name": "tested", "interval": "1s", "rules": rules}]})
    where = f"--namespace={monitoring.NAMESPACE}"
    patch = json.dumps({"data": {"tested.yaml": text}})
    cluster.kubectl("patch", "configmap", monitoring.RULES, where, "--type=merge", f"--patch={patch}")
    # Kubelet renews what is mounted within a minute, and immediately in a pod that changes.
    selected = ("pods", "--selector=app.kubernetes.io/name=prometheus")
    cluster.kubectl("annotate", where, *selected, "tested=yes")


def _serving(name: str) -> str:
    """A pod that serves a metric from its volume."""
    mounted = "      volumeMounts: [{name: data, mountPath: /data}]\n"
    volumes = "  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n"
    return pod(name, command=_SERVE.format(name=name), image=PYTHON, more=mounted + volumes)


def _with_state(node: str) -> str:
    """A pod with a volume of slurmctld's state, which is nearly full."""
    mounted = "      volumeMounts: [{name: state, mountPath: /data}]\n"
    volumes = f"  volumes: [{{name: state, persistentVolumeClaim: {{claimName: {_CLAIMED}}}}}]\n"
    return pod("state", node=node, command=_FULL, more=mounted + volumes)


def _remove(cluster: ClusterBed) -> None:
    settings = state.load(cluster.name)
    state.save(msgspec.structs.replace(settings, monitoring=False))
    # The API that metrics-server serves goes first: a namespace is not removed while one does not answer.
    made = [*reversed(monitoring.objects(cluster.cluster.plane.authority))]
    words = ("delete", "--ignore-not-found", "--wait=false", "--filename=-")
    cluster.kubectl(*words, stdin=yaml.safe_dump_all(made))
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    cluster.kubectl("delete", "persistentvolume", "small", "--wait=false")


def test_a_rule_that_is_added_fires_and_reaches_alertmanager(monitored: Monitored) -> None:
    # The rule has no effect until its metric is there: by the annotations of a pod, and of a Service.
    eventually(monitored.alerts, "the alert", holds=lambda it: "TestedValue" in it)
    labels = [series["metric"] for series in monitored.query(_TESTED)]
    assert {it["pod"]: it["job"] for it in labels} == {"pod": "pods", "service": "behind"}


def test_a_full_volume_of_slurmctlds_state_is_an_alert(monitored: Monitored) -> None:
    (told,) = eventually(lambda: monitored.query(_FIRES), "the alert")
    assert told["metric"]["persistentvolumeclaim"] == _CLAIMED
    _make_room(monitored)  # what follows from it is seen last: kubelet measures volumes every minute or two


def test_everything_is_scraped_and_no_rule_fails(monitored: Monitored) -> None:
    def health() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for target in _read(f"{monitored.prometheus}/api/v1/targets?state=active")["data"]["activeTargets"]:
            found.setdefault(target["labels"]["job"], set()).add(
                f"{target['health']} {target['lastError']}".strip()
            )
        return found

    cluster_jobs = {"apiserver", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns"}
    wanted = cluster_jobs | {"prometheus", "alertmanager", "pods", "behind"}
    eventually(
        health,
        "all targets to be up",
        holds=lambda it: wanted <= it.keys() and all(it[job] == {"up"} for job in wanted),
    )
    eventually(
        lambda: monitored.query('count(up{job="kubelet", metrics_path="/metrics/cadvisor"} == 1)'),
        "cadvisor of every node",
        holds=lambda it: [int(one["value"][1]) for one in it] == [len(monitored.cluster.cluster.nodes)],
    )
    groups = _read(f"{monitored.prometheus}/api/v1/rules")["data"]["groups"]
    failing = [rule["name"] for group in groups for rule in group["rules"] if rule.get("lastError")]
    assert not failing


def test_top_shows_nodes_and_pods(monitored: Monitored) -> None:
    usage = re.compile(r"^(\S+) +\d+m +\d+% +\d+Mi +\d+%", re.MULTILINE)
    nodes = {node.name for node in monitored.cluster.cluster.nodes}
    eventually(
        lambda: monitored.cluster.kubectl("top", "nodes", "--no-headers"),
        "the usage of every node",
        holds=lambda it: set(usage.findall(it)) == nodes,
    )
    eventually(
        lambda: monitored.cluster.kubectl("top", "pods", "--all-namespaces", "--no-headers"),
        "the usage of pods",
        holds=lambda it: all(
            re.search(rf"^{namespace} +{name}\S* +\d+m +[1-9]\d*Mi", it, re.MULTILINE)
            for namespace, name in (("monitoring", "prometheus"), ("kube-system", "coredns"), (NAMESPACE, "pod"))
        ),
    )


def test_volumes_have_the_size_of_the_disk_they_are_on(monitored: Monitored) -> None:
    # Kubelet measures volumes once a minute.
    found = eventually(
        lambda: monitored.query(
            f'kubelet_volume_stats_capacity_bytes{{namespace="{NAMESPACE}",persistentvolumeclaim="data"}}'
        ),
        "the volume's statistics",
    )
    disk = os.statvfs(monitored.cluster.cluster.directory / "volumes")
    assert {int(series["value"][1]) for series in found} == {disk.f_blocks * disk.f_frsize}


def test_status_says_where_prometheus_is(monitored: Monitored) -> None:
    assert f"Prometheus {monitored.prometheus}" in isthmus("status", "--name", monitored.cluster.name).stdout
    assert "monitoring" in isthmus("addon", "list").stdout


def test_the_alert_of_a_full_volume_ends_when_there_is_room(monitored: Monitored) -> None:
    _make_room(monitored)
    eventually(lambda: monitored.query(_FIRES), "the end of the alert", holds=lambda it: not it)
    assert monitored.query(f'kubelet_volume_stats_available_bytes{{persistentvolumeclaim="{_CLAIMED}"}}')


def _make_room(monitored: Monitored) -> None:
    monitored.cluster.exec("state", "rm", "-f", "/data/ballast", namespace=NAMESPACE)

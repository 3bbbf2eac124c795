"""Claims of each mode are bound; what is shared is seen from every node; what is deleted is gone from the disk."""

import pytest

from tests.bed.cluster import ClusterBed
from tests.bed.waiting import eventually
from tests.e2e.pods import pod

_CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  accessModes: [{mode}]
  {storage_class}
  resources: {{requests: {{storage: 1Gi}}}}
"""


def _claim(name: str, mode: str, storage_class: str = "") -> str:
    return _CLAIM.format(
        name=name, mode=mode, storage_class=f"storageClassName: {storage_class}" if storage_class else ""
    )


def _user(name: str, claim: str, *, node: str = "") -> str:
    mounted = "      volumeMounts: [{name: data, mountPath: /data}]\n"
    volumes = f"  volumes: [{{name: data, persistentVolumeClaim: {{claimName: {claim}}}}}]\n"
    return pod(name, node=node, more=mounted + volumes)


def _apply(cluster: ClusterBed, namespace: str, *manifests: str) -> None:
    cluster.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin="\n---".join(manifests))


def _wait(cluster: ClusterBed, namespace: str, *pods: str) -> None:
    names = [f"pod/{name}" for name in pods]
    cluster.kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", *names, "--timeout=180s")


def test_a_shared_claim_is_one_directory_on_all_nodes(cluster: ClusterBed, namespace: str) -> None:
    first, second = cluster.workers[:2]
    claim = _claim("shared", "ReadWriteMany")
    _apply(cluster, namespace, claim, _user("writer", "shared", node=first), _user("reader", "shared", node=second))
    _wait(cluster, namespace, "writer", "reader")
    cluster.exec("writer", "sh", "-c", "echo across > /data/note", namespace=namespace)
    assert cluster.exec("reader", "cat", "/data/note", namespace=namespace) == "across\n"


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"])
def test_claims_of_other_modes_are_bound(cluster: ClusterBed, namespace: str, mode: str) -> None:
    _apply(cluster, namespace, _claim("other", mode))
    cluster.kubectl(
        "wait", f"--namespace={namespace}", "--for=jsonpath={.status.phase}=Bound", "pvc/other", "--timeout=180s"
    )


def test_a_local_claim_waits_for_its_pod_and_stays_on_its_node(cluster: ClusterBed, namespace: str) -> None:
    _apply(cluster, namespace, _claim("local", "ReadWriteOnce", "local"))
    eventually(
        lambda: [it["reason"] for it in cluster.get("events", namespace)["items"]],
        "Kubernetes to say that the claim waits",
        holds=lambda it: "WaitForFirstConsumer" in it,
    )
    assert cluster.get("pvc/local", namespace)["status"]["phase"] == "Pending"
    chosen = cluster.workers[1]
    selector = f"  nodeSelector: {{kubernetes.io/hostname: {chosen}}}\n"
    _apply(cluster, namespace, _user("first", "local") + selector)
    _wait(cluster, namespace, "first")
    cluster.kubectl("delete", "pod", "first", f"--namespace={namespace}")
    _apply(cluster, namespace, _user("second", "local"))
    _wait(cluster, namespace, "second")
    where = cluster.kubectl("get", "pod", "second", f"--namespace={namespace}", "-o", "jsonpath={.spec.nodeName}")
    assert where == chosen


def test_deleting_a_claim_removes_its_volume_and_directory(cluster: ClusterBed, namespace: str) -> None:
    _apply(cluster, namespace, _claim("gone", "ReadWriteMany"), _user("user", "gone"))
    _wait(cluster, namespace, "user")
    cluster.exec("user", "touch", "/data/file", namespace=namespace)
    volume = cluster.kubectl("get", "pvc", "gone", f"--namespace={namespace}", "-o", "jsonpath={.spec.volumeName}")
    directory = cluster.cluster.directory / "volumes" / volume
    assert (directory / "file").exists()
    cluster.kubectl("delete", "pod/user", "pvc/gone", f"--namespace={namespace}")
    eventually(lambda: not directory.exists(), "the directory of the volume to go")
    cluster.kubectl("wait", "--for=delete", f"pv/{volume}", "--timeout=180s")

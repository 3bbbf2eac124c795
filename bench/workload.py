"""Pods as a busy cluster has them: two containers, tolerations, volumes, conditions, managedFields; 7 KB each.

They are made through the API, on a control plane without nodes or controllers, so that nothing changes by itself.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

from isthmus.kube.client import Client
from isthmus.kube.errors import AlreadyExists
from isthmus.model.base import Kind
from isthmus.model.meta import Key, Partial
from isthmus.model.pod import PODS

NAMESPACES = Kind(Partial, "v1", "namespaces", "Namespace", namespaced=False)
SERVICE_ACCOUNTS = Kind(Partial, "v1", "serviceaccounts", "ServiceAccount")

_DAY = "2026-11-01T12:00:00Z"


async def make_namespace(client: Client, name: str) -> None:
    """Make a namespace and the account that its pods run under, which a controller would have made."""
    if name != "default":
        await client.create(NAMESPACES, {"metadata": {"name": name}})
    try:
        await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": name}})
    except AlreadyExists:
        return


async def make_pods(client: Client, namespace: str, count: int, *, running: bool, nodes: int = 0) -> list[Key]:
    """Make so many pods; with `running`, with the status that a kubelet would have given them.

    With `nodes`, each is on one of so many nodes from the start, none of which there is.
    """
    keys = [Key(namespace, f"train-{number:05d}") for number in range(count)]
    pods = [_pod(key) for key in keys]
    for number, pod in enumerate(pods if nodes else ()):
        pod["spec"]["nodeName"] = f"elsewhere-{number % nodes + 1}"
    await all_of(client.create(PODS, pod) for pod in pods)
    if running:
        await all_of(client.merge_patch(PODS, key, {"status": _status()}, subresource="status") for key in keys)
    return keys


async def relabel(client: Client, keys: Iterable[Key], value: str) -> None:
    """Change every pod once."""
    patch = {"metadata": {"labels": {"round": value}}}
    await all_of(client.merge_patch(PODS, key, patch) for key in keys)


async def all_of(calls: Iterable[Awaitable[Any]]) -> None:
    """Await all; the client sees to it that not too many run at once."""

    async def one(call: Awaitable[Any]) -> None:
        await call

    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(one(call))


def _pod(key: Key) -> dict[str, Any]:
    return {
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {
                "app.kubernetes.io/name": "train",
                "app.kubernetes.io/instance": "experiment-7",
                "batch.kubernetes.io/job-name": "train",
                "batch.kubernetes.io/job-completion-index": key.name.rpartition("-")[2],
            },
            "annotations": {
                "example.org/submitted-by": "alice@example.org",
                "example.org/dataset": "s3://datasets/imagenet/2026-10/part-00017-of-01024",
            },
        },
        "spec": {
            "schedulerName": "somebody-else",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "priority": 0,
            "nodeSelector": {"kubernetes.io/os": "linux", "example.org/pool": "gpu"},
            "tolerations": [
                {"key": "example.org/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "example.org/pool", "operator": "Equal", "value": "train", "effect": "NoExecute"},
            ],
            "containers": [_container("trainer", key), _container("metrics", key)],
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}},
            ],
        },
    }


def _container(name: str, key: Key) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"registry.example.org/research/{name}:v2026.10.3",
        "command": ["python", "-m", f"research.{name}", "--experiment", "experiment-7", "--rank", key.name],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NCCL_DEBUG", "value": "INFO"},
        ],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"cpu": "8", "memory": "32Gi"}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}, {"name": "data", "mountPath": "/data"}],
    }


def _status() -> dict[str, Any]:
    return {
        "phase": "Running",
        "hostIP": "198.18.100.11",
        "podIP": "198.18.111.7",
        "startTime": _DAY,
        "conditions": [
            {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": _DAY}
            for name in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "name": name,
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": f"registry.example.org/research/{name}:v2026.10.3",
                "imageID": f"registry.example.org/research/{name}@sha256:{'5f' * 32}",
                "state": {"running": {"startedAt": _DAY}},
            }
            for name in ("trainer", "metrics")
        ],
    }

"""The doctor on a real API server with the whole operator: faults that need no nodes, injected one by one.

Pods stay Pending, as in a cluster whose scheduler is away; where a fault is theirs, the test says what the
scheduler would. What is found is the fault, and nothing besides.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from isthmus.domain.diagnosis import Finding
from isthmus.inspect import doctor
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.errors import ApiError, NotFound
from isthmus.model.base import Kind
from isthmus.model.health import HEALTH_POLICIES
from isthmus.model.jailedconfig import JAILED_CONFIGS
from isthmus.model.lease import LEASES
from isthmus.model.meta import Key, Partial
from isthmus.model.node import NODES
from isthmus.model.nodeconfigurator import NODE_CONFIGURATORS
from isthmus.model.objects import SECRETS, SERVICES
from isthmus.model.pod import PODS
from isthmus.model.slinky import CONTROLLERS, LOGINSETS, RESTAPIS, TOKENS
from isthmus.model.soperator import NEBIUS_NODESETS, SLURM_CLUSTERS
from isthmus.model.storage import CLAIMS
from isthmus.operator.accountings import AccountingSync
from isthmus.operator.applier import Applier
from isthmus.operator.loginsets import LoginSetSync
from isthmus.operator.restapis import RestApiSync
from isthmus.operator.statuswriter import Reporter
from isthmus.processes.operator import LEASE_LABELS, PARTS
from isthmus.runtime.metrics import Metrics
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.conftest import NAMESPACES
from tests.flows.operator.jailed_bed import CLUSTER, JailedBed
from tests.flows.operator.nodesets_bed import PLACES
from tests.flows.operator.parts_bed import (
    JWT_KEY,
    JWT_KEY_REF,
    LIMIT,
    SLURM_KEY,
    SLURM_KEY_REF,
    a_minute_later,
)
from tests.flows.working import at_work, seated

POLICIES: Kind[Partial] = Kind(
    Partial,
    "admissionregistration.k8s.io/v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
POLICY_BINDINGS: Kind[Partial] = Kind(
    Partial,
    "admissionregistration.k8s.io/v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
_RBAC = "rbac.authorization.k8s.io/v1"
CLUSTER_ROLES: Kind[Partial] = Kind(Partial, _RBAC, "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_BINDINGS: Kind[Partial] = Kind(
    Partial, _RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
QUOTAS: Kind[Partial] = Kind(Partial, "v1", "resourcequotas", "ResourceQuota")
NOWHERE: dict[str, Any] = {"emptyDir": {}}
IMPATIENT = frozenset({AccountingSync, LoginSetSync, RestApiSync})
"""Whose clock is ahead, so that nobody waits for them to lose patience."""


class Bed:
    """A namespace that the operator looks after, and the doctor, too."""

    def __init__(self, kube: Client, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace

    def meta(self, name: str, **more: Any) -> dict[str, Any]:
        return {"namespace": self.namespace, "name": name, **more}

    async def cluster(self, *, nodes: dict[str, Any] | None = None, **spec: Any) -> None:
        """Make a cluster that needs no storage, with one worker."""
        volumes = [{"name": "jail", **NOWHERE}, {"name": "state", **NOWHERE}]
        usual = {
            "controller": {"volumes": {"spool": {"volumeSourceName": "state"}}},
            "worker": {"size": 1, "resources": {"memory": "1Gi"}},
        }
        given = {"volumeSources": volumes, "slurmNodes": {**usual, **(nodes or {})}, **spec}
        await self.kube.create(SLURM_CLUSTERS, {"metadata": self.meta(CLUSTER), "spec": given})

    async def findings(self, *, later: float = 0.0) -> tuple[Finding, ...]:
        report = await doctor.examine(self.kube, namespace=self.namespace, now=time.time() + later)
        return report.findings

    async def finds(self, area: str, what: str, *, saying: str, later: float = 0.0) -> None:
        """Wait until the doctor finds this and nothing else, as it would so many seconds later."""
        found: tuple[Finding, ...] = ()
        try:
            async with asyncio.timeout(LIMIT):
                while True:
                    found = await self.findings(later=later)
                    if [(it.area, it.what) for it in found] == [(area, what)] and saying in found[0].why:
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"the doctor finds {found}") from None

    async def unplaced(self, pod: str, message: str) -> None:
        """Say of a pod what the Kubernetes scheduler would."""
        key = await self.there(pod)
        held = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        await self.kube.merge_patch(PODS, key, {"status": {"conditions": [held]}}, subresource="status")

    async def there(self, pod: str) -> Key:
        """Wait until a pod is made."""
        key = Key(self.namespace, pod)
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    await self.kube.get(PODS, key)
                except NotFound:
                    await asyncio.sleep(0.02)
                else:
                    return key


@asynccontextmanager
async def leading(kube: Client, namespace: str) -> AsyncIterator[None]:
    """Hold the Lease of an operator."""
    lease = Key(namespace, "isthmus-operator")
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec = {"holderIdentity": "test", "leaseDurationSeconds": 3600, "renewTime": now}
    meta = {"namespace": namespace, "name": lease.name, "labels": LEASE_LABELS}
    await kube.create(LEASES, {"metadata": meta, "spec": spec})
    try:
        yield
    finally:
        await kube.delete(LEASES, lease)  # others look for one in every namespace


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[Bed]:
    async with seated(control_plane.kubeconfig, namespace) as (world, recorder, _), leading(kube, namespace):
        made: dict[str, Any] = {
            "applier": Applier(world.kube),
            "reporter": Reporter(world.kube),
            "recorder": recorder,
            "metrics": Metrics(),
        }
        late: dict[str, Any] = {"now": a_minute_later}
        syncs = [part(world, **made, **(late if part in IMPATIENT else {})) for part in PARTS]
        workers = [worker for sync in syncs for worker in sync.workers]
        async with at_work(world, recorder, workers):
            yield Bed(kube, namespace)


async def test_a_cluster_that_is_being_made_is_not_ready_and_nothing_is_broken(bed: Bed) -> None:
    await bed.cluster()
    await bed.finds("parts", f"SlurmCluster {CLUSTER} is not ready", saying="is not ready yet")
    assert not any(it.grave for it in await bed.findings())


async def test_a_node_port_that_somebody_else_has(bed: Bed) -> None:
    ports = [{"port": 22, "nodePort": 30877}]
    taken = {"metadata": bed.meta("taken"), "spec": {"type": "NodePort", "ports": ports}}
    await bed.kube.create(SERVICES, taken)
    await bed.cluster(nodes={"login": {"sshdServiceType": "NodePort", "sshdServiceNodePort": 30877}})
    await bed.finds("parts", "LoginSet login is degraded", saying="already allocated")


async def test_a_policy_that_refuses_a_part(bed: Bed) -> None:
    name, within = bed.namespace, {"kubernetes.io/metadata.name": bed.namespace}
    of_services = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}
    policy = {
        "matchConstraints": {"resourceRules": [of_services], "namespaceSelector": {"matchLabels": within}},
        "validations": [{"expression": "object.metadata.name != 'slurmctld'", "message": "not this one"}],
    }
    bound = {"policyName": name, "validationActions": ["Deny"]}
    await bed.kube.create(POLICIES, {"metadata": {"name": name}, "spec": policy})
    await bed.kube.create(POLICY_BINDINGS, {"metadata": {"name": name}, "spec": bound})
    tried = {"metadata": bed.meta("slurmctld"), "spec": {"ports": [{"port": 22}]}}
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                await bed.kube.create(SERVICES, tried, dry_run=True)
            except ApiError:
                break
            await asyncio.sleep(0.05)
    await bed.cluster()
    try:
        await bed.finds("parts", f"SlurmCluster {CLUSTER} is degraded", saying="not this one")
    finally:
        await bed.kube.delete(POLICY_BINDINGS, Key("", name))
        await bed.kube.delete(POLICIES, Key("", name))


async def test_a_security_policy_that_refuses_pods_of_workers(bed: Bed) -> None:
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    await bed.kube.merge_patch(NAMESPACES, Key("", bed.namespace), enforced)
    await bed.cluster()
    await bed.finds(
        "parts", "Kubernetes creates no pods of NodeSet worker", saying='violates PodSecurity "baseline:latest"'
    )


async def test_parts_without_a_restapi(bed: Bed) -> None:
    keys = {"slurmKeyRef": SLURM_KEY_REF, "jwtKeyRef": JWT_KEY_REF}
    for reference, key in ((SLURM_KEY_REF, SLURM_KEY), (JWT_KEY_REF, JWT_KEY)):
        text = {"stringData": {reference["key"]: key.decode()}}
        await bed.kube.create(SECRETS, {"metadata": bed.meta(reference["name"]), **text})
    await bed.kube.create(CONTROLLERS, {"metadata": bed.meta("hand"), "spec": keys})
    await bed.there("hand-controller-0")
    what = "there is no RestApi: the operator cannot reach Slurm, so it does not drain or scale in"
    await bed.finds("parts", what, saying="no RestApi of this cluster exists", later=120)


async def test_a_shared_volume_that_one_node_alone_can_mount(bed: Bed) -> None:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await bed.kube.create(CLAIMS, {"metadata": bed.meta("narrow"), "spec": wanted})
    bound = {"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"]}}
    await bed.kube.merge_patch(CLAIMS, Key(bed.namespace, "narrow"), bound, subresource="status")
    jail = {"name": "jail", "persistentVolumeClaim": {"claimName": "narrow"}}
    await bed.cluster(volumeSources=[jail, {"name": "state", **NOWHERE}])
    what = "volume claim narrow is ReadWriteOnce, but pods of several nodes use it"
    await bed.finds("storage", what, saying="only if each of them can mount it")


async def test_a_machine_that_is_lost(bed: Bed) -> None:
    await bed.cluster()
    worker, machine = await bed.there("worker-0"), f"{bed.namespace}-lost"
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    lost = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
    times = {"lastHeartbeatTime": moment, "lastTransitionTime": moment}
    await bed.kube.create(NODES, {"metadata": {"name": machine, "labels": {PLACES: bed.namespace}}})
    status = {"status": {"conditions": [{**lost, **times}]}}
    await bed.kube.merge_patch(NODES, Key("", machine), status, subresource="status")
    await bed.kube.bind(worker, machine)
    await bed.finds(
        "placing", f"Kubernetes node {machine} is not ready: worker-0 may not work", saying="stopped posting"
    )


async def test_an_operator_that_is_gone(bed: Bed) -> None:
    stale = {"spec": {"leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}}
    await bed.kube.merge_patch(LEASES, Key(bed.namespace, "isthmus-operator"), stale)
    what = "the operator does not run: changes have no effect, and existing pods keep running"
    await bed.finds("operator", what, saying="the last one, test, has not renewed its Lease for")


async def test_who_may_not_list_pods_is_told_so(bed: Bed, control_plane: ControlPlaneBed) -> None:
    name = bed.namespace
    groups = sorted({kind.group for kind in (SLURM_CLUSTERS, CONTROLLERS, HEALTH_POLICIES)})
    readable = ["nodes", "events", "configmaps", "persistentvolumeclaims"]
    rules = [
        {"apiGroups": ["", "events.k8s.io"], "resources": readable, "verbs": ["list"]},
        {"apiGroups": groups, "resources": ["*"], "verbs": ["list"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"]},
    ]
    given = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    whom = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    await bed.kube.create(CLUSTER_ROLES, {"metadata": {"name": name}, "rules": rules})
    await bed.kube.create(CLUSTER_BINDINGS, {"metadata": {"name": name}, "roleRef": given, "subjects": [whom]})
    async with Client(load(control_plane.plane.user(name, name))) as eve:
        await Bed(eve, name).finds("access", "pods cannot be read", saying="pods is forbidden")


async def test_a_database_whose_password_is_in_no_secret(bed: Bed) -> None:
    password = {"name": "database", "key": "password"}
    external = {"enabled": True, "host": "db.example.org", "user": "slurm", "passwordSecretKeyRef": password}
    await bed.cluster(nodes={"accounting": {"enabled": True, "externalDB": external}})
    await bed.finds(
        "accounting",
        f"Accounting {CLUSTER} is degraded",
        saying="there is no Secret database, which passwordKeyRef names",
    )


async def test_a_filter_that_there_is_none_of(bed: Bed) -> None:
    await bed.cluster(nodes={"worker": {"size": 1, "k8sNodeFilterName": "moon"}})
    await bed.finds("parts", f"SlurmCluster {CLUSTER} cannot be applied as it is written", saying="moon")


async def test_a_quota_that_lets_no_pod_be_made(bed: Bed) -> None:
    quota = {"metadata": bed.meta("none"), "spec": {"hard": {"pods": "0"}}}
    await bed.kube.create(QUOTAS, quota)
    await bed.cluster()
    await bed.finds(
        "parts",
        f"Kubernetes creates no pods of Controller {CLUSTER}, NodeSet worker, LoginSet login, RestApi {CLUSTER}",
        saying="exceeded quota: none",
    )


async def test_a_key_that_is_in_no_secret(bed: Bed) -> None:
    keys = {"slurmKeyRef": SLURM_KEY_REF, "jwtKeyRef": JWT_KEY_REF}
    await bed.kube.create(RESTAPIS, {"metadata": bed.meta("hand"), "spec": {"controllerRef": {"name": "hand"}}})
    await bed.kube.create(CONTROLLERS, {"metadata": bed.meta("hand"), "spec": keys})
    await bed.finds(
        "configuration", "cannot render the configuration of Controller hand", saying="there is no Secret"
    )


async def test_a_controller_that_there_is_none_of(bed: Bed) -> None:
    spec = {"controllerRef": {"name": "typo"}}
    await bed.kube.create(LOGINSETS, {"metadata": bed.meta("door"), "spec": spec})
    await bed.finds("parts", "LoginSet door is degraded", saying="there is no Controller typo")


async def test_a_cluster_that_there_is_none_of(bed: Bed) -> None:
    await bed.kube.create(NEBIUS_NODESETS, {"metadata": bed.meta("gpu"), "spec": {"clusterName": "typo"}})
    await bed.finds(
        "parts",
        "NodeSet.slurm.nebius.ai gpu waits, and belongs to no cluster",
        saying="there is no SlurmCluster typo",
        later=120.0,
    )


async def test_a_jailedconfig_of_no_cluster(bed: Bed) -> None:
    spec = {"configMap": {"name": "motd"}, "items": [{"key": "x", "path": "/etc/motd"}]}
    meta = bed.meta("motd", labels={"app.kubernetes.io/instance": "typo"})
    await bed.kube.create(JAILED_CONFIGS, {"metadata": meta, "spec": spec})
    await bed.finds(
        "parts",
        "JailedConfig motd waits, and belongs to no cluster",
        saying="there is no SlurmCluster typo",
        later=120.0,
    )


async def test_a_token_whose_key_is_in_no_secret(bed: Bed) -> None:
    spec = {"username": "alice", "jwtKeyRef": JWT_KEY_REF}
    await bed.kube.create(TOKENS, {"metadata": bed.meta("pass"), "spec": spec})
    await bed.finds("parts", "Token pass is degraded", saying="there is no Secret")


async def test_a_rebooter_without_an_account(bed: Bed) -> None:
    nowhere = {"rebooter": {"nodeSelector": {"nowhere": "yes"}}}
    await bed.kube.create(NODE_CONFIGURATORS, {"metadata": bed.meta("machines"), "spec": nowhere})
    await bed.finds("parts", "NodeConfigurator machines is degraded", saying="rebooter.serviceAccountName is empty")


async def test_workers_that_no_node_takes(bed: Bed) -> None:
    await bed.cluster()
    message = "0/3 nodes are available: 3 Insufficient memory."
    await bed.unplaced("worker-0", message)
    await bed.finds("placing", "no node can run pod worker-0", saying=message)


async def test_claims_for_which_there_is_no_storage_class(bed: Bed) -> None:
    await bed.kube.create(SLURM_CLUSTERS, {"metadata": bed.meta(CLUSTER), "spec": {}})
    for pod in ("worker-0", "controller-0"):
        await bed.unplaced(pod, "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    await bed.finds(
        "storage", "volume claims jail, statesave-controller-0 are Pending", saying="names no storage class"
    )


async def test_a_jailedconfig_whose_configmap_is_missing(
    bed: Bed, control_plane: ControlPlaneBed, tmp_path: Path
) -> None:
    jailed = JailedBed(control_plane, bed.kube, bed.namespace, tmp_path)
    jailed.fill()
    await bed.cluster()  # without a shared root of its own, whose writer would be the operator's
    async with jailed.writer():
        await jailed.config("scripts", "/opt/slurm_scripts/prolog.sh")
        await bed.finds(
            "configuration",
            "the files of JailedConfig scripts are not written",
            saying="there is no ConfigMap scripts",
        )

"""The webhooks of the bridge, called by a real API server: who is asked about, what is changed, what is refused."""

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from isthmus import names
from isthmus.bridge.admission import registration
from isthmus.bridge.admission.webhook import Admission, OwnCaches
from isthmus.bridge.config import Config as BridgeConfig
from isthmus.domain.bridge.groups import GANG_ANNOTATION
from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.crd import install
from isthmus.kube.errors import ApiError, NotFound
from isthmus.kube.recorder import EVENTS
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS, LabelSelector, Pod
from isthmus.model.policy import POLICIES
from isthmus.model.workload import JOBSETS, TRAIN_JOBS
from isthmus.runtime import server
from isthmus.runtime.manager import Manager
from isthmus.runtime.metrics import Metrics
from tests.bed import bridge_webhooks
from tests.bed.addresses import loopback_address
from tests.bed.bridge_webhooks import Place
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.workload_controllers import apply_kinds
from tests.flows.bridge.conftest import make_node
from tests.flows.bridge.devices_bed import RAW_CLAIMS, RAW_TEMPLATES, exactly
from tests.flows.bridge.frameworks import definition
from tests.flows.kube.conftest import NAMESPACES, Through, make_namespace, through, token_of
from tests.flows.kube.waiting import eventually

__all__ = ["through"]

ASK = names.JOB_ANNOTATIONS
RAW_PODS: Kind[dict[str, Any]] = Kind(dict[str, Any], "v1", "pods", "Pod")
RAW_JOBS: Kind[dict[str, Any]] = Kind(dict[str, Any], "batch/v1", "jobs", "Job")
RAW_JOBSETS: Kind[dict[str, Any]] = Kind(dict[str, Any], JOBSETS.api_version, JOBSETS.plural, JOBSETS.name)
RAW_EVENTS: Kind[dict[str, Any]] = Kind(dict[str, Any], EVENTS.api_version, EVENTS.plural, EVENTS.name)
RAW_POLICIES: Kind[dict[str, Any]] = Kind(
    dict[str, Any], POLICIES.api_version, POLICIES.plural, POLICIES.name, namespaced=False
)
DAEMON_SETS: Kind[dict[str, Any]] = Kind(dict[str, Any], "apps/v1", "daemonsets", "DaemonSet")
ACCOUNTS: Kind[dict[str, Any]] = Kind(dict[str, Any], "v1", "serviceaccounts", "ServiceAccount")
BINDINGS: Kind[dict[str, Any]] = Kind(dict[str, Any], "rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding")

PAUSE = {"name": "main", "image": "example/none"}


class Door:
    """A bridge's webhooks in this process, registered for a namespace and a scheduler name of the test's own."""

    def __init__(self, client: Client, config: BridgeConfig, place: Place, managed: str, metrics: Metrics) -> None:
        self.client = client
        self.config = config
        self.place = place
        self.managed = managed
        self.metrics = metrics

    @property
    def address(self) -> tuple[str, int]:
        """Where the API server asks."""
        parts = urlsplit(self.place.url)
        return parts.hostname or "", parts.port or 0

    def pod(self, name: str = "it", *, namespace: str = "", ours: bool = True, **more: Any) -> dict[str, Any]:
        metadata = {"namespace": namespace or self.managed, "name": name}
        metadata |= {part: more.pop(part) for part in ("annotations", "labels", "finalizers") if part in more}
        spec: dict[str, Any] = {"containers": [PAUSE], **more}
        return {
            "metadata": metadata,
            "spec": spec | ({"schedulerName": self.config.scheduler_name} if ours else {}),
        }

    async def create(self, body: dict[str, Any]) -> Pod:
        return await self.client.create(PODS, body)

    async def refusal(self, body: dict[str, Any]) -> str:
        with pytest.raises(ApiError) as caught:
            await self.client.create(PODS, body)
        return caught.value.status.message

    def calls(self) -> float:
        """How often the API server asked us anything."""
        samples = [
            sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == names.WEBHOOK_REQUESTS.name
        ]
        return sum(samples)


@asynccontextmanager
async def door(
    client: Client, managed: str, own: str, *, through_client: Client | None = None, **settings: Any
) -> AsyncIterator[Door]:
    """Open a door and wait until the API server asks at it; `own` is the bridge's own namespace."""
    chosen: dict[str, Any] = {"managed_namespaces": (managed,), **settings}
    config = BridgeConfig(scheduler_name=f"slurm-{managed}", **chosen)
    metrics = Metrics()
    ours = through_client or client
    caches = OwnCaches(ours)
    users = registration.bridge_users(own)
    admission = Admission(ours, config, caches=caches, metrics=metrics, bridge_users=users)
    manager = Manager(grace=1.0)
    installation = f"door-{managed}"
    place = bridge_webhooks.place(own, installation)
    caches.register(manager)
    async with AsyncExitStack() as stack:
        # An address of its own: a test may close the door, and then listen there itself.
        host = stack.enter_context(loopback_address())
        keeper = registration.certificates(client, place, metrics=metrics, hosts=[host])
        manager.cache("certificates", keeper)
        port = await stack.enter_async_context(
            server.serve(admission.routes, host=host, port=0, tls=keeper.context)
        )
        place = bridge_webhooks.place(own, installation, url=f"https://{host}:{port}")
        stack.push_async_callback(bridge_webhooks.unregister, client, place)
        await bridge_webhooks.register(client, config, place)
        await keeper.refresh()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        tasks.create_task(manager.run())
        opened = Door(client, config, place, managed, metrics)
        try:
            await until_asked(opened)
            yield opened
        finally:
            manager.stop()


async def until_asked(opened: Door) -> None:
    """Wait until the API server has noticed both registrations and whom to trust."""
    marked = opened.pod("probe", ours=False, labels={names.JOB_ID_LABEL: "1"})
    async with asyncio.timeout(60):
        while True:
            with suppress(ApiError):
                made = await opened.client.create(PODS, opened.pod("probe", ours=False), dry_run=True)
                changed = made.spec.scheduler_name == opened.config.scheduler_name
                try:
                    await opened.client.create(PODS, marked, dry_run=True)
                except ApiError as error:
                    if changed and "external jobid label" in error.status.message:
                        return
            await asyncio.sleep(0.02)


@pytest.fixture
async def own(client: Client) -> str:
    """The bridge's own namespace."""
    return await make_namespace(client)


@pytest.fixture
async def elsewhere(client: Client) -> AsyncIterator[str]:
    """A namespace that nobody manages."""
    name = await make_namespace(client)
    yield name
    await client.delete_all(PODS, namespace=name, grace=0)


@pytest.fixture
async def opened(client: Client, namespace: str, own: str) -> AsyncIterator[Door]:
    async with door(client, namespace, own) as opened:
        yield opened


async def test_weakness_04_a_pod_of_a_managed_namespace_is_ready_for_slurm_when_it_is_created(opened: Door) -> None:
    made = await opened.create(opened.pod(ours=False, nodeName="somewhere"))
    assert made.spec.scheduler_name == opened.config.scheduler_name
    assert made.spec.node_name == ""
    (toleration,) = [it for it in made.spec.tolerations if it.key == names.MANAGED_TAINT]
    assert (toleration.operator, toleration.value) == ("Equal", opened.config.scheduler_name)


async def test_weakness_29_the_toleration_has_the_effect_of_the_taint(
    client: Client, namespace: str, own: str
) -> None:
    async with door(client, namespace, own, taint="NoSchedule") as opened:
        made = await opened.create(opened.pod())
        assert [it.effect for it in made.spec.tolerations if it.key == names.MANAGED_TAINT] == ["NoSchedule"]


async def test_a_pod_that_names_the_scheduler_is_ours_in_any_namespace(opened: Door, elsewhere: str) -> None:
    made = await opened.create(opened.pod(namespace=elsewhere))
    assert any(it.key == names.MANAGED_TAINT for it in made.spec.tolerations)
    assert "jobid label" in await opened.refusal(opened.pod(namespace=elsewhere, labels={names.JOB_ID_LABEL: "1"}))


async def test_weakness_21_nobody_asks_us_about_what_is_not_ours(opened: Door, elsewhere: str, own: str) -> None:
    before = opened.calls()
    await opened.create(opened.pod("other", ours=False, schedulerName="volcano"))
    await opened.create(opened.pod("it", namespace=elsewhere, ours=False))
    await opened.create(opened.pod("self", namespace=own))
    await opened.client.merge_patch(PODS, Key(elsewhere, "it"), {"metadata": {"labels": {"a": "b"}}})
    await opened.client.delete(PODS, Key(elsewhere, "it"), grace=0)
    assert opened.calls() == before


async def test_a_pod_costs_two_questions(opened: Door) -> None:
    before = opened.calls()
    await opened.create(opened.pod("named"))
    assert opened.calls() == before + 2
    await opened.create(opened.pod("undecided", ours=False))
    assert opened.calls() == before + 4


async def test_weakness_21_with_every_replica_dead_others_do_not_notice(
    client: Client, namespace: str, own: str, elsewhere: str
) -> None:
    async with AsyncExitStack() as alive:
        opened = await alive.enter_async_context(door(client, namespace, own))
        await opened.create(opened.pod("runs", finalizers=["example.org/mine"]))
        # The server goes, the registration stays: what a crash of every replica leaves.
        await alive.aclose()
        # Not before the API server has noticed that the old one went: what is said then would be about that.
        await _until_verdict(client, opened.pod("new", ours=False), "")
        await bridge_webhooks.register(client, opened.config, opened.place)
        try:
            await _until_verdict(client, opened.pod(namespace=elsewhere), 'failed calling webhook "opt-in.pods')
            said = await opened.refusal(opened.pod("new", ours=False))
            assert 'failed calling webhook "pods.slinky.slurm.net"' in said

            with socket.create_server(opened.address) as ear:
                await opened.create(opened.pod(namespace=elsewhere, ours=False))
                await opened.create(opened.pod("other", ours=False, schedulerName="volcano"))
                ear.setblocking(False)  # noqa: FBT003 - its only form
                with pytest.raises(BlockingIOError):  # nobody has come to ask
                    ear.accept()

            # What is there already lives and ends as ever.
            await client.merge_patch(PODS, Key(namespace, "runs"), {"metadata": {"finalizers": None}})
            await client.delete(PODS, Key(namespace, "runs"), grace=0)
            with pytest.raises(NotFound):
                await client.get(PODS, Key(namespace, "runs"))
        finally:
            await bridge_webhooks.unregister(client, opened.place)


async def _until_verdict(client: Client, body: dict[str, Any], verdict: str) -> None:
    """Wait until the API server says this to a pod; "" if it would take it."""
    async with asyncio.timeout(60):
        while True:
            said = ""
            try:
                await client.create(PODS, body, dry_run=True)
            except ApiError as error:
                said = error.status.message
            if verdict in said and bool(verdict) == bool(said):
                return
            await asyncio.sleep(0.02)


async def test_weakness_21_pods_from_before_a_namespace_was_managed_can_change(
    client: Client, namespace: str, own: str
) -> None:
    plain = {"metadata": {"namespace": namespace, "name": "old", "finalizers": ["example.org/mine"]}}
    await client.create(PODS, plain | {"spec": {"containers": [PAUSE]}})
    async with door(client, namespace, own):
        changed = await client.merge_patch(
            PODS, Key(namespace, "old"), {"metadata": {"finalizers": None, "labels": {"a": "b"}}}
        )
        assert changed.spec.scheduler_name == "default-scheduler"
        assert changed.metadata.labels == {"a": "b"}


async def test_namespaces_are_managed_by_label_from_their_first_moment(
    client: Client, namespace: str, own: str
) -> None:
    labels = {"slurm.managed": namespace}
    await client.merge_patch(NAMESPACES, namespace, {"metadata": {"labels": labels}})
    settings: Any = {"managed_namespaces": (), "managed_namespace_selector": LabelSelector(match_labels=labels)}
    async with door(client, namespace, own, **settings) as opened:
        assert (await opened.create(opened.pod(ours=False))).spec.scheduler_name == opened.config.scheduler_name
        other = await make_namespace(client)
        assert (await opened.create(opened.pod(namespace=other, ours=False))).spec.scheduler_name.startswith("def")
        await client.merge_patch(NAMESPACES, other, {"metadata": {"labels": labels}})
        async with asyncio.timeout(60):
            while True:
                made = await client.create(PODS, opened.pod("later", namespace=other, ours=False), dry_run=True)
                if made.spec.scheduler_name == opened.config.scheduler_name:
                    break
                await asyncio.sleep(0.02)
        await client.delete(NAMESPACES, other)


async def test_daemons_in_a_managed_namespace_stay_with_the_default_scheduler(opened: Door, client: Client) -> None:
    node = f"node-{opened.managed}"
    await make_node(client, node)
    try:
        labels = {"app": "daemon"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [PAUSE]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        await client.create(
            DAEMON_SETS, {"metadata": {"namespace": opened.managed, "name": "daemon"}, "spec": spec}
        )
        (made, *_) = await pods_of(opened, "app=daemon")
        assert made.spec.scheduler_name == "default-scheduler"
        assert made.spec.affinity
    finally:
        await client.delete(DAEMON_SETS, Key(opened.managed, "daemon"))
        await client.delete_all(PODS, namespace=opened.managed, grace=0)
        await client.delete(NODES, node)


async def test_what_passes_slurm_by_can_be_refused_in_managed_namespaces(
    client: Client, namespace: str, own: str, elsewhere: str
) -> None:
    def daemons(where: str, **spec: Any) -> dict[str, Any]:
        labels = {"app": "daemon"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [PAUSE], **spec}}
        body = {"selector": {"matchLabels": labels}, "template": template}
        return {"metadata": {"namespace": where, "name": "daemon"}, "spec": body}

    async with door(client, namespace, own, enforce=True) as opened:
        refused = f"set it to {opened.config.scheduler_name}"
        await _until_verdict(client, opened.pod(ours=False, schedulerName="volcano"), refused)
        on_a_node = opened.pod(ours=False, schedulerName="volcano", nodeName="somewhere")
        assert refused in await opened.refusal(on_a_node)
        with pytest.raises(ApiError, match=refused):
            await client.create(DAEMON_SETS, daemons(namespace))
        # What Slurm places is let in, and nobody else's namespace is concerned.
        assert not (await opened.create(opened.pod("placed", ours=False, nodeName="somewhere"))).bound
        await opened.create(opened.pod("named"))
        await client.create(DAEMON_SETS, daemons(namespace, schedulerName=opened.config.scheduler_name))
        await opened.create(opened.pod("other", namespace=elsewhere, ours=False, schedulerName="volcano"))
        await opened.create(opened.pod("there", namespace=elsewhere, ours=False, nodeName="somewhere"))
        await client.create(DAEMON_SETS, daemons(elsewhere))
        # What was there before can change and end as ever.
        await client.merge_patch(PODS, Key(namespace, "placed"), {"metadata": {"labels": {"a": "b"}}})
        await client.delete(PODS, Key(namespace, "placed"), grace=0)
        for where in (namespace, elsewhere):
            await client.delete(DAEMON_SETS, Key(where, "daemon"))


async def pods_of(opened: Door, labels: str, *, number: int = 1) -> tuple[Pod, ...]:
    """Wait for pods that a controller makes; each time that it is refused one, it takes longer to try again."""
    async with asyncio.timeout(120):
        while True:
            found = await opened.client.list(PODS, namespace=opened.managed, labels=labels)
            if len(found.items) >= number:
                return found.items
            await asyncio.sleep(0.05)


def job(opened: Door, name: str, annotations: dict[str, str], *, pods: int = 2) -> dict[str, Any]:
    template = {"spec": {"containers": [PAUSE], "restartPolicy": "Never"}}
    metadata = {"namespace": opened.managed, "name": name, "annotations": annotations}
    return {"metadata": metadata, "spec": {"parallelism": pods, "completions": pods, "template": template}}


async def test_pods_of_a_job_that_is_a_gang_say_so(opened: Door) -> None:
    await opened.client.create(RAW_JOBS, job(opened, "gang", {GANG_ANNOTATION: "true"}))
    await opened.client.create(RAW_JOBS, job(opened, "loose", {}))
    for found in await pods_of(opened, "job-name=gang", number=2):
        assert found.metadata.annotations[GANG_ANNOTATION] == "true"
    for found in await pods_of(opened, "job-name=loose", number=2):
        assert GANG_ANNOTATION not in found.metadata.annotations


async def make_jobset(opened: Door, name: str, **metadata: Any) -> dict[str, Any]:
    """Make a JobSet, and what its controller would make of it: a Job that belongs to it."""
    template = {"spec": {"containers": [PAUSE], "restartPolicy": "Never"}}
    replicated = [{"name": "workers", "template": {"spec": {"template": template}}}]
    # Other tests have its real controller run, which is to leave this one alone.
    spec = {"replicatedJobs": replicated, "managedBy": "example.com/test"}
    body = {"metadata": {"namespace": opened.managed, "name": name, **metadata}, "spec": spec}
    made = await opened.client.create(RAW_JOBSETS, body)
    body = job(opened, f"{name}-workers-0", {}, pods=1)
    body["metadata"]["ownerReferences"] = [owner_of(JOBSETS, made)]
    return await opened.client.create(RAW_JOBS, body)


def owner_of(kind: Kind[Any], made: dict[str, Any]) -> dict[str, Any]:
    meta = made["metadata"]
    told = {"apiVersion": kind.api_version, "kind": kind.name, "name": meta["name"], "uid": meta["uid"]}
    return told | {"controller": True}


async def test_a_jobset_makes_all_its_jobs_one_gang(opened: Door, control_plane: ControlPlaneBed) -> None:
    await asyncio.to_thread(apply_kinds, control_plane, "jobset")
    await make_jobset(opened, "set", annotations={GANG_ANNOTATION: "true"})
    (found, *_) = await pods_of(opened, "job-name=set-workers-0")
    assert found.metadata.annotations[GANG_ANNOTATION] == "true"


async def test_a_trainjob_makes_its_jobset_one_gang(opened: Door, control_plane: ControlPlaneBed) -> None:
    """The Trainer makes a JobSet, whose pods do not tell whose they are."""
    await asyncio.to_thread(apply_kinds, control_plane, "jobset")
    await install(opened.client, definition(TRAIN_JOBS), manager="tests")
    kind: Kind[dict[str, Any]] = Kind(dict[str, Any], TRAIN_JOBS.api_version, TRAIN_JOBS.plural, TRAIN_JOBS.name)
    metadata = {"namespace": opened.managed, "name": "llm"}
    train_job = await opened.client.create(kind, {"metadata": metadata, "spec": {"trainer": {"numNodes": 1}}})
    await make_jobset(opened, "llm", ownerReferences=[owner_of(TRAIN_JOBS, train_job)])
    (found, *_) = await pods_of(opened, "job-name=llm-workers-0")
    assert found.metadata.annotations[GANG_ANNOTATION] == "true"


async def test_weakness_36_a_bad_annotation_of_a_job_is_told_where_people_look(opened: Door) -> None:
    await opened.client.create(RAW_JOBS, job(opened, "bad", {f"{ASK}timelimit": "soon"}))
    wanted = f"Job {opened.managed}/bad: an annotation cannot be used: {ASK}timelimit is 'soon'"
    # The first refusal may be another: that the Job could not be read within a second. Then this is for the next.
    async with asyncio.timeout(120):
        while True:
            events = await opened.client.list(RAW_EVENTS, namespace=opened.managed)
            notes = [event.get("note", "") for event in events.items if event.get("reason") == "FailedCreate"]
            if any(wanted in note for note in notes):
                break
            await asyncio.sleep(0.05)


async def test_weakness_36_a_bad_annotation_of_a_pod_is_told_at_kubectl_apply(opened: Door) -> None:
    said = await opened.refusal(opened.pod(annotations={f"{ASK}partion": "gpu", f"{ASK}nice": "very"}))
    assert 'admission webhook "pods.slinky.slurm.net" denied the request: 2 annotations cannot be used' in said
    assert f"did you mean {ASK}partition?" in said


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ]},
            "spec.topologySpreadConstraints is not supported by the slurm-bridge scheduler",
        ),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
            ]}}},
            "required podAffinity is not supported by Slurm",
        ),
    ],
)  # fmt: skip
async def test_weakness_22_what_slurm_cannot_do_is_refused(opened: Door, spec: Any, expected: str) -> None:
    assert expected in await opened.refusal(opened.pod(**spec))


async def test_claims_that_slurm_cannot_place_are_refused(opened: Door) -> None:
    """By a template or by name. One that does not exist yet is judged when it does."""
    many = {"devices": {"requests": [exactly(class_="any", count=33)]}}
    meta = {"namespace": opened.managed, "name": "many"}
    await opened.client.create(RAW_CLAIMS, {"metadata": meta, "spec": many})
    await opened.client.create(RAW_TEMPLATES, {"metadata": meta, "spec": {"spec": many}})
    for field in ("resourceClaimName", "resourceClaimTemplateName"):
        said = await opened.refusal(opened.pod(resourceClaims=[{"name": "gpus", field: "many"}]))
        assert 'resource claim "gpus": it asks for 33 devices, and a claim can have 32' in said
    await opened.create(opened.pod(resourceClaims=[{"name": "gpus", "resourceClaimName": "not-yet"}]))


async def test_weakness_22_what_slurm_can_do_is_let_in(opened: Door) -> None:
    made = await opened.create(
        opened.pod(nodeSelector={"zone": "a"}, schedulingGates=[{"name": "example.org/wait"}])
    )
    assert made.spec.node_selector == {"zone": "a"}


async def test_weakness_31_who_may_be_whom_is_the_administrators_word(opened: Door) -> None:
    as_alice = opened.pod(annotations={f"{ASK}user-id": "alice"})
    assert "user-id 'alice' needs a BridgePolicy" in await opened.refusal(as_alice)
    spec = {"namespaces": [opened.managed], "users": {"default": "bob", "allowed": ["alice"]}}
    await opened.client.create(RAW_POLICIES, {"metadata": {"name": opened.managed}, "spec": spec})
    try:
        await _until_verdict(opened.client, as_alice, "")
        await opened.create(as_alice)
        as_root = opened.pod("root", annotations={f"{ASK}user-id": "root"})
        assert f"(BridgePolicy {opened.managed})" in await opened.refusal(as_root)
        with pytest.raises(ApiError, match="user-id 'root'"):
            await opened.client.merge_patch(
                PODS, Key(opened.managed, "it"), {"metadata": {"annotations": {f"{ASK}user-id": "root"}}}
            )
    finally:
        await opened.client.delete(RAW_POLICIES, opened.managed)


async def test_once_there_is_a_policy_a_namespace_without_one_gets_the_defaults(
    client: Client, namespace: str, own: str
) -> None:
    asks = {f"{ASK}account": "physics", f"{ASK}qos": "high"}
    async with door(client, namespace, own, partition="main") as opened:
        await opened.create(opened.pod("free", annotations={**asks, f"{ASK}partition": "other"}))
        assert "priority cannot be set" in await opened.refusal(opened.pod(annotations={f"{ASK}priority": "9"}))
        spec = {"namespaces": [own]}
        await client.create(RAW_POLICIES, {"metadata": {"name": namespace}, "spec": spec})
        try:
            await _until_verdict(client, opened.pod(annotations=asks), "account 'physics' is not allowed")
            await opened.create(opened.pod("default", annotations={f"{ASK}partition": "main"}))
        finally:
            await client.delete(RAW_POLICIES, namespace)


async def test_namespaces_without_a_policy_can_be_kept_to_the_defaults_from_the_beginning(
    client: Client, namespace: str, own: str
) -> None:
    async with door(client, namespace, own, tenancy="strict") as opened:
        said = await opened.refusal(opened.pod(annotations={f"{ASK}account": "physics"}))
        assert "account 'physics' is not allowed, nor is any other (no BridgePolicy applies" in said
        await opened.create(opened.pod())


async def test_a_policy_may_choose_its_namespaces_by_their_labels(opened: Door) -> None:
    as_alice = opened.pod(annotations={f"{ASK}user-id": "alice"})
    labels = {"team": opened.managed}
    spec = {"namespaceSelector": {"matchLabels": labels}, "users": {"default": "bob", "allowed": ["alice"]}}
    await opened.client.create(RAW_POLICIES, {"metadata": {"name": opened.managed}, "spec": spec})
    try:
        await opened.client.merge_patch(NAMESPACES, opened.managed, {"metadata": {"labels": labels}})
        await _until_verdict(opened.client, as_alice, "")
        await opened.client.merge_patch(NAMESPACES, opened.managed, {"metadata": {"labels": {"team": "other"}}})
        await _until_verdict(opened.client, as_alice, "user-id 'alice' needs a BridgePolicy")
    finally:
        await opened.client.delete(RAW_POLICIES, opened.managed)


async def test_without_a_policy_people_are_warned(opened: Door, control_plane: ControlPlaneBed) -> None:
    kubectl = [
        str(control_plane._kubectl),
        f"--kubeconfig={control_plane.kubeconfig}",
        f"--namespace={opened.managed}",
    ]
    process = await asyncio.create_subprocess_exec(
        *kubectl, "run", "it", "--image=example/none", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    _, printed = await process.communicate()
    assert f"Warning: no BridgePolicy applies to namespace {opened.managed}" in printed.decode()


async def test_weakness_32_only_the_bridge_says_which_job_a_pod_is(
    opened: Door, own: str, client: Client, config: Config
) -> None:
    key = (await opened.create(opened.pod())).metadata.key
    before = opened.calls()
    await client.bind(key, "somewhere", labels={names.JOB_ID_LABEL: "7"}, annotations={"slurm.job.id": "7"})
    assert opened.calls() == before  # the binding is the bridge's one write, and costs no question
    relabel = {"metadata": {"labels": {names.JOB_ID_LABEL: "8"}}}
    with pytest.raises(ApiError, match="can't update a pod's external jobid label"):
        await client.merge_patch(PODS, key, relabel)
    with pytest.raises(ApiError, match=r"can't update a pod's annotation slurm\.job\.id"):
        await client.merge_patch(PODS, key, {"metadata": {"annotations": {"slurm.job.id": None}}})

    account = "slurm-bridge-controllers"
    await client.create(ACCOUNTS, {"metadata": {"namespace": own, "name": account}})
    await client.create(
        BINDINGS,
        {
            "metadata": {"namespace": opened.managed, "name": "edit"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "namespace": own, "name": account}],
        },
    )
    as_bridge = Config(
        config.server,
        Fixed.token(await token_of(client, own, account)),
        ca=config.ca,
    )
    async with Client(as_bridge) as bridge:
        async with asyncio.timeout(60):
            while True:  # the API server takes a moment to know the new role binding
                try:
                    changed = await bridge.merge_patch(PODS, key, relabel)
                    break
                except ApiError as error:
                    assert "cannot patch" in error.status.message  # noqa: PT017 - anything else is the failure
        assert changed.metadata.labels[names.JOB_ID_LABEL] == "8"


async def test_weakness_32_nobody_parts_a_pod_from_its_job_by_relabelling_it(opened: Door) -> None:
    key = (await opened.create(opened.pod(labels={"job-name": "other"}))).metadata.key
    relabel: Any
    for label in (names.POD_GROUP_LABEL, names.LWS_NAME_LABEL):
        # Of LeaderWorkerSets, two labels make a group.
        relabel = {"metadata": {"labels": {label: "x", names.LWS_GROUP_INDEX_LABEL: "0"}}}
        with pytest.raises(ApiError, match=f"can't update the label {label}.*that of Pod {key}"):
            await opened.client.merge_patch(PODS, key, relabel)
    before = opened.calls()
    await opened.client.merge_patch(PODS, key, {"metadata": {"labels": {"team": "x"}}})
    assert opened.calls() == before


async def test_a_pod_is_not_resized(opened: Door) -> None:
    sized = [{**PAUSE, "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}]
    key = (await opened.create(opened.pod(containers=sized))).metadata.key
    with pytest.raises(ApiError, match="can't resize a Slurm Bridge-managed pod"):
        await opened.client.json_patch(
            PODS,
            key,
            [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "2"}],
            subresource="resize",
        )


async def test_an_api_server_that_is_slow_to_us_holds_nobody_up_for_long(
    client: Client, namespace: str, own: str, through: Through
) -> None:
    async with (
        through() as (proxy, config),
        Client(config) as slow,
        door(client, namespace, own, through_client=slow) as opened,
    ):
        hung = proxy.hang(path="*/jobs/gang*")
        made = await client.create(RAW_JOBS, job(opened, "gang", {GANG_ANNOTATION: "true"}, pods=1))
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "gang",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        body = opened.pod("member")
        body["metadata"]["ownerReferences"] = [owner]
        # Our own words: the API server's would say that it waited for its five seconds, as it does when we are held
        # up ourselves.
        await _until_verdict(client, body, "whether its pods start together")
        hung.remove()
        # The Job's controller tries again by itself, and then it is what it should be.
        (found, *_) = await pods_of(opened, "job-name=gang")
        assert found.metadata.annotations[GANG_ANNOTATION] == "true"


async def test_replicas_share_one_certificate_and_all_answer(opened: Door, client: Client) -> None:
    """A second replica takes the certificates that the first made, and registers nothing of its own."""
    second = registration.certificates(client, opened.place, metrics=Metrics(), hosts=opened.address[:1])
    await second.refresh()
    assert second.synced.is_set()
    await eventually(lambda: opened.calls() > 0)
    await opened.create(opened.pod())

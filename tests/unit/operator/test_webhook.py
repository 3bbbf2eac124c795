"""Reviews of our kinds: who is asked about, who passes, and what the API server is told."""

from typing import Any

import msgspec
import pytest

from isthmus import names
from isthmus.errors import Terminal
from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.operator.webhook import KINDS, Webhook
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.reviews import Admission, AdmissionRequest, GroupVersionKind
from tests.bed import operator_webhooks
from tests.bed.operator_webhooks import Place
from tests.unit.operator.manifests import Manifest, cluster, slinky, written

LOGIN = "/spec/slurmNodes/login"
BAD = slinky("Controller", extraConf="nonsense")


@pytest.fixture
def webhook() -> Webhook:
    return Webhook(Client(Config(server="http://127.0.0.1:1", credentials=Fixed())), Metrics())


def request(
    manifest: Manifest, *, operation: str = "CREATE", old: Manifest | None = None, sub_resource: str = ""
) -> AdmissionRequest:
    group, _, version = manifest["apiVersion"].partition("/")
    return AdmissionRequest(
        uid="1",
        operation=operation,
        kind=GroupVersionKind(group, version, manifest["kind"]),
        namespace="hpc",
        sub_resource=sub_resource,
        object=msgspec.Raw(msgspec.json.encode(manifest)),
        old_object=msgspec.Raw(msgspec.json.encode(old)),
    )


async def test_what_could_not_work_is_refused(webhook: Webhook) -> None:
    with pytest.raises(Terminal, match="extraConf, line 1"):
        await webhook.validate(request(BAD))
    with pytest.raises(Terminal, match="extraConf, line 1"):
        await webhook.validate(request(BAD, operation="UPDATE", old=slinky("Controller")))


async def test_what_works_is_let_in_with_warnings(webhook: Webhook) -> None:
    assert await webhook.validate(request(slinky("Controller"))) == Admission(warnings=[])
    answer = await webhook.validate(request(cluster(topology={"blockSize": 4})))
    inert, best_effort = answer.warnings
    assert inert == (
        "fields that have no effect yet: spec.topology.blockSize (slurmConfig.topologyPlugin is not topology/block)"
    )
    assert best_effort.startswith("spec.slurmNodes.worker.resources is not set")


async def test_who_only_writes_marks_is_not_judged_again(webhook: Webhook) -> None:
    marked = BAD | {"metadata": {"name": "slurm", "labels": {"a": "b"}}}
    assert await webhook.validate(request(marked, operation="UPDATE", old=BAD)) == Admission()


async def test_what_is_on_its_way_out_passes(webhook: Webhook) -> None:
    leaving = BAD | {"metadata": {"name": "slurm", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert await webhook.validate(request(leaving, operation="UPDATE", old=slinky("Controller"))) == Admission()
    assert await webhook.validate(request(BAD, operation="DELETE")) == Admission()


async def test_status_and_strangers_pass(webhook: Webhook) -> None:
    assert await webhook.validate(request(BAD, operation="UPDATE", sub_resource="status")) == Admission()
    assert await webhook.validate(request(written("apps/v1", "Deployment", "x", {}))) == Admission()


@pytest.mark.parametrize(
    ("spec", "patched"),
    [
        (None, ["/spec", "/spec/populateJail", "/spec/slurmNodes", f"{LOGIN}", f"{LOGIN}/sshdServiceType"]),
        ({"slurmNodes": {"worker": {}}}, ["/spec/populateJail", LOGIN, f"{LOGIN}/sshdServiceType"]),
        ({"populateJail": {"enabled": False}, "slurmNodes": {"login": {"size": 2}}}, [f"{LOGIN}/sshdServiceType"]),
        ({"populateJail": {"image": "x"}, "slurmNodes": {"login": {"sshdServiceNodePort": 30022}}}, []),
        ({"populateJail": {}, "slurmNodes": {"login": {"sshdServiceType": "ClusterIP"}}}, []),
    ],
)
async def test_a_new_cluster_gets_what_its_manifest_is_silent_about(
    webhook: Webhook, spec: Manifest | None, patched: list[str]
) -> None:
    bare = cluster() | ({"spec": spec} if spec is not None else {})
    if spec is None:
        del bare["spec"]
    assert [it["path"] for it in (await webhook.complete(request(bare))).patch] == patched
    assert await webhook.complete(request(bare, operation="UPDATE", old=bare)) == Admission()
    assert await webhook.complete(request(slinky("NodeSet"))) == Admission()


def test_every_kind_is_registered_for_writes_and_none_for_deletion() -> None:
    webhook, _, _ = operator_webhooks.validating(Place("isthmus"))["webhooks"]
    asked = {
        (rule["apiGroups"][0], rule["apiVersions"][0], resource)
        for rule in webhook["rules"]
        for resource in rule["resources"]
    }
    assert asked == {(kind.group, kind.version, kind.plural) for kind in KINDS}
    assert {operation for rule in webhook["rules"] for operation in rule["operations"]} == {"CREATE", "UPDATE"}


def test_a_place_is_a_service_or_a_url() -> None:
    service = operator_webhooks.validating(Place("isthmus"), namespaces=["a"])["webhooks"][0]
    assert service["clientConfig"]["service"]["path"] == "/validate"
    assert service["namespaceSelector"]["matchExpressions"][0]["values"] == ["a"]
    url: dict[str, Any] = operator_webhooks.validating(Place("isthmus", url="https://127.0.0.1:1"))["webhooks"][0]
    assert url["clientConfig"] == {"url": "https://127.0.0.1:1/validate"}


async def test_nodes_that_stand_in_slurm_conf_stay_there(webhook: Webhook) -> None:
    """Their jobs would fail if the NodeSet came to name its nodes otherwise, though its policy was taken away."""
    old = slinky("NodeSet")
    old["metadata"]["annotations"] = {names.ANNOUNCED_ANNOTATION: "true"}
    new = {**old, "spec": {**old["spec"], "scalingMode": "DaemonSet"}}
    with pytest.raises(Terminal, match="cannot become DaemonSet"):
        await webhook.validate(request(new, operation="UPDATE", old=old))
    plain = slinky("NodeSet")
    new = {**plain, "spec": {**plain["spec"], "scalingMode": "DaemonSet"}}
    await webhook.validate(request(new, operation="UPDATE", old=plain))

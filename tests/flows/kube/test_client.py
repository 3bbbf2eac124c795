"""Every call of the client, on a real API server."""

import asyncio
from typing import Any

import pytest

from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.errors import (
    AlreadyExists,
    Conflict,
    FieldConflict,
    Forbidden,
    Invalid,
    NotFound,
    Rejected,
    TooManyRequests,
)
from isthmus.model.base import Kind
from isthmus.model.lease import LEASES, Lease, LeaseSpec
from isthmus.model.meta import Key, ObjectMeta, Partial
from isthmus.model.pod import PODS
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.conftest import CONFIG_MAPS, Through, config_map, pod

DEPLOYMENTS: Kind[dict[str, Any]] = Kind(dict[str, Any], "apps/v1", "deployments", "Deployment")
BUDGETS: Kind[dict[str, Any]] = Kind(dict[str, Any], "policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
NODES: Kind[dict[str, Any]] = Kind(dict[str, Any], "v1", "nodes", "Node", namespaced=False)


async def test_create_returns_what_the_server_made_of_it(client: Client, namespace: str) -> None:
    created = await client.create(PODS, pod(namespace, "web"))
    assert created.metadata.key == Key(namespace, "web")
    assert created.spec.scheduler_name == "default-scheduler"
    assert created.status.phase == "Pending"
    assert await client.get(PODS, f"{namespace}/web") == created


async def test_create_takes_structs(client: Client, namespace: str) -> None:
    lease = Lease(ObjectMeta(name="leader", namespace=namespace), LeaseSpec(holder_identity="me"))
    created = await client.create(LEASES, lease)
    assert created.spec == lease.spec
    assert created.metadata.resource_version


async def test_dry_run_creates_nothing(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "ghost"), dry_run=True)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, Key(namespace, "ghost"))


async def test_a_misspelt_field_is_refused(client: Client, namespace: str) -> None:
    with pytest.raises(Rejected, match=r"spec\.nodename"):
        await client.create(PODS, pod(namespace, "web", nodename="n1"))


async def test_a_second_create_says_already_exists(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "one"))
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map(namespace, "one"))


async def test_an_object_that_breaks_a_rule_is_invalid(client: Client, namespace: str) -> None:
    with pytest.raises(Invalid) as caught:
        await client.create(PODS, pod(namespace, "Not_A_Name"))
    assert caught.value.status.causes[0].field == "metadata.name"


async def test_a_kind_that_is_not_served_is_not_found(client: Client, namespace: str) -> None:
    unknown: Kind[Partial] = Kind(Partial, "example.org/v1", "things", "Thing")
    with pytest.raises(NotFound):
        await client.list(unknown, namespace=namespace)


async def test_list_gives_all_pages_at_one_version(client: Client, namespace: str) -> None:
    for number in range(7):
        await client.create(CONFIG_MAPS, config_map(namespace, f"page-{number}", n=str(number)))
    ours = "metadata.name!=kube-root-ca.crt"
    listed = await client.list(CONFIG_MAPS, namespace=namespace, fields=ours, limit=3)
    assert [found["metadata"]["name"] for found in listed.items] == [f"page-{number}" for number in range(7)]
    assert listed.version
    assert listed.metadata.continue_ == ""


async def test_a_large_object_goes_both_ways(client: Client, namespace: str) -> None:
    text = "x" * 700_000
    created = await client.create(CONFIG_MAPS, config_map(namespace, "large", text=text))
    assert created["data"] == {"text": text}
    assert await client.get(CONFIG_MAPS, f"{namespace}/large") == created


async def test_the_next_page_is_asked_for_before_this_one_is_complete(
    client: Client, namespace: str, through: Through
) -> None:
    for number in range(6):
        await client.create(CONFIG_MAPS, config_map(namespace, f"m{number}", text="x" * 1000))
    async with through() as (proxy, config), Client(config) as behind:
        proxy.hang(after_bytes=2000, path="*/configmaps?limit=3", times=1)
        async with asyncio.TaskGroup() as group:
            listing = group.create_task(behind.list(CONFIG_MAPS, namespace=namespace, limit=3))
            await proxy.until_seen(path="*continue=*")
            listing.cancel()


async def test_list_selects_by_labels_and_fields(client: Client, namespace: str) -> None:
    for name, colour in [("a", "red"), ("b", "blue")]:
        manifest = config_map(namespace, name)
        manifest["metadata"]["labels"] = {"colour": colour}
        await client.create(CONFIG_MAPS, manifest)
    by_label = await client.list(CONFIG_MAPS, namespace=namespace, labels="colour in (blue)")
    by_field = await client.list(CONFIG_MAPS, namespace=namespace, fields="metadata.name=a")
    assert [found["metadata"]["name"] for found in by_label.items + by_field.items] == ["b", "a"]


async def test_list_starts_again_when_its_snapshot_is_gone(
    client: Client, namespace: str, through: Through
) -> None:
    for number in range(5):
        await client.create(CONFIG_MAPS, config_map(namespace, f"page-{number}"))
    gone = b'{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}'
    async with through() as (proxy, config), Client(config) as behind:
        proxy.respond(410, body=gone, path="*continue=*", times=1)
        listed = await behind.list(
            CONFIG_MAPS, namespace=namespace, fields="metadata.name!=kube-root-ca.crt", limit=2
        )
        assert [found["metadata"]["name"] for found in listed.items] == [f"page-{number}" for number in range(5)]
        assert proxy.count(path="*continue=*") == 1


async def test_of_two_writers_the_second_gets_a_conflict(client: Client, namespace: str) -> None:
    first = await client.create(CONFIG_MAPS, config_map(namespace, "shared", by="nobody"))
    key, version = Key(namespace, "shared"), {"resourceVersion": first["metadata"]["resourceVersion"]}
    await client.merge_patch(CONFIG_MAPS, key, {"metadata": version, "data": {"by": "one"}})
    with pytest.raises(Conflict):
        await client.merge_patch(CONFIG_MAPS, key, {"metadata": version, "data": {"by": "two"}})
    assert (await client.get(CONFIG_MAPS, key))["data"] == {"by": "one"}


async def test_merge_patch_changes_and_removes_fields(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "m", keep="1", drop="2"))
    patched = await client.merge_patch(CONFIG_MAPS, Key(namespace, "m"), {"data": {"drop": None, "new": "3"}})
    assert patched["data"] == {"keep": "1", "new": "3"}


async def test_merge_patch_is_conditional_with_a_version(client: Client, namespace: str) -> None:
    stale = await client.create(CONFIG_MAPS, config_map(namespace, "m"))
    await client.merge_patch(CONFIG_MAPS, Key(namespace, "m"), {"data": {"a": "1"}})
    version = {"resourceVersion": stale["metadata"]["resourceVersion"]}
    with pytest.raises(Conflict):
        await client.merge_patch(CONFIG_MAPS, Key(namespace, "m"), {"metadata": version, "data": {"a": "2"}})


async def test_json_patch_tests_before_it_changes(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "j", state="old"))
    steps = [
        {"op": "test", "path": "/data/state", "value": "old"},
        {"op": "replace", "path": "/data/state", "value": "new"},
    ]
    patched = await client.json_patch(CONFIG_MAPS, Key(namespace, "j"), steps)
    assert patched["data"] == {"state": "new"}
    with pytest.raises(Invalid):
        await client.json_patch(CONFIG_MAPS, Key(namespace, "j"), steps)


async def test_apply_removes_what_it_no_longer_says(client: Client, namespace: str) -> None:
    await client.apply(CONFIG_MAPS, config_map(namespace, "a", one="1", two="2"), manager="us")
    applied = await client.apply(CONFIG_MAPS, config_map(namespace, "a", one="1"), manager="us")
    assert applied["data"] == {"one": "1"}


async def test_apply_names_the_fields_that_another_manager_owns(client: Client, namespace: str) -> None:
    await client.apply(CONFIG_MAPS, config_map(namespace, "a", size="1"), manager="them")
    with pytest.raises(FieldConflict) as caught:
        await client.apply(CONFIG_MAPS, config_map(namespace, "a", size="2"), manager="us")
    assert ".data.size" in str(caught.value)
    assert "them" in str(caught.value)
    forced = await client.apply(CONFIG_MAPS, config_map(namespace, "a", size="2"), manager="us", force=True)
    assert forced["data"] == {"size": "2"}


async def test_delete_spares_another_object_of_the_same_name(client: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAPS, config_map(namespace, "d"))
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, Key(namespace, "d"), uid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, Key(namespace, "d"), version="1")
    await client.delete(CONFIG_MAPS, Key(namespace, "d"), uid=created["metadata"]["uid"])
    with pytest.raises(NotFound):
        await client.delete(CONFIG_MAPS, Key(namespace, "d"))


async def test_delete_can_leave_the_owned_objects(client: Client, namespace: str) -> None:
    owner = await client.create(CONFIG_MAPS, config_map(namespace, "owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = config_map(namespace, "owned")
    owned["metadata"]["ownerReferences"] = [reference]
    await client.create(CONFIG_MAPS, owned)
    await client.delete(CONFIG_MAPS, Key(namespace, "owner"), propagation="Orphan")
    async with asyncio.timeout(90):
        while "ownerReferences" in (await client.get(CONFIG_MAPS, Key(namespace, "owned")))["metadata"]:  # noqa: ASYNC110 - the server is asked: nobody tells us
            await asyncio.sleep(0.05)


async def test_delete_all_takes_the_selected(client: Client, namespace: str) -> None:
    for name in ("x", "y"):
        await client.create(CONFIG_MAPS, config_map(namespace, name))
    await client.delete_all(CONFIG_MAPS, namespace=namespace, fields="metadata.name=x")
    left = await client.list(CONFIG_MAPS, namespace=namespace)
    assert {found["metadata"]["name"] for found in left.items} - {"kube-root-ca.crt"} == {"y"}


async def test_delete_all_wants_a_namespace(client: Client) -> None:
    with pytest.raises(Terminal, match="namespace"):
        await client.delete_all(CONFIG_MAPS)


async def test_status_is_written_apart(client: Client, namespace: str) -> None:
    await client.create(PODS, pod(namespace, "s"))
    status = {"status": {"phase": "Running", "message": "by hand"}}
    patched = await client.merge_patch(PODS, Key(namespace, "s"), status, subresource="status")
    assert (patched.status.phase, patched.status.message) == ("Running", "by hand")


async def test_bind_places_and_marks_the_pod_in_one_write(client: Client, namespace: str) -> None:
    created = await client.create(PODS, pod(namespace, "b"))
    key = created.metadata.key
    await client.bind(key, "some-node", uid=created.metadata.uid, annotations={"job": "7"}, labels={"id": "7"})
    bound = await client.get(PODS, key)
    assert bound.spec.node_name == "some-node"
    assert bound.metadata.annotations["job"] == "7"
    assert bound.metadata.labels["id"] == "7"


async def test_bind_refuses_another_pod_of_the_same_name_and_a_second_node(client: Client, namespace: str) -> None:
    created = await client.create(PODS, pod(namespace, "b"))
    with pytest.raises(Conflict):
        await client.bind(created.metadata.key, "n1", uid="00000000-0000-0000-0000-000000000000")
    await client.bind(created.metadata.key, "n1")
    with pytest.raises(Conflict, match="already assigned"):
        await client.bind(created.metadata.key, "n2")


async def test_evict_waits_for_the_disruption_budget(client: Client, namespace: str) -> None:
    manifest = pod(namespace, "e")
    manifest["metadata"]["labels"] = {"app": "e"}
    created = await client.create(PODS, manifest)
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "e"}}}
    await client.create(BUDGETS, {"metadata": {"namespace": namespace, "name": "e"}, "spec": budget})
    await client.bind(created.metadata.key, "n1")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.merge_patch(PODS, created.metadata.key, {"status": ready}, subresource="status")
    with pytest.raises(TooManyRequests) as caught:
        await client.evict(created.metadata.key, uid=created.metadata.uid)
    assert caught.value.after > 0
    await client.delete(BUDGETS, Key(namespace, "e"))
    await client.evict(created.metadata.key)
    assert (await client.get(PODS, created.metadata.key)).metadata.deletion_timestamp


async def test_raw_reads_anything(client: Client) -> None:
    assert await client.raw("/readyz/ping") == b"ok"  # of all that readiness is, what does not ask etcd
    assert b"gitVersion" in await client.raw("/version")


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a%2Fb", ""])
async def test_a_name_cannot_lead_to_another_path(client: Client, name: str) -> None:
    with pytest.raises(Terminal):
        await client.get(CONFIG_MAPS, Key("default", name))
    with pytest.raises(Terminal):
        await client.get(CONFIG_MAPS, Key(name, "kube-root-ca.crt"))


async def test_odd_names_are_quoted(client: Client) -> None:
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, Key("default", "a?watch=1&b#c d"))


async def test_a_namespaced_kind_wants_a_namespace(client: Client) -> None:
    with pytest.raises(Terminal, match="namespace"):
        await client.get(CONFIG_MAPS, "lonely")
    with pytest.raises(Terminal, match="are not namespaced"):
        await client.get(NODES, "default/n1")


async def test_a_manifest_of_another_kind_is_refused_before_it_is_sent(client: Client) -> None:
    with pytest.raises(Terminal, match="Secret"):
        await client.create(CONFIG_MAPS, {"kind": "Secret", "metadata": {"name": "x", "namespace": "default"}})


async def test_who_may_not_is_forbidden(control_plane: ControlPlaneBed, namespace: str) -> None:
    nobody = control_plane.plane.user("nobody", "nobody-at-all")
    async with Client(load(nobody)) as client:
        with pytest.raises(Forbidden, match="nobody-at-all"):
            await client.list(CONFIG_MAPS, namespace=namespace)

"""Definitions made from structs, accepted and enforced by a real API server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import uuid4

import pytest
from msgspec import Meta, field

from isthmus.kube.client import Client
from isthmus.kube.crd import DEFINITIONS, Column, Conversion, ScalePaths, Version, definition, install
from isthmus.kube.errors import Invalid, NotFound
from isthmus.model.base import EMPTY, Data, Kind
from isthmus.model.meta import Condition, Key, ObjectMeta
from isthmus.model.schema import FreeForm, IntOrString, Quantity, Rule, keyed_by, nullable, rules
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.scale import read_scale


class Policy(Enum):
    KEEP = "Keep"
    DROP = "Drop"


class Port(Data, frozen=True):
    """One port."""

    name: str
    number: Annotated[int, Meta(ge=1, le=65535)] = 8080


class Limits(Data, frozen=True):
    """How much."""

    seconds: Annotated[int, Meta(gt=0)] = 30
    share: Annotated[float, Meta(ge=0, lt=1)] = 0.5


class Spec(Data, frozen=True):
    """What is wanted."""

    partition: Annotated[str, Meta(pattern="^[a-z][a-z0-9-]*$", max_length=20)]
    """The partition of Slurm that takes the jobs."""
    replicas: Annotated[int, Meta(ge=0)] = 1
    policy: Policy = Policy.KEEP
    mode: Literal["fast", "safe"] = "safe"
    limits: Limits = Limits()
    ports: Annotated[tuple[Port, ...], Meta(max_length=3), keyed_by("name")] = ()
    users: frozenset[str] = frozenset()
    max_unavailable: IntOrString = "25%"
    memory: Quantity | None = None
    template: FreeForm = field(default_factory=dict)
    labels: Mapping[str, str] = EMPTY
    note: Annotated[str, nullable()] | None = None
    until: datetime | None = None
    low: int = 0
    high: int = 10


class Status(Data, frozen=True):
    """What is there."""

    replicas: int = 0
    selector: str = ""
    conditions: Annotated[tuple[Condition, ...], keyed_by("type")] = ()


class Pool(Data, frozen=True):
    """A pool of nodes."""

    spec: Annotated[Spec, rules(Rule("self.low <= self.high", "low must not be above high", ".low"))]
    metadata: ObjectMeta = ObjectMeta()
    status: Status = Status()


GROUP = "test.isthmus.example"
ALL_KINDS = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
POOLS: Kind[Pool] = Kind(Pool, f"{GROUP}/v1", "pools", "Pool")
RAW_POOLS: Kind[dict[str, Any]] = Kind(dict[str, Any], f"{GROUP}/v1", "pools", "Pool")


def pools(**changes: Any) -> dict[str, Any]:
    columns = (
        Column("Partition", ".spec.partition", description="Where jobs go"),
        Column("Ready", ".status.replicas", type="integer"),
        Column("Age", ".metadata.creationTimestamp", type="date"),
        Column("Note", ".spec.note", priority=1),
    )
    version = Version("v1", Pool, columns=columns, scale=ScalePaths())
    settings: dict[str, Any] = {"plural": "pools", "short_names": ("po8",), "categories": ("slurm-test",)}
    return definition(GROUP, "Pool", **({"versions": [version]} | settings | changes))


@pytest.fixture
async def served(client: Client) -> AsyncIterator[None]:
    await install(client, pools(), manager="test")
    # It is established; kubectl learns of it by the last two, which the API server makes a moment later.
    async with asyncio.timeout(60):
        for path, accept in (
            (f"/apis/{GROUP}/v1/pools", "application/json"),
            ("/apis", ALL_KINDS),
            (f"/openapi/v3/apis/{GROUP}/v1", "application/json"),
        ):
            while not await answered(client, path, accept):  # noqa: ASYNC110 - another process makes it true
                await asyncio.sleep(0.05)
    yield
    await client.delete_all(RAW_POOLS, namespace="default")


async def answered(client: Client, path: str, accept: str) -> bool:
    try:
        answer = await client.raw(path, accept=accept)
    except NotFound:
        return False
    return GROUP.encode() in answer and b"Pool" in answer


async def make(client: Client, **spec: Any) -> dict[str, Any]:
    manifest = {"metadata": {"namespace": "default", "name": f"p-{uuid4().hex[:8]}"}}
    return await client.create(RAW_POOLS, manifest | {"spec": {"partition": "gpu"} | spec})


@pytest.mark.usefixtures("served")
async def test_the_server_fills_in_our_defaults(client: Client) -> None:
    made = (await make(client))["spec"]
    assert made == {
        "partition": "gpu",
        "replicas": 1,
        "policy": "Keep",
        "mode": "safe",
        "limits": {"seconds": 30, "share": 0.5},
        "maxUnavailable": "25%",
        "low": 0,
        "high": 10,
    }


@pytest.mark.usefixtures("served")
async def test_what_the_server_keeps_decodes_to_the_struct(client: Client) -> None:
    made = await make(client, ports=[{"name": "http"}], maxUnavailable=2, memory="1Gi", users=["a", "b"])
    found = await client.get(POOLS, Key("default", made["metadata"]["name"]))
    assert found.spec.ports == (Port("http", 8080),)
    assert found.spec.policy is Policy.KEEP
    assert (found.spec.max_unavailable, found.spec.memory) == (2, "1Gi")
    assert found.spec.users == {"a", "b"}


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"partition": "Not Valid"}, r"spec\.partition.*should match"),
        ({"partition": "a" * 21}, r"spec\.partition.*Too long"),
        ({"replicas": -1}, r"spec\.replicas.*greater than or equal to 0"),
        ({"policy": "Maybe"}, r"spec\.policy.*Unsupported value"),
        ({"mode": "reckless"}, r"spec\.mode.*Unsupported value"),
        ({"limits": {"seconds": 0}}, r"spec\.limits\.seconds"),
        ({"limits": {"share": 1}}, r"spec\.limits\.share"),
        ({"ports": [{"name": "a"}, {"name": "a"}]}, r"spec\.ports\[1\].*Duplicate"),
        ({"ports": [{"number": 1}]}, r"spec\.ports\[0\]\.name"),
        ({"ports": [{"name": n} for n in "abcd"]}, r"spec\.ports.*Too many"),
        ({"ports": [{"name": "a", "number": 65536}]}, r"spec\.ports\[0\]\.number"),
        ({"users": ["a", "a"]}, r"spec\.users\[1\].*Duplicate"),
        ({"maxUnavailable": True}, r"spec\.maxUnavailable"),
        ({"memory": "much"}, r"spec\.memory"),
        ({"labels": {"a": 1}}, r"spec\.labels\.a"),
        ({"until": "tomorrow"}, r"spec\.until"),
        ({"low": 5, "high": 4}, "low must not be above high"),
        ({"partition": None}, r"spec\.partition"),
    ],
)
async def test_the_server_refuses_what_the_struct_does_not_allow(
    client: Client, spec: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Invalid, match=complaint):
        await make(client, **spec)


@pytest.mark.usefixtures("served")
async def test_free_form_fields_are_kept_and_others_refused(client: Client) -> None:
    template = {"spec": {"containers": [{"name": "x", "anything": [1, {"deep": None}]}]}}
    made = await make(client, template=template, note=None)
    assert made["spec"]["template"]["spec"]["containers"][0]["name"] == "x"
    assert made["spec"]["note"] is None  # nullable: null is kept and is not absence
    with pytest.raises(Exception, match="unknown field"):
        await make(client, tempalte={})


@pytest.mark.usefixtures("served")
async def test_managers_own_single_elements_of_a_keyed_list(client: Client) -> None:
    name = (await make(client))["metadata"]["name"]

    def ports(*found: str) -> dict[str, Any]:
        listed = [{"name": port, "number": 1} for port in found]
        return {"metadata": {"namespace": "default", "name": name}, "spec": {"partition": "gpu", "ports": listed}}

    await client.apply(RAW_POOLS, ports("one"), manager="first", force=True)
    both = await client.apply(RAW_POOLS, ports("two"), manager="second", force=True)
    assert {port["name"] for port in both["spec"]["ports"]} == {"one", "two"}


@pytest.mark.usefixtures("served")
async def test_status_and_scale_are_subresources(client: Client, control_plane: ControlPlaneBed) -> None:
    made = await make(client)
    key = Key("default", made["metadata"]["name"])
    status = {"status": {"replicas": 3, "selector": "app=pool"}}
    ignored = await client.merge_patch(RAW_POOLS, key, status)
    assert "status" not in ignored
    await client.merge_patch(RAW_POOLS, key, status, subresource="status")
    control_plane.kubectl("scale", "pool", key.name, "--replicas=5")
    scale = await read_scale(client, POOLS, key)
    assert (scale.spec.replicas, scale.status.replicas, scale.status.selector) == (5, 3, "app=pool")


@pytest.mark.usefixtures("served")
async def test_kubectl_shows_our_columns_names_and_descriptions(
    client: Client, control_plane: ControlPlaneBed
) -> None:
    await make(client, note="hello")
    heads = control_plane.kubectl("get", "po8").splitlines()[0].split()
    assert heads == ["NAME", "PARTITION", "READY", "AGE"]
    assert "NOTE" in control_plane.kubectl("get", "slurm-test", "-o", "wide").splitlines()[0]
    told = control_plane.kubectl("explain", "pool.spec")
    assert "The partition of Slurm that takes the jobs." in told
    assert "What is wanted." in told


class OldPool(Data, frozen=True):
    """A pool, as it used to be."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FreeForm = field(default_factory=dict)


async def test_several_versions_with_a_conversion_webhook_are_accepted(client: Client) -> None:
    old = Version("v1alpha1", OldPool, deprecated="use v2")
    new = Version("v2", Pool)
    conversion = Conversion("default", "converter", ca=b"", port=8443)
    manifest = definition("conversion." + GROUP, "Pool", plural="pools", versions=[new, old], conversion=conversion)
    await install(client, manifest, manager="test")
    raw = await client.raw(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pools.conversion.{GROUP}")
    assert b'"strategy":"Webhook"' in raw
    assert b'"deprecationWarning":"use v2"' in raw
    await client.delete(DEFINITIONS, f"pools.conversion.{GROUP}")


async def test_installing_again_changes_nothing(client: Client) -> None:
    await install(client, pools(), manager="test")
    before = await client.get(DEFINITIONS, f"pools.{GROUP}")
    await install(client, pools(), manager="test")
    assert await client.get(DEFINITIONS, f"pools.{GROUP}") == before

"""BridgePolicies, served and enforced by a real API server."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from isthmus.bridge.policies import crd
from isthmus.domain.bridge import tenancy
from isthmus.domain.bridge.joboptions import JobOptions
from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.crd import install
from isthmus.kube.errors import Invalid
from isthmus.model.base import Kind
from isthmus.model.policy import POLICIES
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually

RAW: Kind[dict[str, Any]] = Kind(
    dict[str, Any], POLICIES.api_version, POLICIES.plural, POLICIES.name, namespaced=False
)


@pytest.fixture
async def kube(control_plane: ControlPlaneBed) -> AsyncIterator[Client]:
    async with Client(load(control_plane.kubeconfig)) as client:
        await install(client, crd(), manager="test")
        yield client
        await client.delete_all(RAW)


async def make(kube: Client, **spec: Any) -> str:
    name = f"policy-{uuid4().hex[:8]}"
    await kube.create(RAW, {"metadata": {"name": name}, "spec": spec})
    return name


async def test_a_policy_is_kept_read_and_obeyed(kube: Client) -> None:
    name = await make(
        kube,
        namespaces=["physics"],
        namespaceSelector={"matchExpressions": [{"key": "team", "operator": "In", "values": ["physics"]}]},
        users={"default": "alice", "allowed": ["bob"]},
        accounts={"default": "physics"},
        partitions={"allowed": ["*"], "default": "gpu"},
        exclusive=False,
    )
    policy = await kube.get(POLICIES, name)
    for namespace, labels in (("physics", {}), ("other", {"team": "physics"})):
        grant = tenancy.grant_for([policy], namespace=namespace, namespace_labels=labels, service_account="")
        assert grant.policy == name
        assert tenancy.apply(grant, JobOptions(user_id="bob")) == JobOptions(
            user_id="bob", account="physics", partition="gpu", exclusive=False
        )
        with pytest.raises(
            Terminal, match=rf"user-id 'carol' is not allowed, only alice, bob \(BridgePolicy {name}"
        ):
            tenancy.apply(grant, JobOptions(user_id="carol"))


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({}, "name namespaces, or give a namespaceSelector"),
        ({"serviceAccounts": ["a"]}, "name namespaces, or give a namespaceSelector"),
        ({"namespaces": ["a b"]}, r"spec\.namespaces\[0\].*should match"),
        ({"namespaces": [""]}, r"spec\.namespaces\[0\]"),
        ({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}, "operator is In, NotIn"),
        ({"namespaces": ["a"], "users": {"allowed": ["alice"]}}, 'set a default, or allow "\\*"'),
        ({"namespaces": ["a"], "partitions": {}}, 'set a default, or allow "\\*"'),
        (
            {"namespaces": ["a"], "enforceExclusive": True},
            "set exclusive, the value that enforceExclusive enforces",
        ),
        ({"namespaces": ["a"], "qos": {"default": "*"}}, r"spec\.qos\.default.*should match"),
        ({"namespaces": ["a"], "accounts": {"default": "a,b"}}, r"spec\.accounts\.default.*should match"),
    ],
)
async def test_a_policy_that_would_not_do_what_it_says_is_refused(
    kube: Client, spec: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Invalid, match=complaint):
        await make(kube, **spec)


async def test_a_slip_in_a_field_is_refused(kube: Client) -> None:
    with pytest.raises(Exception, match="unknown field"):
        await make(kube, namespaces=["a"], acounts={"default": "physics"})


async def test_kubectl_shows_whom_a_policy_is_for(kube: Client, control_plane: ControlPlaneBed) -> None:
    await make(kube, namespaces=["physics"], accounts={"default": "physics", "allowed": ["physics", "guests"]})
    head, line = control_plane.kubectl("get", "bpol").splitlines()
    assert head.split() == ["NAME", "NAMESPACES", "ACCOUNTS", "PARTITIONS", "USERS", "AGE"]
    assert '["physics"]' in line
    assert '["physics","guests"]' in line
    # The API server describes a new kind only a second or so after it has begun to serve it.
    await eventually(lambda: POLICIES.group in control_plane.kubectl("get", "--raw=/openapi/v3"))
    told = control_plane.kubectl("explain", "bridgepolicy.spec")
    assert "Slurm users that jobs may run as" in told

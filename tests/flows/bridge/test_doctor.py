"""The doctor on an installation of the bridge as the chart makes it: what it reads, and what it puts right."""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import jwt
import pytest
import yaml

from isthmus import names
from isthmus.bridge import policies
from isthmus.domain.diagnosis import Finding
from isthmus.inspect import doctor, repairs
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.crd import install
from isthmus.runtime.certs import Material, renew
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.bridge.test_chart import Helm, helm, helm_program

__all__ = ["helm", "helm_program"]

KINDS = {"Deployment", "ConfigMap", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}


class Installed:
    """What a chart made, without nodes to run it on."""

    def __init__(self, plane: ControlPlaneBed, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self.material = renew(None, ["bridge"], now=datetime.now(UTC))

    def apply(self, *manifests: dict[str, Any]) -> None:
        text = "---\n".join(map(yaml.safe_dump, manifests))
        self.plane.kubectl("apply", f"--namespace={self.namespace}", "--filename=-", stdin=text)

    def secret(self, name: str, **data: bytes) -> None:
        encoded = {key.replace("_", "."): b64encode(value).decode() for key, value in data.items()}
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded})

    def certificates(self, material: Material) -> None:
        name = f"{self.namespace}-admission-tls"
        self.secret(name, ca_crt=material.bundle, tls_crt=material.chain)

    async def findings(self) -> dict[str, Finding]:
        async with Client(load(self.plane.kubeconfig)) as client:
            report = await doctor.examine(client, namespace=self.namespace, now=time.time())
        return {it.what: it for it in report.findings if self.namespace in f"{it.where} {it.fix}"}

    def bundles(self) -> set[str]:
        kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
        found = json.loads(self.plane.kubectl("get", kinds, "--output=json"))["items"]
        mine = [it for it in found if it["metadata"]["name"] == f"{self.namespace}-admission"]
        return {hook["clientConfig"].get("caBundle", "") for it in mine for hook in it["webhooks"]}


@pytest.fixture
def installed(control_plane: ControlPlaneBed, helm: Helm, namespace: str) -> Iterator[Installed]:
    config = f"config: {{schedulerName: {namespace}, slurmRestApi: 'http://slurm-restapi.slurm:6820'}}"
    rendered = helm.template(f"fullnameOverride: {namespace}\nnamespaceOverride: {namespace}\n{config}")
    found = Installed(control_plane, namespace)
    found.apply(*(it for it in rendered if it["kind"] in KINDS))
    yield found
    hooks = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
    control_plane.kubectl("delete", hooks, f"{namespace}-admission", "--wait=false")


async def test_what_is_missing_expired_or_replaced_is_found(installed: Installed) -> None:
    found = await installed.findings()
    assert "the bridge's token for Slurm is missing" in found
    assert "the certificate of the webhooks is missing" in found
    assert "no webhook of the bridge is ready: new pods for Slurm are refused" in found

    old = jwt.encode({"sun": "slurm", "exp": int(time.time()) - 7300}, "k" * 32, algorithm="HS256")
    installed.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "slurm-bridge-token"},
            "stringData": {"auth-token": old},
        }
    )
    installed.certificates(installed.material)
    found = await installed.findings()
    assert "the bridge's token for Slurm expired 2 h ago" in found
    assert not [it for it in found if "certificate of the webhooks" in it]

    distrust = found["the API server does not trust the webhooks' certificate: new pods for Slurm are refused"]
    assert distrust.fix
    assert distrust.fix.target == f"{installed.namespace}/{installed.namespace}"
    async with Client(load(installed.plane.kubeconfig)) as client:
        await repairs.in_kubernetes(client, distrust.fix)
    assert installed.bundles() == {b64encode(installed.material.bundle).decode()}
    assert distrust.what not in await installed.findings()


async def test_a_policy_and_a_pod_for_nobody(control_plane: ControlPlaneBed, namespace: str) -> None:
    async with Client(load(control_plane.kubeconfig)) as client:
        await install(client, policies.crd(), manager=names.FIELD_MANAGER)
    policy = {
        "apiVersion": "isthmus.dev/v1alpha1",
        "kind": "BridgePolicy",
        "metadata": {"name": namespace},
        "spec": {"namespaces": ["gone"], "accounts": {"allowed": ["*"]}},
    }
    control_plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(policy))
    try:
        async with Client(load(control_plane.kubeconfig)) as client:
            report = await doctor.examine(client, now=time.time())
    finally:
        await asyncio.to_thread(control_plane.kubectl, "delete", "bridgepolicy", namespace)
    assert f"BridgePolicy {namespace} has no effect" in {it.what for it in report.findings}

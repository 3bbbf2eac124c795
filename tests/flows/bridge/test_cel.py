"""Selectors of devices, evaluated by us and by the API server itself.

An admission policy that refuses everything tells in its message what the API server makes of many expressions.
"""

import asyncio
import random
from typing import Any

import pytest

from isthmus.domain.languages import cel
from isthmus.domain.languages.celvalues import CelError, Quantity, Version, WithDefault
from isthmus.domain.languages.quantity import parse
from isthmus.errors import IsthmusError
from isthmus.kube.client import Client
from isthmus.model.base import Kind
from tests.bed.seeds import seeds
from tests.flows.bridge.conftest import WITHIN

_GROUP = "admissionregistration.k8s.io/v1"
POLICIES: Kind[dict[str, Any]] = Kind(
    dict[str, Any], _GROUP, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
BINDINGS: Kind[dict[str, Any]] = Kind(
    dict[str, Any],
    _GROUP,
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
CONFIG_MAPS: Kind[dict[str, Any]] = Kind(dict[str, Any], "v1", "configmaps", "ConfigMap")
DOMAIN = "gpu.example.com"
DEVICE = {
    "driver": DOMAIN,
    "attributes": WithDefault(
        {DOMAIN: {"index": 3, "model": "LATEST-GPU", "ecc": True, "version": Version.of("1.10.0-rc.2")}}
    ),
    "capacity": WithDefault({DOMAIN: {"memory": Quantity(parse("80Gi"))}}),
}
AS_CEL = (
    f'{{"driver": dyn("{DOMAIN}"), "attributes": dyn({{"{DOMAIN}": {{"index": dyn(3), "model": dyn("LATEST-GPU"), '
    '"ecc": dyn(true), "version": dyn(semver("1.10.0-rc.2"))}}), '
    f'"capacity": dyn({{"{DOMAIN}": {{"memory": dyn(quantity("80Gi"))}}}})}}'
)
COUNT = 60


class Expressions:
    """Makes boolean expressions about the device, most of which can be evaluated."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - to be repeated

    def boolean(self, depth: int = 3) -> str:
        pick = self._random.choice
        if depth and self._random.random() < 0.5:
            return pick(
                [
                    f"({self.boolean(depth - 1)} && {self.boolean(depth - 1)})",
                    f"({self.boolean(depth - 1)} || {self.boolean(depth - 1)})",
                    f"!({self.boolean(depth - 1)})",
                    f"({self.boolean(depth - 1)} ? {self.boolean(depth - 1)} : {self.boolean(depth - 1)})",
                    f"[1, 2, 3].{pick(['exists', 'all'])}(i, i {self._comparison()} {self.integer()})",
                ]
            )
        text, attributes = self.text(), f"device.attributes['{DOMAIN}']"
        return pick(
            [
                f"{self.integer()} {self._comparison()} {self.integer()}",
                f"{self.integer()} in [{self.integer()}, {self.integer()}]",
                f"{text}.{pick(['startsWith', 'endsWith', 'contains'])}({self.text()})",
                f"{text} {self._comparison()} {self.text()}",
                f"{text}.matches('^[A-Z]+-{pick(['GPU', 'TPU'])}$')",
                f"has({attributes}.{pick(['index', 'model', 'nothing'])})",
                f"{attributes}.ecc",
                f"device.driver == {text}",
                f"{self.amount()}.{pick(['isGreaterThan', 'isLessThan'])}({self.amount()})",
                f"{self.amount()}.compareTo({self.amount()}) {self._comparison()} 0",
                f"{self.version()}.{pick(['isGreaterThan', 'isLessThan'])}({self.version()})",
                f"{self.version()}.minor() {self._comparison()} {self.integer()}",
                f"{attributes}.?{pick(['index', 'nothing'])}.orValue({self.integer()}) == {self.integer()}",
            ]
        )

    def _comparison(self) -> str:
        return self._random.choice(["==", "!=", "<", "<=", ">", ">="])

    def integer(self) -> str:
        pick = self._random.choice
        number = str(self._random.randint(-4, 9))
        return pick(
            [
                number,
                number,
                f"int(device.attributes['{DOMAIN}'].index)",
                f"size({self.text()})",
                f"({number} {pick('+-*')} {self._random.randint(1, 9)})",
                f"({number} {pick('/%')} {self._random.randint(1, 9)})",
            ]
        )

    def text(self) -> str:
        attribute = f"string(device.attributes['{DOMAIN}'].model)"
        return self._random.choice(
            ["'LATEST'", "'GPU'", "'LATEST-TPU'", "''", attribute, f"{attribute}.lowerAscii()"]
        )

    def amount(self) -> str:
        amounts = ["1", "80Gi", "81920Mi", "1e11", "500m", "0.5", "85899345920"]
        return self._random.choice(
            [f"quantity('{self._random.choice(amounts)}')", f"device.capacity['{DOMAIN}'].memory"]
        )

    def version(self) -> str:
        versions = ["1.10.0", "1.9.9", "1.10.0-rc.2", "1.10.0-rc.10", "1.10.0-alpha", "2.0.0+build"]
        return self._random.choice(
            [f"semver('{self._random.choice(versions)}')", f"device.attributes['{DOMAIN}'].version"]
        )


@pytest.mark.parametrize("seed", seeds(1))
async def test_the_api_server_finds_the_same(client: Client, namespace: str, seed: int) -> None:
    made = Expressions(seed)
    texts: list[str] = []
    ours = ""
    while len(texts) < COUNT:
        text = made.boolean()
        try:
            ours += "t" if cel.holds(text, {"device": DEVICE}) else "f"
        except CelError:
            continue
        texts.append(text)
    name = f"cel-{namespace}"
    variables = [{"name": "device", "expression": AS_CEL}]
    variables += [
        {"name": f"e{at}", "expression": f"({text.replace('device.', 'variables.device.')}) ? 't' : 'f'"}
        for at, text in enumerate(texts)
    ]
    message = " + ".join(f"variables.e{at}" for at in range(len(texts)))
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules, "namespaceSelector": selector},
        "variables": variables,
        "validations": [{"expression": "false", "messageExpression": f"'<' + {message} + '>'"}],
    }
    await client.create(POLICIES, {"metadata": {"name": name}, "spec": spec})
    binding = {"policyName": name, "validationActions": ["Deny"]}
    await client.create(BINDINGS, {"metadata": {"name": name}, "spec": binding})
    try:
        theirs = await asyncio.wait_for(told(client, namespace), WITHIN)
    finally:
        await client.delete(BINDINGS, name)
        await client.delete(POLICIES, name)
    wrong = [text for text, one, other in zip(texts, ours, theirs, strict=True) if one != other]
    assert wrong == []


async def told(client: Client, namespace: str) -> str:
    """Try to create something until the policy refuses it; return what it says."""
    while True:
        try:
            await client.create(CONFIG_MAPS, {"metadata": {"namespace": namespace, "name": "it"}}, dry_run=True)
        except IsthmusError as error:
            if "<" in error.what:
                return error.what.partition("<")[2].partition(">")[0]
            raise
        await asyncio.sleep(0.1)

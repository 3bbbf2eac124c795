"""Gangs of kinds whose controllers do not run here: tests make the pods as those would."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from isthmus.model.base import Kind
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.workload_controllers import apply_kinds
from tests.flows.bridge.conftest import Bridge
from tests.flows.bridge.test_gangs import Gangs
from tests.flows.bridge.whole import whole


@pytest.fixture
async def gangs(bridge: Bridge, namespace: str, control_plane: ControlPlaneBed) -> AsyncIterator[Gangs]:
    """A bridge with all its controllers; pods are made by the test."""
    await asyncio.to_thread(apply_kinds, control_plane, "podgroup")
    async with whole(bridge):
        yield Gangs(bridge, namespace)


def definition(kind: Kind[Any]) -> dict[str, Any]:
    """Make a definition that takes any spec: what stands in it is the controllers' affair."""
    group, _, version = kind.api_version.partition("/")
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}}
    return {
        "metadata": {"name": f"{kind.plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind.name, "plural": kind.plural, "singular": kind.name.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }

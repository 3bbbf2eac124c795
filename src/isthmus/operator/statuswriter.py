"""Writes the status of custom resources, when it says something new."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from isthmus.clock import utc_now
from isthmus.domain.kube import conditions
from isthmus.domain.operator.manifests.common import hash_of
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.base import Kind
from isthmus.model.meta import Condition, Key, Reported

T = TypeVar("T", bound=Reported)


class Reporter:
    """Keeps the status of objects up to date, with one write per change."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: dict[tuple[Kind[Any], Key], tuple[str, str]] = {}

    async def report(
        self, kind: Kind[T], about: T, fields: Mapping[str, Any], held: Iterable[Condition]
    ) -> tuple[Condition, ...]:
        """Write conditions and `fields` as in the status, zeros included. Return the conditions.

        Fields that were reported before and are not reported now are removed.
        """
        meta, before = about.metadata, about.status
        fresh = conditions.merged(before.conditions, held, generation=meta.generation, now=utc_now())
        status = {
            **fields,
            "observedGeneration": meta.generation,
            "conditions": [_written(it) for it in fresh],
        }
        if msgspec.convert(status, type(before), strict=False) == before:
            return fresh
        told = (meta.resource_version, hash_of(status))
        if self._told.get((kind, meta.key)) == told:
            return fresh  # written already; the cache has not heard of it yet
        gone = dict.fromkeys(key for key in msgspec.to_builtins(before) if key not in status)
        with suppress(NotFound):
            await self._client.merge_patch(kind, meta.key, {"status": {**gone, **status}}, subresource="status")
        self._told[kind, meta.key] = told
        return fresh


def _written(condition: Condition) -> dict[str, Any]:
    """Write a condition with all the fields that the API insists on."""
    required = {"reason": condition.reason or "AsExpected", "message": condition.message}
    return {**msgspec.to_builtins(condition), **required}

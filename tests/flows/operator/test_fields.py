"""Every optional field of every kind can be set and unset, on a real API server with all controllers at work.

From objects that work, a field is set, and unset together with another change. That change arrives, every object
says so of its newest specification, and what there is in the end is what there was: no field of ours is left over,
and no template has changed, so nothing restarts. `ISTHMUS_SEEDS` says how many fields are tried.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from isthmus import names
from isthmus.domain.kube.conditions import DEGRADED
from isthmus.domain.operator import partnames
from isthmus.kube.client import Client
from isthmus.kube.errors import Invalid
from isthmus.model.base import Kind
from isthmus.model.meta import condition
from isthmus.model.nodeconfigurator import NODE_CONFIGURATORS
from isthmus.model.objects import CONFIGMAPS, SECRETS
from isthmus.model.slinky import ACCOUNTINGS, CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS, TOKENS
from isthmus.model.soperator import NEBIUS_NODESETS, SLURM_CLUSTERS
from isthmus.operator.webhook import judge
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.seeds import seeds
from tests.flows.operator import whole_bed
from tests.flows.operator.field_values import Spec, Trial, trials
from tests.flows.operator.parts_bed import JWT_KEY, JWT_KEY_REF, SLURM_KEY, SLURM_KEY_REF
from tests.flows.operator.whole_bed import Bed, unsalted

KEYS: Final[Spec] = {"slurmKeyRef": SLURM_KEY_REF, "jwtKeyRef": JWT_KEY_REF}
OF_ONE: Final[Spec] = {"controllerRef": {"name": "one"}}
BASES: Final[dict[Kind[Any], tuple[str, Spec]]] = {
    CONTROLLERS: ("one", KEYS),
    ACCOUNTINGS: ("accounts", KEYS),
    RESTAPIS: ("rest", OF_ONE),
    LOGINSETS: ("entry", OF_ONE),
    NODESETS: ("some", {**OF_ONE, "replicas": 2}),
    TOKENS: ("pass", {"username": "alice", "jwtKeyRef": JWT_KEY_REF}),
    SLURM_CLUSTERS: (
        "whole",
        {
            "k8sNodeFilters": [{"name": "some", "nodeSelector": {"example.org/kind": "some"}}],
            "volumeSources": [{"name": "data", "emptyDir": {}}],
            "slurmNodes": {
                "worker": {"size": 1},
                "accounting": {"enabled": True},
                "exporter": {"enabled": True},
            },
        },
    ),
    NEBIUS_NODESETS: ("gpu", {"clusterName": "whole", "replicas": 1}),
    NODE_CONFIGURATORS: (
        "machines",
        {"rebooter": {"serviceAccountName": "default", "nodeSelector": {"example.org/kind": "none"}}},
    ),
}
"""An object of each kind: its name, and a specification that works."""

WHERE_THEY_COUNT: Final[dict[str, Spec]] = {
    "NodeConfigurator.slurm:customContainer.": {
        "rebooter": {"enabled": False},
        "customContainer": {"enabled": True, "image": {"repository": "example.org/image", "tag": "1"}},
    },
}
"""Another specification for fields that have no effect in that of their kind, by how their paths begin."""

AT_A_TIME: Final = 6
_NEVER: Final = ("cannot be changed", "is required", "needs persistence")
"""What rules say of fields that stay as they are from the beginning; somebody who tries is told at once."""

NEXT: Final[dict[Kind[Any], Spec]] = {
    CONTROLLERS: {"extraConf": "MinJobAge=301\n"},
    ACCOUNTINGS: {"extraConf": "CommitDelay=1\n"},
    RESTAPIS: {"replicas": 2},
    LOGINSETS: {"replicas": 2},
    NODESETS: {"partition": {"enabled": True}},
    TOKENS: {"secretRef": {"name": "elsewhere", "key": "token"}},
    SLURM_CLUSTERS: {"slurmNodes": {"login": {"size": 2}}},
    NEBIUS_NODESETS: {"replicas": 2},
    NODE_CONFIGURATORS: {"rebooter": {"evictionMethod": "drain"}},
}
"""Another change of each kind, which shows in what is made from it."""


def merged(spec: Spec, change: Spec) -> Spec:
    """Put a change over a specification."""
    both = dict(spec)
    for name, value in change.items():
        inner = both.get(name)
        both[name] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


def refused(trial: Trial) -> list[str]:
    """Say why admission lets nobody try this."""
    if trial.kind is NODE_CONFIGURATORS:
        return []  # the schema alone judges them
    name, base = BASES[trial.kind]
    meta = {"metadata": {"name": name, "namespace": "any"}}
    found = []
    for spec, before in ((trial.with_it, base), (trial.without_it, trial.with_it)):
        found += judge(trial.kind, {**meta, "spec": spec}, {**meta, "spec": before}).problems
    return found


def every() -> Iterator[Trial]:
    """Go through the optional fields of all kinds."""
    for kind, (_, base) in BASES.items():
        for trial in trials(kind, base):
            other = next((it for begins, it in WHERE_THEY_COUNT.items() if trial.path.startswith(begins)), None)
            yield trial if other is None else next(it for it in trials(kind, other) if it.path == trial.path)


def test_every_field_has_a_value_that_admission_takes() -> None:
    odd = {it.path: why[0] for it in every() if (why := refused(it))}
    # One of two has to be given, or none of our volumes can be of that sort, or it stays as it began.
    known = ("set either", "set volumeSourceName", "all nodes share it", "needs rawConfig", *_NEVER)
    assert {path: why for path, why in odd.items() if not any(it in why for it in known)} == {}


def test_the_soak_tries_every_field() -> None:
    """Each seed tries as many; more seeds than that would try some of them twice."""
    found = re.search(r"ISTHMUS_SEEDS=(\d+) .*test_fields", (Path(__file__).parents[3] / "Makefile").read_text())
    assert found
    assert int(found[1]) * AT_A_TIME >= len(list(every()))


class Fields:
    """Objects of all kinds, whose fields are set and unset."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.usual: dict[str, Any] = {}
        self.changed: dict[Kind[Any], dict[str, Any]] = {}
        self.salts: dict[str, str] = {}
        """The uids of Controllers and Accountings, by the objects that have hashes of their secrets."""

    async def begin(self) -> None:
        """Make one of each kind, and see what comes of them, and of the next change of each."""
        kube, meta = self.bed.kube, {"namespace": self.bed.namespace}
        data = {"slurm.key": SLURM_KEY, "jwt.key": JWT_KEY}
        for (name, _), reference in zip(data.items(), (SLURM_KEY_REF, JWT_KEY_REF), strict=True):
            text = {"stringData": {name: data[name].decode()}}
            await kube.create(SECRETS, {"metadata": {**meta, "name": reference["name"]}, **text})
        await kube.create(
            CONFIGMAPS, {"metadata": {**meta, "name": "some-files"}, "data": {"some.sh": "#!/bin/sh\n"}}
        )
        for kind, (name, spec) in BASES.items():
            await kube.create(kind, {"metadata": {**meta, "name": name}, "spec": spec})
        self.usual, self.salts = await self.steady(), self._salts()

    def _salts(self) -> dict[str, str]:
        world = self.bed.world
        slurmdbds = (it.metadata for it in world.accountings.values())
        slurmctlds = (it.metadata for it in world.controllers.values())
        return {
            **{f"StatefulSet {partnames.accounting(it.name)}": it.uid for it in slurmdbds},
            **{f"Secret {partnames.auth(it.name)}": it.uid for it in slurmctlds},
        }

    def _comparable(self, found: dict[str, Any]) -> dict[str, Any]:
        """Leave out what has to differ where one of them was taken away and made again."""
        remade = dict(self._salts().items() - self.salts.items())
        return {name: unsalted(it) if name in remade else it for name, it in found.items()}

    async def write(self, kind: Kind[Any], spec: Spec) -> None:
        """Give an object another specification, as a whole."""
        patch = [{"op": "replace", "path": "/spec", "value": spec}]
        await self.bed.kube.json_patch(kind, self.bed.key(BASES[kind][0]), patch)

    async def settled(self) -> dict[str, Any]:
        """Wait until every object has told of its newest specification, and nobody has anything to do."""
        async with asyncio.timeout(90):
            while True:
                await self.bed.quiet()
                found = [await self.bed.kube.get(kind, self.bed.key(name)) for kind, (name, _) in BASES.items()]
                if all(it.status.observed_generation == it.metadata.generation for it in found):
                    return await self.bed.objects()
                await asyncio.sleep(0.05)

    async def steady(self) -> dict[str, Any]:
        """See what there is when nothing changes any more, by Kubernetes' own controllers either."""
        found = await self.settled()
        while True:
            await asyncio.sleep(1)
            before, found = found, await self.settled()
            if found == before:
                return found

    async def until(self, wanted: dict[str, Any], what: str) -> None:
        """Wait until what there is, is this; the garbage collector may take half a minute."""
        differences = ["nothing was seen"]
        try:
            async with asyncio.timeout(60):
                while differences:
                    found = self._comparable(await self.settled())
                    if differences := _differences(found, self._comparable(wanted)):
                        await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"{what}: {differences}") from None

    async def attempt(self, trial: Trial) -> None:
        """Set a field, unset it with another change, and take that back."""
        kind, (_, base) = trial.kind, BASES[trial.kind]
        if kind not in self.changed:
            await self.write(kind, merged(base, NEXT[kind]))
            self.changed[kind] = await self.steady()
            assert self.changed[kind] != self.usual, f"{kind} has no next change"
            await self.write(kind, base)
            await self.until(self.usual, f"{kind}: the next change can be taken back")
        for spec in (trial.with_it, merged(trial.without_it, NEXT[kind])):
            try:
                await self.write(kind, spec)
            except Invalid as error:
                if any(it in str(error) for it in _NEVER):
                    break
                raise
            await self.settled()
        if trial.without_it != base:
            await self.write(kind, merged(base, NEXT[kind]))
            await self.settled()
        await self._forget_elastic()
        await self.until(self.changed[kind], f"{trial.path}: the next change")
        await self.write(kind, base)
        await self.until(self.usual, f"{trial.path}: what is left behind")
        self.well(trial)
        if self._salts() != self.salts:
            self.usual, self.salts = await self.steady(), self._salts()
            self.changed.clear()

    async def _forget_elastic(self) -> None:
        """Take the one thing away that stays on purpose: nodes that Slurm once started and stopped are its own."""
        for nodeset in self.bed.world.nodesets.values():
            if names.ANNOUNCED_ANNOTATION in nodeset.metadata.annotations and not nodeset.spec.elastic:
                patch = {"metadata": {"annotations": {names.ANNOUNCED_ANNOTATION: None}}}
                await self.bed.kube.merge_patch(NODESETS, nodeset.metadata.key, patch)

    def well(self, trial: Trial) -> None:
        """See that nothing is wrong with any of them."""
        world = self.bed.world
        stores: tuple[Any, ...] = (world.controllers, world.loginsets, world.clusters, world.nebius_nodesets)
        stores += (world.restapis, world.nodesets, world.accountings, world.tokens, world.node_configurators)
        for store in stores:
            for it in store.values():
                held = condition(it.status.conditions, DEGRADED)
                assert held, f"{trial.path}: {it.metadata.name} says nothing"
                assert held.status == "False", f"{trial.path}: {it.metadata.name}: {held.message}"


def _differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """What differs. What has no owner outlives what it was made for, on purpose."""
    kept = {name for name, it in found.items() if "ownerReferences" not in it["metadata"]} - wanted.keys()
    return [
        f"{name}: {found.get(name)} instead of {wanted.get(name)}"
        for name in sorted((found.keys() | wanted.keys()) - kept)
        if found.get(name) != wanted.get(name)
    ]


@asynccontextmanager
async def fields(control_plane: ControlPlaneBed, namespace: str) -> AsyncIterator[Fields]:
    async with whole_bed.working(control_plane.kubeconfig, namespace) as bed:
        made = Fields(bed)
        await made.begin()
        yield made


@pytest.mark.parametrize("seed", seeds(default=1))
async def test_a_field_that_is_set_can_be_unset(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, seed: int
) -> None:
    del kube  # which has the kinds installed
    chosen = list(every())
    random.Random(0).shuffle(chosen)  # noqa: S311 - a course that can be repeated
    groups = [chosen[at : at + AT_A_TIME] for at in range(0, len(chosen), AT_A_TIME)]
    async with fields(control_plane, namespace) as made:
        for trial in groups[(seed + 1) % len(groups)]:
            if not refused(trial):
                await made.attempt(trial)

"""What a change would do, before it is applied: asked of the API server, the operator's own decisions, and Slurm.

file ──► API server (dry run): schema, webhooks, policies      ──► what it refuses, and what would be stored
that, beside what is there ──► `domain.operator.preview`       ──► what the operator would do
slurm.conf as it would be ──► Slurm's parser in the cluster    ──► what Slurm would refuse
"""

import asyncio
import io
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import yaml

from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.nodeset.identity import slurm_name
from isthmus.domain.operator.preview import KINDS, ClusterObjects, Effect, Live, clusters_of, effects
from isthmus.errors import IsthmusError, Terminal
from isthmus.inspect import slurmsource
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.base import Kind
from isthmus.model.jailedconfig import JAILED_CONFIGS
from isthmus.model.meta import Key
from isthmus.model.objects import CONFIGMAPS
from isthmus.model.pod import PODS, Pod
from isthmus.model.slinky import CONTROLLERS
from isthmus.names import COMPONENT_LABEL, MANAGED_BY_LABEL
from isthmus.operator.webhook import judge
from isthmus.slurm.commands import Run

T = TypeVar("T")

_MANAGER: Final = "kubectl"
"""Whose fields these are in a dry run: those of `kubectl apply --server-side`."""

_OURS: Final = f"{MANAGED_BY_LABEL}=isthmus,{COMPONENT_LABEL} in (controller,worker,login)"
_SPEAKER: Final = re.compile(r"^\w+: (?:error|fatal): (?:_parse_next_key: )?")
_PATH: Final = re.compile(r"Unable to process configuration file")
_MAX_CHARS: Final = 80
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Every command of Slurm reads slurm.conf before anything else; with --version that is all it does.
_PARSE: Final = """\
d=$(mktemp -d) && tar -x -C "$d" || exit 1
SLURM_CONF=$d/slurm.conf scontrol --version 2>&1 > /dev/null
rm -rf "$d"
"""


class Changed(msgspec.Struct, frozen=True):
    """An object of the file, and which of its fields change."""

    kind: str
    name: str
    fields: tuple[str, ...] = ()
    is_new: bool = False
    warnings: tuple[str, ...] = ()


class Outlook(msgspec.Struct, frozen=True):
    """What would happen."""

    objects: tuple[Changed, ...] = ()
    refused: tuple[str, ...] = ()
    """By Kubernetes or by the operator, each with the reason."""
    slurm_refuses: tuple[str, ...] = ()
    effects: Mapping[str, tuple[Effect, ...]] = {}
    """By cluster."""
    unknown: tuple[str, ...] = ()
    """What could not be found out, and why."""

    @property
    def works(self) -> bool:
        return not (self.refused or self.slurm_refuses)


def read(text: str, file: str) -> tuple[dict[str, Any], ...]:
    """Read the objects of a file; those of other kinds are no business of ours."""
    try:
        found = [it for it in yaml.load_all(text, Loader=_LOADER) if it is not None]
    except yaml.YAMLError as error:
        raise Terminal(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    listed = [each for it in found for each in (it.get("items", [it]) if isinstance(it, dict) else [it])]
    ours = [it for it in listed if isinstance(it, dict) and _kind(it) and it.get("metadata", {}).get("name")]
    if not ours:
        known = ", ".join(sorted({it.name for it in KINDS}))
        raise Terminal(f"{file} has no object of Isthmus", remedy=f"these can be planned: {known}")
    return tuple(ours)


async def plan(client: Client, manifests: Sequence[dict[str, Any]], *, namespace: str) -> Outlook:
    """Find out what applying these objects would do."""
    places = {it["metadata"].setdefault("namespace", namespace) for it in manifests}
    if len(places) > 1:
        raise Terminal(
            "these objects are in several namespaces", remedy="plan them one by one: isthmus plan -f FILE"
        )
    (place,) = places
    there = await _objects(client, place)
    wanted = {kind: dict(found) for kind, found in there.items()}
    objects, refused = [], []
    for manifest in manifests:
        kind = _kind(manifest)
        if kind is None:
            continue
        try:
            told, stored = await _dry_run(client, kind, manifest)
        except Terminal as error:
            refused.append(f"{kind.name} {manifest['metadata']['name']}: {error.line}")
            continue
        objects.append(told)
        wanted[kind][told.name] = stored
    settings, configs = await _settings(client, place, there), await _list(client, JAILED_CONFIGS, place)
    before, after = (clusters_of(it, settings=settings, configs=configs) for it in (there, wanted))
    refused += [it for it in after.problems if it not in before.problems]
    pods = (await client.list(PODS, namespace=place, labels=_OURS)).items
    looked = [
        await _foresee(client, Key(place, name), before.by_name.get(name), found, pods)
        for name, found in after.by_name.items()
    ]
    return Outlook(
        tuple(objects),
        tuple(refused),
        tuple(it for each in looked for it in each.refused),
        {each.cluster: each.effects for each in looked if each.effects},
        tuple(it for each in looked for it in each.unknown),
    )


class _Foreseen(NamedTuple):
    cluster: str
    effects: tuple[Effect, ...] = ()
    refused: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


async def _foresee(
    client: Client, cluster: Key, before: ClusterObjects | None, after: ClusterObjects, pods: tuple[Pod, ...]
) -> _Foreseen:
    """Compare one cluster with what it would be, and ask its Slurm."""
    live = Live(pods=pods, now=datetime.now(UTC))
    if before is None:
        return _Foreseen(cluster.name, tuple(effects(None, after, live)))
    commands: slurmsource.PodCommands | None = None
    unknown: tuple[str, ...] = ()
    try:
        commands = await slurmsource.in_kubernetes(client, cluster.name, namespace=cluster.namespace)
        nodes, jobs = await asyncio.gather(commands.nodes(), commands.jobs())
        live = msgspec.structs.replace(live, nodes={it.name: it for it in nodes}, jobs=jobs)
    except IsthmusError as error:
        unknown = (f"which jobs run on cluster {cluster.name}: {error.what}",)
    try:
        found = tuple(effects(before, after, live))
    except Terminal as error:
        return _Foreseen(cluster.name, refused=(error.line,), unknown=unknown)
    refused: tuple[str, ...] = ()
    if commands and any(it.mark == "config" for it in found):
        present = {name: [slurm_name(it) for it in live.of("worker", name)] for name in after.nodesets}
        refused = await refusals(commands.run, before.files(present), after.files(present))
    return _Foreseen(cluster.name, found, refused, unknown)


async def refusals(run: Run, old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """What Slurm's own parser says of new files that it does not say of the old ones."""
    before, after = await _parsed(run, old), await _parsed(run, new)
    return tuple(it for it in after if it not in before)


async def _parsed(run: Run, files: Mapping[str, str]) -> list[str]:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    done = await run(("sh", "-c", _PARSE), packed.getvalue())
    said = done.output.decode(errors="replace").splitlines()
    return list(dict.fromkeys(_SPEAKER.sub("", it).strip() for it in said if _PATH.search(it) is None))


async def _objects(client: Client, place: str) -> dict[Kind[Any], dict[str, Any]]:
    async with asyncio.TaskGroup() as tasks:
        listing = {kind: tasks.create_task(_list(client, kind, place)) for kind in KINDS}
    return {kind: {it.metadata.name: it for it in task.result()} for kind, task in listing.items()}


async def _list(client: Client, kind: Kind[T], place: str) -> tuple[T, ...]:
    try:
        return (await client.list(kind, namespace=place)).items
    except NotFound:
        return ()  # the kind is not installed


async def _settings(client: Client, place: str, there: Mapping[Kind[Any], Mapping[str, Any]]) -> Settings:
    """Those of the operator, as far as Slurm's files show them."""
    for name in there[CONTROLLERS]:
        try:
            config = await client.get(CONFIGMAPS, Key(place, partnames.config(name)))
        except IsthmusError:
            continue
        if "proctrack/linuxproc" in config.data.get("slurm.conf", ""):
            return Settings(cgroup="none")
    return Settings()


async def _dry_run(client: Client, kind: Kind[Any], manifest: Mapping[str, Any]) -> tuple[Changed, Any]:
    """Let the API server, and the webhooks that it asks, judge an object without storing it."""
    raw: Kind[dict[str, Any]] = Kind(dict[str, Any], kind.api_version, kind.plural, kind.name)
    key = Key(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
    try:
        old = await client.get(raw, key)
    except NotFound:
        old = None
    new = await client.apply(raw, manifest, manager=_MANAGER, force=True, dry_run=True)
    told = Changed(
        kind.name,
        key.name,
        tuple(differences(old.get("spec", {}), new.get("spec", {}), "spec")) if old else (),
        is_new=old is None,
        warnings=tuple(judge(kind, new, old).warnings),
    )
    return told, msgspec.convert(new, kind.type)


def differences(old: Any, new: Any, path: str) -> Iterator[str]:
    """The fields that differ, each as it was and as it would be."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys((*old, *new)):
            yield from differences(old.get(name), new.get(name), f"{path}.{name}")
    elif old != new:
        yield f"{path}: {_shown(old)} → {_shown(new)}"


def _shown(value: Any) -> str:
    text = "not set" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"


def _kind(manifest: Mapping[str, Any]) -> Kind[Any] | None:
    asked = (manifest.get("apiVersion"), manifest.get("kind"))
    return next((it for it in KINDS if (it.api_version, it.name) == asked), None)

"""What follows from a change of a cluster: what is made anew, drained, read again, added or removed."""

import difflib
from collections.abc import Iterator
from typing import Final

from isthmus.domain.operator.manifests import accounting, controller, database, login, restapi, worker
from isthmus.domain.operator.nodeset.identity import slurm_name
from isthmus.domain.operator.preview.clusterobjects import ClusterObjects
from isthmus.domain.operator.preview.effect import Effect, Live, Mark, named, pairs
from isthmus.domain.operator.preview.workers import workers
from isthmus.model.slinky import LoginSet, RestApi

_MAX_LINES: Final = 40


def effects(before: ClusterObjects | None, after: ClusterObjects, live: Live) -> Iterator[Effect]:
    """What is done when `before` becomes `after`, the gravest first."""
    if before is None:
        yield _created(after)
        return
    found = [
        *workers(before, after, live),
        *_slurmctld(before, after, live),
        *_logins(before, after, live),
        *_accounting(before, after),
        *_restapis(before, after, live),
        *_files(before, after, live),
    ]
    order: tuple[Mark, ...] = ("drain", "less", "restart", "more", "config", "note")
    yield from sorted(found, key=lambda it: order.index(it.mark))


def _created(after: ClusterObjects) -> Effect:
    parts = [
        "slurmctld",
        *(["slurmdbd"] if after.accounting else []),
        *(f"{it.spec.replicas} workers of NodeSet {name}" for name, it in after.nodesets.items()),
        *(f"{it.spec.replicas} login nodes" for it in after.loginsets.values()),
    ]
    return Effect(mark="more", what=f"cluster {after.controller.metadata.name} is created: {', '.join(parts)}")


def _slurmctld(before: ClusterObjects, after: ClusterObjects, live: Live) -> Iterator[Effect]:
    old, new = before.controller, after.controller
    if controller.inputs(old, before.settings) != controller.inputs(new, after.settings):
        pods = live.of(controller.COMPONENT, new.metadata.name)
        why = "jobs continue; commands wait until it is back"
        yield Effect(mark="restart", what=f"slurmctld restarts{named(pods)}: {why}")
    if old.spec.replicas != new.spec.replicas:
        yield Effect(mark="note", what=f"slurmctld: {old.spec.replicas} → {new.spec.replicas} replicas")


def _files(before: ClusterObjects, after: ClusterObjects, live: Live) -> Iterator[Effect]:
    """Slurm's files: read by slurmctld and all nodes without a restart."""
    old, new = before.files(_present(before, live)), after.files(_present(after, live))
    for file in sorted({*old, *new}):
        lines = tuple(_difference(old.get(file, ""), new.get(file, "")))
        if lines:
            what = f"{file} changes; slurmctld and all nodes read it without a restart"
            yield Effect(mark="config", what=what, lines=lines)


def _difference(old: str, new: str) -> Iterator[str]:
    compared = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    changed = [it for it in compared if it[:1] in "+-" and it[:3] not in {"+++", "---"}]
    yield from changed[:_MAX_LINES]
    if len(changed) > _MAX_LINES:
        yield f"… and {len(changed) - _MAX_LINES} lines more"


def _present(cluster: ClusterObjects, live: Live) -> dict[str, list[str]]:
    return {name: [slurm_name(it) for it in live.of(worker.COMPONENT, name)] for name in cluster.nodesets}


def _accounting(before: ClusterObjects, after: ClusterObjects) -> Iterator[Effect]:
    old, new = before.accounting, after.accounting
    if old is None or new is None:
        if new is not None:
            yield Effect(mark="more", what="slurmdbd and accounting are added; slurmctld is reconfigured for it")
        elif old is not None:
            yield Effect(mark="less", what="accounting is removed; the volume of its database stays")
        return
    if _asked_of_database(before) != _asked_of_database(after):
        what = "the database restarts: slurmctld keeps the records until slurmdbd answers again"
        yield Effect(mark="restart", what=what)
    if _asked_of_slurmdbd(before) != _asked_of_slurmdbd(after):
        what = "slurmdbd restarts: slurmctld keeps the records until it answers again"
        yield Effect(mark="restart", what=what)


def _asked_of_slurmdbd(cluster: ClusterObjects) -> object:
    asked = cluster.accounting
    if asked is None or asked.spec.external:
        return None
    conf = accounting.slurmdbd_conf(asked)
    return accounting.inputs(asked, settings=cluster.settings, hash_=conf)


def _asked_of_database(cluster: ClusterObjects) -> object:
    asked = cluster.accounting
    if asked is None or asked.spec.external or not accounting.is_embedded(asked):
        return None
    return database.inputs(asked, settings=cluster.settings, password_version="")


def _logins(before: ClusterObjects, after: ClusterObjects, live: Live) -> Iterator[Effect]:
    def asked(cluster: ClusterObjects, part: LoginSet) -> object:
        return login.inputs(part, cluster.controller, settings=cluster.settings)

    for name, old, new in pairs(before.loginsets, after.loginsets):
        pods = live.of(login.COMPONENT, name)
        if new is None:
            yield Effect(mark="less", what=f"login nodes {name} are removed{named(pods)}: their sessions end")
        elif old is None:
            yield Effect(mark="more", what=f"login nodes {name} are created: {new.spec.replicas}")
        else:
            if asked(before, old) != asked(after, new):
                what = f"login nodes restart one by one{named(pods)}: their sessions end"
                yield Effect(mark="restart", what=what)
            yield from _counted(f"login nodes {name}", old.spec.replicas, new.spec.replicas, "their sessions end")
            services = [login.services(it, after.controller.metadata.name)[1]["spec"] for it in (old, new)]
            if services[0] != services[1]:
                yield Effect(mark="note", what=f"Service {name} changes: its address or port may differ")


def _restapis(before: ClusterObjects, after: ClusterObjects, live: Live) -> Iterator[Effect]:
    def asked(cluster: ClusterObjects, part: RestApi) -> object:
        files = cluster.files(_present(cluster, live))
        return restapi.inputs(part, cluster.controller, settings=cluster.settings, files=files)

    for name, old, new in pairs(before.restapis, after.restapis):
        if new is None:
            yield Effect(mark="less", what=f"slurmrestd {name} is removed")
        elif old is None:
            yield Effect(mark="more", what=f"slurmrestd {name} is created")
        elif asked(before, old) != asked(after, new):
            yield Effect(mark="restart", what="slurmrestd restarts: clients retry")


def _counted(what: str, old: int, new: int, less: str) -> Iterator[Effect]:
    if new > old:
        yield Effect(mark="more", what=f"{what}: {old} → {new}")
    elif new < old:
        yield Effect(mark="less", what=f"{what}: {old} → {new}; {less}")

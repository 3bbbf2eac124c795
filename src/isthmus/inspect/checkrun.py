"""Runs a check once, now, and follows it: what `isthmus health run` does."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

from isthmus import names
from isthmus.domain.health.manualruns import Outcome, manual_job, outcome, runs_in_slurm
from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.activecheck import ACTIVE_CHECKS, CheckedNode
from isthmus.model.base import Data, Kind
from isthmus.model.health import NODE_HEALTHS
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.pod import PODS
from isthmus.model.workload import OWN_JOBS, OwnJob

_POLL_S: Final = 1.0
_UNTOUCHED_S: Final = 15.0
"""After so long without a start, the error names the process that should have started it."""


class _CronJobSpec(Data, frozen=True):
    job_template: dict[str, Any]


class _CronJob(Data, frozen=True):
    spec: _CronJobSpec
    metadata: ObjectMeta = ObjectMeta()


_CRONJOBS: Final = Kind(_CronJob, "batch/v1", "cronjobs", "CronJob")


async def start(client: Client, check: str, *, node: str = "", namespace: str = "") -> OwnJob:
    """Make a Job from the check's CronJob; for one node, or for all that the check is for."""
    cronjob = await _find(client, check, namespace)
    meta = cronjob.metadata
    template: dict[str, Any] = {
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "spec": {"jobTemplate": cronjob.spec.job_template},
    }
    machine = ""
    if node and not runs_in_slurm(template):
        machine = await _machine_of(client, node, namespace=meta.namespace)
    suffix = f"manual-{secrets.token_hex(3)}"
    return await client.create(OWN_JOBS, manual_job(template, suffix=suffix, node=node, machine=machine))


async def _machine_of(client: Client, node: str, *, namespace: str) -> str:
    """The machine on which the worker pod of a Slurm node is."""
    marks = f"{names.COMPONENT_LABEL}=worker,{names.POD_HOSTNAME_LABEL}={node}"
    pods = (await client.list(PODS, namespace=namespace, labels=marks)).items
    found = next((it.spec.node_name for it in pods if it.spec.node_name and not it.leaving), None)
    if not found:
        raise Terminal(
            f"no worker pod of node {node!r} runs in the namespace {namespace}, so that its machine is not known",
            remedy="list the nodes: kubectl get pods -l app.kubernetes.io/component=worker -o wide",
        )
    return found


async def holding(client: Client, node: str, *, namespace: str) -> str:
    """The reason with which node health keeps a node drained; empty if it does not. Slurm starts no job there."""
    try:
        found = (await client.list(NODE_HEALTHS, namespace=namespace)).items
    except NotFound:
        return ""
    held = (it.status for it in found if it.spec.node == node and it.status.phase != "Testing")
    return next((it.reason for it in held if it.reason), "")


async def _find(client: Client, check: str, namespace: str) -> _CronJob:
    found = (await client.list(_CRONJOBS, namespace=namespace, fields=f"metadata.name={check}")).items
    if not found:
        where = f" in the namespace {namespace}" if namespace else ""
        raise Terminal(
            f"there is no check {check!r}{where}",
            remedy="list them: kubectl get activechecks -A; a new one gets its CronJob from soperatorchecks",
        )
    if len(found) > 1:
        places = ", ".join(str(it.metadata.key) for it in found)
        raise Terminal(f"several namespaces have a check {check!r}: {places}", remedy="give --namespace")
    return found[0]


async def follow(client: Client, job: Key, tell: Callable[[str], None]) -> tuple[Outcome, OwnJob]:
    """Wait until it is over, and say what happens on the way."""
    told, waited = "", 0.0
    while True:
        found = await client.get(OWN_JOBS, job)
        submitted = found.metadata.annotations.get(names.SLURM_JOBS_ANNOTATION, "")
        if submitted != told:
            tell(f"Slurm jobs: {submitted}")
            told = submitted
        ended = outcome(found.status.conditions)
        if ended.verdict != "running":
            return ended, found
        if not found.status.start_time and not submitted and waited < _UNTOUCHED_S <= waited + _POLL_S:
            tell("nothing has started it yet: kubectl get pods -A -l app.kubernetes.io/name=soperatorchecks")
        waited += _POLL_S
        await asyncio.sleep(_POLL_S)


async def results(client: Client, check: Key, job: OwnJob) -> tuple[CheckedNode, ...]:
    """The nodes that did not pass in this run; those that did are only counted."""
    try:
        found = await client.get(ACTIVE_CHECKS, check)
    except NotFound:
        return ()
    began = job.status.start_time or job.metadata.creation_timestamp
    return tuple(
        it
        for it in found.status.nodes
        if it.result != "Passed" and (began is None or it.at is None or it.at >= began)
    )

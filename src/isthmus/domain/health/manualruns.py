"""A Job that runs a check once, made from the check's CronJob as `kubectl create job --from` makes it.

For one node, Slurm is told where its job runs (by an annotation), and Kubernetes where its pod does (by affinity).
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from isthmus import names
from isthmus.model.meta import Condition, condition

Verdict = Literal["running", "passed", "failed", "error"]

_MAX_NAME_CHARS: Final = 63
"""The longest name of a Job whose pods are to be labelled with it."""

_CORDON: Final = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}

_NO_VERDICT: Final = frozenset({"CheckError", "CheckSkipped", "CheckCancelled", "DeadlineExceeded"})
"""Reasons of a Job that is over which say nothing about the node."""


class Outcome(msgspec.Struct, frozen=True):
    verdict: Verdict
    detail: str = ""


def runs_in_slurm(cronjob: Mapping[str, Any]) -> bool:
    """Whether its Jobs become jobs of Slurm, and not pods."""
    return "managedBy" in cronjob["spec"]["jobTemplate"]["spec"]


def manual_job(cronjob: Mapping[str, Any], *, suffix: str, node: str = "", machine: str = "") -> dict[str, Any]:
    """Make the Job; with a node, for that one alone. The pod of a check without Slurm needs its `machine`."""
    meta, template = cronjob["metadata"], cronjob["spec"]["jobTemplate"]
    described = template.get("metadata", {})
    annotations = {"cronjob.kubernetes.io/instantiate": "manual", **described.get("annotations", {})}
    if node:
        annotations[names.CHECK_NODE_ANNOTATION] = node
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{meta['name'][: _MAX_NAME_CHARS - len(suffix) - 1]}-{suffix}",
            "namespace": meta["namespace"],
            "labels": dict(described.get("labels", {})),
            "annotations": annotations,
            # Without blockOwnerDeletion, which would take the right to update the CronJob's finalizers.
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": _pinned(template["spec"], machine) if machine and not runs_in_slurm(cronjob) else template["spec"],
    }


def _pinned(job: Mapping[str, Any], machine: str) -> dict[str, Any]:
    """Send the pod of a Job to one machine, also if that is cordoned, in the way of a DaemonSet."""
    pod = job["template"]["spec"]
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [machine]}]}
    near = pod.get("affinity") or {}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only]}}
    affinity = {**near, "nodeAffinity": {**near.get("nodeAffinity", {}), **required}}
    tolerations = [*pod.get("tolerations", ()), _CORDON]
    return {
        **job,
        "template": {**job["template"], "spec": {**pod, "affinity": affinity, "tolerations": tolerations}},
    }


def outcome(conditions: tuple[Condition, ...]) -> Outcome:
    """How a Job of a check ended, by its conditions. An error of the checker is no verdict about a node."""
    ways: tuple[tuple[str, Verdict], ...] = (("Complete", "passed"), ("Failed", "failed"))
    for type_, verdict in ways:
        found = condition(conditions, type_)
        if found is None or found.status != "True":
            continue
        detail = found.message or ("" if verdict == "passed" else found.reason)
        return Outcome("error" if found.reason in _NO_VERDICT else verdict, detail)
    return Outcome("running")

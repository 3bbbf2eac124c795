"""Whose an object is, by its owners and by its marks."""

from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.manifests.common import labels, metadata
from isthmus.domain.operator.ownership import Seen, other_owner

API = "slurm.nebius.ai/v1"
OURS = {"apiVersion": API, "kind": "SlurmCluster", "name": "demo", "uid": "1", "controller": True}
WANTED = metadata("slurmctld", "ns", labels("slurmctld", "demo", "controller")) | {"ownerReferences": [OURS]}


def whose(**found: Any) -> str:
    return other_owner(msgspec.convert({"metadata": {"name": "slurmctld", **found}}, Seen).metadata, WANTED)


@pytest.mark.parametrize(
    "found",
    [
        {"ownerReferences": [OURS]},
        {"ownerReferences": [{**OURS, "controller": False}]},
        {"labels": WANTED["labels"]},
        # Restored from a backup, or left by one of the same name that is gone.
        {"ownerReferences": [{**OURS, "uid": "2"}], "labels": WANTED["labels"]},
    ],
)
def test_what_belongs_to_the_same_part_is_ours(found: dict[str, Any]) -> None:
    assert whose(**found) == ""


@pytest.mark.parametrize(
    ("found", "owner"),
    [
        ({}, "it names no owner"),
        ({"managedFields": [{"manager": "kubectl-create"}]}, "it was written by kubectl-create"),
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "it is managed by Helm"),
        ({"labels": labels("slurmctld", "other", "controller")}, "it is managed by isthmus as part of other"),
        ({"ownerReferences": [{**OURS, "kind": "Deployment", "uid": "2"}]}, "it belongs to Deployment demo"),
        ({"ownerReferences": [{**OURS, "name": "b", "uid": "2"}]}, "it belongs to SlurmCluster b"),
        (
            {"ownerReferences": [{**OURS, "kind": "Release", "uid": "2", "controller": False}]},
            "it belongs to Release demo",
        ),
    ],
)
def test_everything_else_is_somebody_elses(found: dict[str, Any], owner: str) -> None:
    assert whose(**found) == owner

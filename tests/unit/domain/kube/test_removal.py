"""Machines that are about to go."""

from typing import Any

import msgspec
import pytest

from isthmus.domain.kube.removal import notice_of
from isthmus.model.node import Node


def node(*taints: tuple[str, str], **condition: Any) -> Node:
    spec = {"taints": [{"key": key, "effect": effect} for key, effect in taints]}
    status = {"conditions": [condition] if condition else []}
    return msgspec.convert({"metadata": {"name": "n"}, "spec": spec, "status": status}, Node)


@pytest.mark.parametrize(
    ("there", "seconds"),
    [
        (node(("ToBeDeletedByClusterAutoscaler", "NoSchedule")), None),
        (node(("karpenter.sh/disrupted", "NoSchedule")), None),
        (node(("aws-node-termination-handler/spot-itn", "NoExecute")), 60),
        (node(("cloud.google.com/impending-node-termination", "NoSchedule")), 0),
        (node(type="VMEventScheduled", status="True", reason="PreemptScheduled"), 0),
        (
            node(("karpenter.sh/disrupted", "NoSchedule"), ("aws-node-termination-handler/spot-itn", "NoSchedule")),
            60,
        ),
    ],
    ids=["cluster autoscaler", "karpenter", "aws", "google", "azure", "the most urgent"],
)
def test_a_machine_that_goes_leaves_jobs_some_time(there: Node, seconds: float | None) -> None:
    found = notice_of(there)
    assert found
    assert found.seconds == seconds


@pytest.mark.parametrize(
    "there",
    [
        None,
        node(),
        node(("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")),
        node(("ToBeDeletedByClusterAutoscaler", "PreferNoSchedule")),
        node(("nvidia.com/gpu", "NoSchedule")),
        node(type="VMEventScheduled", status="False", reason="PreemptScheduled"),
        node(type="VMEventScheduled", status="True", reason="FreezeScheduled"),
    ],
    ids=[
        "no machine",
        "nothing said",
        "a candidate",
        "a soft taint",
        "another taint",
        "over",
        "a pause of seconds",
    ],
)
def test_a_machine_that_stays_has_no_notice(there: Node | None) -> None:
    assert notice_of(there) is None

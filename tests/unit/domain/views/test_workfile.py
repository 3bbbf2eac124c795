"""Scripts go to Slurm, Pods and Jobs to Kubernetes, and all else is refused."""

import pytest

from isthmus.domain.views.workfile import BatchScript, Manifest, read
from isthmus.errors import Terminal


def test_scripts_and_manifests_are_told_apart() -> None:
    assert read("#!/bin/sh\nkind: Pod\n", "f") == BatchScript("#!/bin/sh\nkind: Pod\n")
    pod = read("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n", "f")
    assert isinstance(pod, Manifest)
    assert pod.kind == "pod"
    job = read('{"apiVersion": "batch/v1", "kind": "Job"}', "f")
    assert isinstance(job, Manifest)
    assert job.kind == "job"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "neither a script nor one manifest"),
        ("sleep 5\n", "neither a script nor one manifest"),
        ("a: [", "neither a script nor a manifest"),
        ("a: 1\n---\nb: 2\n", "neither a script nor one manifest"),
        ("apiVersion: v1\nkind: Secret\n", "is a Secret of v1, not a Pod or Job"),
        ("a: 1", "is a document of no API"),
        ("!!python/object/apply:os.system ['true']", "neither a script nor a manifest"),
    ],
)
def test_all_else_is_refused(text: str, why: str) -> None:
    with pytest.raises(Terminal, match=why):
        read(text, "f")

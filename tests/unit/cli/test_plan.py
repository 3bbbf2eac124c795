"""What `isthmus plan` prints of what it found."""

import click
import pytest

from isthmus.cli import plan
from isthmus.domain.operator.preview import Effect, NodeJobs
from isthmus.errors import Terminal
from isthmus.inspect.plan import Changed, Outlook, differences, read

NOW = 1000.0
DRAIN = Effect(
    mark="drain",
    what="workers w: 3 → 2; w-2 is removed once it has no jobs",
    nodes=(NodeJobs("w-2", (7, 8), ("ann",), NOW + 7200), NodeJobs("w-1", (9,), ("bob",)), NodeJobs("w-0")),
)


def told(found: Outlook) -> list[str]:
    return [click.unstyle(it) for it in plan.lines(found, "change.yaml", now=NOW)]


def test_what_changes_what_follows_and_how_to_do_it() -> None:
    objects = (Changed("SlurmCluster", "demo", ("spec.size: 3 → 2",), warnings=("careful",)),)
    assert told(Outlook(objects, effects={"demo": (DRAIN,)})) == [
        "SlurmCluster demo",
        "  spec.size: 3 → 2",
        "  ! careful",
        "",
        "Cluster demo:",
        "  ~ workers w: 3 → 2; w-2 is removed once it has no jobs",
        "      w-2: jobs 7, 8 of ann, done within 2 h",
        "      w-1: job 9 of bob, without a time limit",
        "      w-0: no job",
        "",
        "Nothing was changed. To do this: kubectl apply --server-side -f change.yaml",
    ]


def test_what_is_refused_and_what_is_not_known() -> None:
    said = told(Outlook(refused=("no",), slurm_refuses=("Fantasy",), unknown=("which jobs run",)))
    assert said[1:] == [
        "Kubernetes refuses it:",
        "  ✗ no",
        "",
        "Slurm refuses it:",
        "  ✗ Fantasy",
        "? not known: which jobs run",
        "",
        "Nothing was changed. As it stands, this change would be refused.",
    ]
    assert told(Outlook())[-1] == "This changes nothing: no pod, node or job is affected."


def test_fields_that_differ_are_shown_as_they_were_and_would_be() -> None:
    old, new = {"a": {"b": 1, "c": [1]}, "d": "x" * 200}, {"a": {"b": 2, "c": [1, 2]}, "e": True}
    assert list(differences(old, new, "spec")) == [
        "spec.a.b: 1 → 2",
        "spec.a.c: [1] → [1,2]",
        f"spec.d: {'x' * 79}… → not set",
        "spec.e: not set → true",
    ]


@pytest.mark.parametrize(
    "text", ["", "kind: Pod", "- 1\n- 2", "kind: SlurmCluster\napiVersion: slurm.nebius.ai/v1"]
)
def test_a_file_without_a_cluster_is_no_plan(text: str) -> None:
    with pytest.raises(Terminal, match="has no object of Isthmus"):
        read(text, "change.yaml")
    with pytest.raises(Terminal, match="is not YAML"):
        read("{", "change.yaml")

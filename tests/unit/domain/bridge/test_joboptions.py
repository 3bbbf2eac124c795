import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus import names
from isthmus.domain.bridge.joboptions import OF_SLURM_BRIDGE, OPTIONS, JobOptions, merge, parse
from isthmus.errors import Terminal

NEW, OLD = names.JOB_ANNOTATIONS, names.JOB_ANNOTATIONS_OLD

SLURM_BRIDGE = """
account constraints cpu-per-task exclusive gres group-id job-name licenses max-nodes mem-per-node min-nodes
partition priority qos reservation timelimit user-id wckey
"""


def options(**annotations: str) -> JobOptions:
    return parse({f"{NEW}{key.replace('_', '-')}": value for key, value in annotations.items()})


def test_all_annotations_of_slurm_bridge_are_there() -> None:
    assert [option.key for option in OPTIONS[:OF_SLURM_BRIDGE]] == SLURM_BRIDGE.split()


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
@pytest.mark.parametrize("prefix", [NEW, OLD])
def test_the_example_of_each_is_read_behind_either_prefix(option: Any, prefix: str) -> None:
    read = parse({prefix + option.key: option.example})
    assert getattr(read, option.field) is not None


def test_every_field_has_its_annotation() -> None:
    assert {option.field for option in OPTIONS} == set(JobOptions.__struct_fields__)
    assert len({option.key for option in OPTIONS}) == len(OPTIONS)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("timelimit", "30", 30),
        ("timelimit", "1:30:00", 90),
        ("timelimit", "0:01", 1),
        ("timelimit", "1-00:00:00", 1440),
        ("timelimit", "INFINITE", math.inf),
        ("cpu-per-task", "1500m", 2),
        ("mem-per-node", "1Gi", 1024),
        ("mem-per-node", "1048577", 2),
        ("exclusive", " False ", False),
        ("gres", "gpu:2", "gres/gpu:2"),
        ("gres", "gres/gpu:a100=2,gres:nic", "gres/gpu:a100=2,gres/nic"),
        ("begin", "1970-01-01T01:00:01+01:00", 1),
        ("begin", "2000000000", 2_000_000_000),
        ("dependency", "afterok:1:2+30?singleton", "afterok:1:2+30?singleton"),
        ("dependency", "after:7_3,afterany:7_*", "after:7_3,afterany:7_*"),
        ("constraints", "[rack1*2&rack2*4]|(a&b)", "[rack1*2&rack2*4]|(a&b)"),
        ("licenses", "matlab@db:2,ansys", "matlab@db:2,ansys"),
        ("partition", "gpu,cpu", "gpu,cpu"),
        ("user-id", "1000", "1000"),
        ("user-id", "00", "0"),
        ("priority", "0", 0),
    ],
)
def test_weakness_26_values_are_read_as_slurm_and_kubernetes_write_them(key: str, text: str, value: object) -> None:
    field = next(option.field for option in OPTIONS if option.key == key)
    assert getattr(parse({NEW + key: text}), field) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("timelimit", "soon"),
        ("timelimit", "0"),
        ("timelimit", ""),
        ("cpu-per-task", "0"),
        ("cpu-per-task", "-1"),
        ("cpu-per-task", "1e99"),
        ("mem-per-node", "4096"),
        ("mem-per-node", "0"),
        ("mem-per-node", "4 GB"),
        ("exclusive", "yes"),
        ("gres", ""),
        ("gres", "gpu:2(IDX:0-1)"),
        ("gres", "gpu:0"),
        ("gres", "gpu:2;rm"),
        ("max-nodes", "0"),
        ("max-nodes", "1.5"),
        ("max-nodes", "\u0661"),
        ("min-nodes", "2147483648"),
        ("nice", "-1"),
        ("priority", "-1"),
        ("partition", "a b"),
        ("partition", "a,,b"),
        ("account", "a,b"),
        ("account", ""),
        ("constraints", "a; b"),
        ("constraints", "$(a)"),
        ("user-id", "-1"),
        ("user-id", "4294967296"),
        ("constraints", "\U00018d09"),
        ("user-id", "a b"),
        ("job-name", "two\nlines"),
        ("job-name", "x" * 256),
        ("comment", "\x1b[31m"),
        ("begin", "tomorrow"),
        ("begin", "2027-01-31T06:00:00"),
        ("dependency", "afterok"),
        ("dependency", "afterok:1,singleton?singleton"),
        ("gang", "1"),
    ],
)
def test_weakness_36_what_cannot_be_read_is_refused_with_what_could(key: str, text: str) -> None:
    expects = next(option.expects for option in OPTIONS if option.key == key)
    with pytest.raises(Terminal) as caught:
        parse({NEW + key: text}, where="Job a/b")
    assert (
        caught.value.what
        == f"Job a/b: an annotation cannot be used: {NEW}{key} is {text[:80]!r}, expected {expects}"
    )


def test_one_error_names_everything_that_is_wrong() -> None:
    with pytest.raises(Terminal) as caught:
        parse({f"{NEW}timelimit": "soon", f"{NEW}min-nodes": "x", f"{NEW}qos": "high", f"{NEW}acount": "a"})
    assert caught.value.what.startswith("3 annotations cannot be used: ")
    for part in ("timelimit is 'soon'", "min-nodes is 'x'", f"acount is unknown, did you mean {NEW}account?"):
        assert part in caught.value.what
    assert "docs/bridge-annotations.md" in caught.value.remedy


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("time-limit", f", did you mean {NEW}timelimit?"),
        ("cpus-per-task", f", did you mean {NEW}cpu-per-task?"),
        ("array", ""),
    ],
)
def test_a_slip_in_a_key_is_refused_with_the_nearest(key: str, hint: str) -> None:
    with pytest.raises(Terminal) as caught:
        parse({NEW + key: "1"})
    assert caught.value.what == f"an annotation cannot be used: {NEW}{key} is unknown{hint}"


def test_the_newer_prefix_wins() -> None:
    assert parse({f"{OLD}partition": "old", f"{NEW}partition": "new"}).partition == "new"
    assert parse({f"{OLD}timelimit": "broken", f"{NEW}timelimit": "5"}).time_limit == 5


def test_what_others_keep_under_the_older_prefix_is_left_alone() -> None:
    theirs = {"slurm-node": "n1", "slurm-nodename": "n1", "pod-cordon": "true", "pod-deletion-cost": "1"}
    others = {f"{OLD}{key}": value for key, value in theirs.items()} | {"example.com/partition": "x"}
    assert parse(others) == JobOptions()
    with pytest.raises(Terminal, match=f"did you mean {OLD}partition"):
        parse({f"{OLD}partion": "x"})


def test_later_ones_win_field_by_field() -> None:
    assert merge(
        JobOptions(partition="a", qos="low"), JobOptions(), JobOptions(partition="b", exclusive=False)
    ) == JobOptions(partition="b", qos="low", exclusive=False)
    assert merge(JobOptions(exclusive=True, priority=5), JobOptions(exclusive=False, priority=0)) == JobOptions(
        exclusive=False, priority=0
    )
    assert merge() == JobOptions()


def test_slurm_bridges_order_of_workload_job_and_pod_group_comes_out() -> None:
    pod_group, job, workload = (
        options(partition="group", qos="group", account="group"),
        options(qos="job"),
        options(account="work"),
    )
    assert merge(options(wckey="pod", partition="pod"), pod_group, job, workload) == JobOptions(
        partition="group", qos="job", account="work", wckey="pod"
    )


def test_the_reference_is_up_to_date() -> None:
    script = Path(__file__).parents[4] / "scripts" / "reference"
    told = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr

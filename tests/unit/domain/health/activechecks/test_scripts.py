"""Options of scripts, as sbatch reads them."""

import pytest

from isthmus.domain.health.activechecks import scripts
from isthmus.domain.health.activechecks.scripts import ScriptError


def test_the_lines_of_a_script_are_read_until_its_first_command() -> None:
    text = "#!/bin/bash\n#SBATCH --time=50:00\n# a remark\n\n#SBATCH --exclusive --mem=0\ntrue\n#SBATCH --nodes=9\n"
    options = scripts.read(text, {})
    assert options.fields == {"time_limit": 50, "shared": ("none",), "memory_per_node": 0}
    assert options.nodes == 1


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("-t 1:00:00", {"time_limit": 60}),
        ("-t90", {"time_limit": 90}),
        ("--time UNLIMITED", {}),
        ("--mem=1500K", {"memory_per_node": 2}),
        ("--mem-per-cpu=2G", {"memory_per_cpu": 2048}),
        ("-n 4 --ntasks-per-node=2 -c8", {"tasks": 4, "tasks_per_node": 2, "cpus_per_task": 8}),
        ("--gpus-per-node=8", {"tres_per_node": "gres/gpu:8"}),
        ("--gres=gpu:h100:8,shard:2", {"tres_per_node": "gres/gpu:h100:8,gres/shard:2"}),
        ("--gres=none", {}),
        ("-G 2", {"tres_per_job": "gres/gpu:2"}),
        ("--gpus-per-task=1", {"tres_per_task": "gres/gpu:1"}),
        (
            "-C 'gpu&ib' -A ops -q high -L fs:2",
            {"constraints": "gpu&ib", "account": "ops", "qos": "high", "licenses": "fs:2"},
        ),
        (
            "-o /out/%j -e /err -D /work",
            {"standard_output": "/out/%j", "standard_error": "/err", "current_working_directory": "/work"},
        ),
        ("-w n[1-2] -x n9", {"required_nodes": ("n[1-2]",), "excluded_nodes": ("n9",)}),
        ("-J other --requeue --comment=x --export=ALL", {}),
        ("--exclusive=user", {"shared": ("user",)}),
    ],
)
def test_each_option_becomes_a_field(line: str, fields: dict[str, object]) -> None:
    assert scripts.read(f"#SBATCH {line}\n", {}).fields == fields


def test_variables_count_more_than_lines() -> None:
    options = scripts.read(
        "#SBATCH --time=10\n", {"SBATCH_TIMELIMIT": "20", "SBATCH_GPUS_PER_NODE": "8", "OTHER": "x"}
    )
    assert options.fields == {"time_limit": 20, "tres_per_node": "gres/gpu:8"}
    assert options.gpus


@pytest.mark.parametrize(("text", "nodes"), [("4", (1, 4)), ("2-8", (2, 8)), ("1", (1, 1))])
def test_a_range_of_nodes_says_how_few_it_can_do_with(text: str, nodes: tuple[int, int]) -> None:
    options = scripts.read(f"#SBATCH -N {text}\n", {})
    assert (options.least_nodes, options.nodes) == nodes


@pytest.mark.parametrize(
    ("text", "seconds"), [("now+4hours", 14400), ("now+30", 30), ("now+1day", 86400), ("now+2minutes", 120)]
)
def test_a_deadline_is_relative(text: str, seconds: int) -> None:
    assert scripts.read(f'#SBATCH --deadline="{text}"\n', {}).deadline == seconds


@pytest.mark.parametrize(
    "line",
    [
        "--array=1-4",
        "--wrap",
        "hello",
        "--mem=lots",
        "--nodes=4-2",
        "--nodes=0",
        "-n many",
        "--deadline=noon",
        "--time=x",
        "'",
    ],
)
def test_what_is_not_understood_is_refused(line: str) -> None:
    with pytest.raises((ScriptError, Exception)) as raised:
        scripts.read(f"#SBATCH {line}\n", {})
    assert raised.value.args[0]


def test_an_unknown_variable_of_sbatch_is_refused() -> None:
    with pytest.raises(ScriptError, match="SBATCH_ARRAY_INX"):
        scripts.read("", {"SBATCH_ARRAY_INX": "1"})

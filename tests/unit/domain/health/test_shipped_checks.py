"""The scripts of the chart soperator-activechecks, run by a real shell with stand-ins for what they look at."""

import os
import subprocess
from pathlib import Path

import pytest

from isthmus.domain.health.activechecks.scripts import read

SCRIPTS = Path(__file__).parents[4] / "charts" / "soperator-activechecks" / "scripts"
IN_SLURM = sorted(it for it in SCRIPTS.glob("*.sh") if "#SBATCH" in it.read_text())

PASSED, FAILED, NO_VERDICT = 0, 1, 75


class Node:
    """A node whose programs say what a test wants."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs

    def program(self, name: str, body: str) -> None:
        file = self._programs / name
        file.write_text(f"#!/bin/bash\n{body}\n")
        file.chmod(0o755)

    def run(self, script: str) -> tuple[int, str]:
        done = subprocess.run(
            ["/bin/bash", str(SCRIPTS / f"{script}.sh")],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": f"{self._programs}:{os.environ['PATH']}", "SLURMD_NODENAME": "n1"},
        )
        return done.returncode, done.stderr

    def gres(self, text: str) -> None:
        self.program("scontrol", f"echo 'NodeName=n1 Arch=x86_64 Gres={text} State=IDLE'")

    def gpus(self, *, there: int, ecc: str = "0", remapped: str = "0", code: int = 0) -> None:
        lines = "\n".join(f"echo 'GPU {it}: H100 (UUID: x)'" for it in range(there))
        ecc_lines = "\n".join(f"echo '{it}, {ecc}'" for it in range(there))
        self.program(
            "nvidia-smi",
            f'case "$*" in\n*list-gpus*)\n{lines}\nexit {code};;\n*ecc*)\n{ecc_lines};;\n'
            f"*remapped*)\necho '00000000:01:00.0, {remapped}';;\nesac",
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("script", IN_SLURM, ids=lambda it: it.stem)
def test_the_options_of_a_script_are_those_that_can_be_submitted(script: Path) -> None:
    found = read(script.read_text(), {})
    assert found.fields["time_limit"] > 0
    if script.stem == "gpu-checks":
        assert found.deadline == 4 * 3600
        assert found.fields["time_limit"] == 50
        assert found.fields["shared"]


def test_a_node_with_all_its_gpus_passes(node: Node) -> None:
    node.gres("gpu:h100:8(S:0-1),shard:16")
    node.gpus(there=8)
    assert node.run("gpu-checks") == (PASSED, "")


def test_a_node_without_gpus_in_slurm_passes_whatever_is_installed(node: Node) -> None:
    node.gres("(null)")
    node.program("nvidia-smi", "exit 9")
    assert node.run("gpu-checks")[0] == PASSED


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ({"there": 7}, "7 of 8 GPUs are there"),
        ({"there": 8, "ecc": "2"}, "GPU 0 has 2 uncorrected memory errors"),
        ({"there": 8, "remapped": "1"}, "row remapping failed on the GPU at 00000000:01:00.0"),
        ({"there": 0, "code": 9}, "nvidia-smi failed"),
    ],
)
def test_a_bad_gpu_condemns_the_node(node: Node, gpus: dict[str, int], said: str) -> None:
    node.gres("gpu:8")
    node.gpus(**gpus)  # type: ignore[arg-type]
    code, told = node.run("gpu-checks")
    assert code == FAILED
    assert said in told


def test_a_gpu_without_ecc_is_no_bad_gpu(node: Node) -> None:
    node.gres("gpu:1")
    node.gpus(there=1, ecc="[N/A]", remapped="[N/A]")
    assert node.run("gpu-checks")[0] == PASSED


def test_a_checker_that_cannot_tell_says_so(node: Node) -> None:
    node.program("scontrol", "exit 1")
    assert node.run("gpu-checks") == (NO_VERDICT, "gpu-checks: cannot tell: scontrol failed\n")
    node.gres("gpu:1")
    node.gpus(there=1)
    node.program("dcgmi", 'case "$1" in diag) exit 3;; esac')
    assert node.run("gpu-checks")[0] == NO_VERDICT


def test_what_dcgm_finds_condemns_the_node(node: Node) -> None:
    node.gres("gpu:1")
    node.gpus(there=1)
    node.program("dcgmi", 'case "$1" in diag) echo "| Memory | Fail - All |"; exit 226;; esac')
    code, told = node.run("gpu-checks")
    assert code == FAILED
    assert "Memory Fail" in told
    assert node.run("dcgmi-diag-r3")[0] == FAILED


def test_a_node_out_of_use_fails_the_whole_cluster(node: Node) -> None:
    node.program("sinfo", "")
    assert node.run("ensure-healthy-nodes")[0] == PASSED
    node.program("sinfo", "printf 'n3\\nn1\\nn3\\n'")
    assert node.run("ensure-healthy-nodes") == (FAILED, "out of use: n1,n3\n")


def test_a_topology_is_waited_for_only_where_there_is_one(node: Node) -> None:
    node.program("scontrol", "echo 'TopologyPlugin          = topology/default'")
    assert node.run("wait-for-topology")[0] == PASSED
    node.program("sinfo", "printf 'n1\\nn2\\n'")
    node.program(
        "scontrol",
        'case "$*" in "show config") echo "TopologyPlugin = topology/tree";;'
        ' "show topology") echo "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]";;'
        " *hostnames*) printf 'n1\\nn2\\n';; esac",
    )
    assert node.run("wait-for-topology")[0] == PASSED

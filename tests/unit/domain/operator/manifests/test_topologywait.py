"""Nodes that start wait until Slurm knows where they are, where somebody asked for it."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from isthmus import names
from isthmus.domain.operator.manifests import topologywait, worker
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.manifests.waitscripts import PAUSE
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.model.pod import Pod
from tests.unit.domain.operator.manifests.test_worker import controller, slurmd
from tests.unit.domain.operator.nodeset.views import nodeset

WAITS = {"autoscale": {}, "ephemeralTopologyWaitTimeout": 180}
TREE = {"topology": {"plugin": "tree"}}


def made(spec: dict[str, Any], by: dict[str, Any]) -> dict[str, Any]:
    of = nodeset(1, **spec)
    return worker.template(of, controller(**by), settings=Settings()).fill(numbered(of, 0))


def wait(seconds: str, place: Path) -> subprocess.CompletedProcess[str]:
    script = topologywait.AWAIT_PLACE.replace(topologywait._DIRECTORY, str(place))
    script = script.replace("/dev/termination-log", f"{place}/said")
    known = {"PATH": "/usr/bin:/bin", topologywait._VARIABLE: seconds}
    command = ["bash", "-euc", f"{PAUSE}{script}echo starts"]
    return subprocess.run(command, env=known, capture_output=True, text=True, timeout=120, check=False)


def test_a_pod_waits_for_its_own_annotation() -> None:
    pod = made(WAITS, TREE)
    assert topologywait.is_in(msgspec.convert(pod, Pod, strict=False))
    (volume,) = (it for it in pod["spec"]["volumes"] if it["name"] == topologywait.VOLUME)
    (item,) = volume["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{names.TOPOLOGY_ANNOTATION}']"
    (mount,) = (it for it in slurmd(pod)["volumeMounts"] if it["name"] == topologywait.VOLUME)
    assert f" place={mount['mountPath']}/{item['path']}\n" in topologywait.AWAIT_PLACE
    assert {"name": topologywait._VARIABLE, "value": "180"} in slurmd(pod)["env"]
    # Kubelet does not take the waiting for a slurmd that hangs.
    probe = slurmd(pod)["startupProbe"]
    assert probe["failureThreshold"] == (600 + 180) // 20


@pytest.mark.parametrize(
    ("spec", "by"),
    [
        ({"autoscale": {}}, TREE),
        ({"ephemeralTopologyWaitTimeout": 180}, TREE),
        (WAITS, {}),
    ],
    ids=["nobody asked for it", "nodes are always there", "no topology"],
)
def test_others_do_not_wait(spec: dict[str, Any], by: dict[str, Any]) -> None:
    pod = made(spec, by)
    assert not topologywait.is_in(msgspec.convert(pod, Pod, strict=False))
    assert topologywait._VARIABLE not in {it["name"] for it in slurmd(pod)["env"]}


def test_slurmd_starts_when_its_place_is_known(tmp_path: Path) -> None:
    (tmp_path / "place").write_text(topologywait.KNOWN)
    assert wait("180", tmp_path).stdout == "starts\n"


def test_who_need_not_wait_starts_at_once(tmp_path: Path) -> None:
    assert wait("", tmp_path).stdout == "starts\n"


def test_without_a_place_in_time_the_container_fails_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "place").touch()
    ended = wait("1", tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no place in Slurm's topology after 1 s (ephemeralTopologyWaitTimeout)" in ended.stderr
    assert (tmp_path / "said").read_text() == ended.stderr

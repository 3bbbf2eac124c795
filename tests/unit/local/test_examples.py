"""The example of a Slurm to bridge to holds no key, and can be had in other versions and namespaces.

Beside the bridge, each machine is counted once.
"""

import re
import shlex
import subprocess
from typing import Any

import msgspec
import pytest
import yaml

from isthmus.domain.bridge import noderecord
from isthmus.domain.kube.podshape import requests_of
from isthmus.domain.languages import slurmconf
from isthmus.model.meta import ObjectMeta
from isthmus.model.node import Node, NodeAddress, NodeStatus
from isthmus.model.pod import Pod
from tests.bed.bridge_ground import EXAMPLE, HYBRID, manifest


def objects(version: str = "26.05", namespace: str = "slurm") -> list[Any]:
    return list(yaml.load_all(manifest(version, namespace), yaml.CSafeLoader))


def test_keys_are_made_elsewhere() -> None:
    assert not [each for each in objects() if each["kind"] == "Secret"]


@pytest.mark.parametrize("namespace", ["slurm", "elsewhere"])
def test_all_of_it_is_in_one_namespace(namespace: str) -> None:
    assert {each["metadata"]["namespace"] for each in objects(namespace=namespace)} == {namespace}
    searched = [each["spec"]["template"]["spec"].get("dnsConfig") for each in objects(namespace=namespace)[-5:]]
    assert [each for each in searched if each] == [{"searches": [f"slurmd.{namespace}.svc.cluster.local"]}] * 2


def test_another_version_is_used_everywhere() -> None:
    assert "26.05" not in str(objects("24.11"))
    assert str(objects("24.11")).count("isthmus.local/slurm:24.11") == 4


def test_settings_are_those_for_bridging() -> None:
    conf = objects()[0]["data"]["slurm.conf"].splitlines()
    for line in (
        "SchedulerParameters=sched_min_interval=10000,batch_sched_delay=0,bf_interval=5",
        "MCSPlugin=mcs/label",
        "MCSParameters=ondemand,ondemandselect",
        "GresTypes=gpu",
        "ReturnToService=2",
        "PartitionName=slurm-bridge Nodes=ALL MaxTime=INFINITE",
    ):
        assert line in conf


def slurmd(version: str = "26.05") -> tuple[Pod, slurmconf.Directive]:
    """Find the pod of a slurmd of the example, and what it tells Slurm of its node."""
    (found,) = [it for it in objects(version) if it["kind"] == "StatefulSet" and it["metadata"]["name"] == "slurmd"]
    (container,) = found["spec"]["template"]["spec"]["containers"]
    words = shlex.split(container["command"][-1])
    pod = msgspec.convert({"metadata": {"name": "slurmd-0"}, **found["spec"]["template"]}, Pod)
    return pod, slurmconf.parse_line(f"NodeName=slurmd-0 {words[words.index('--conf') + 1]}")


def test_a_machine_with_slurmd_and_an_external_node_is_counted_once() -> None:
    pod, line = slurmd()
    told = dict(line.settings)
    held = requests_of(pod)
    assert held == {"cpu": int(told["CPUs"]) * 1000, "memory": int(told["RealMemory"]) << 20}
    has = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    machine = Node(
        ObjectMeta(name="m"), status=NodeStatus(has, has, addresses=(NodeAddress("InternalIP", "10.0.0.1"),))
    )
    rest = noderecord.describe(machine, "m", cluster="c", reserved=noderecord.Reserve(held)).record
    assert rest.cpus + int(told["CPUs"]) == 8
    assert rest.memory + int(told["RealMemory"]) <= 8192


def test_workers_of_the_operator_beside_the_bridge_say_what_they_hold() -> None:
    values = yaml.load((EXAMPLE.parent / "operator" / "values-for-bridge.yaml").read_text(), yaml.CSafeLoader)
    for name, group in values["slurmNodes"].items():
        assert {"cpu", "memory"} <= group["resources"].keys(), name


def test_where_pods_go_to_the_nodes_of_slurmd_it_holds_nothing_for_itself() -> None:
    pod, line = slurmd(HYBRID)
    assert requests_of(pod) == {}
    assert dict(line.settings) == {"NodeName": "slurmd-0", "Feature": "native"}


def test_the_comments_of_the_example_make_it_what_the_tests_use() -> None:
    (command,) = re.findall(r"^#   (sed -e.*?) \\\n#     examples/", EXAMPLE.read_text(), re.MULTILINE)
    done = subprocess.run([*shlex.split(command), EXAMPLE], check=True, capture_output=True, text=True)
    assert list(yaml.load_all(done.stdout, yaml.CSafeLoader)) == objects(HYBRID)

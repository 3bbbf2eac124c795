"""The example of a Slurm to bridge to holds no key, and can be had in other versions and namespaces."""

from typing import Any

import pytest
import yaml

from tests.bed.bridge_ground import manifest


def objects(version: str = "26.05", namespace: str = "slurm") -> list[Any]:
    return list(yaml.safe_load_all(manifest(version, namespace)))


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

"""Definitions come out of the pinned modules, once, and are those of the kinds that we say."""

from pathlib import Path

import pytest
import yaml

from isthmus.errors import Terminal
from isthmus.local import crds
from isthmus.local.crds import Definition
from tests.unit.local.images.conftest import Steps


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("name", "kind", "served"),
    [
        ("jobset", "jobsets.jobset.x-k8s.io", ["v1alpha2"]),
        ("lws", "leaderworkersets.leaderworkerset.x-k8s.io", ["v1"]),
        ("podgroup", "podgroups.scheduling.x-k8s.io", ["v1alpha1"]),
    ],
)
def test_a_definition_is_taken_from_its_module_once(name: str, kind: str, served: list[str]) -> None:
    steps = Steps()
    file = crds.ensure([name], steps)[name]
    definition = yaml.load(file.read_text(), yaml.CSafeLoader)
    assert definition["metadata"]["name"] == kind
    assert [version["name"] for version in definition["spec"]["versions"]] == served
    # One that others convert would need a webhook, which a control plane without nodes does not have.
    assert "conversion" not in definition["spec"]
    assert crds.ensure([name], steps) == {name: file}
    assert steps.titles == [f"Fetch the kinds of {name}"]


def test_fetching_leaves_our_sources_and_the_cache_as_they_were(cache: Path) -> None:
    sources = crds.DEFINITIONS["podgroup"].sources
    before = {file.name: file.read_bytes() for file in sources.iterdir()}
    crds.ensure(["podgroup"], Steps())
    assert {file.name: file.read_bytes() for file in sources.iterdir()} == before
    kept = sorted(file.name for file in (cache / "crds").iterdir())
    assert kept == [f"podgroup-{crds.DEFINITIONS['podgroup'].key()}.yaml", "podgroup.lock"]


def test_a_directory_of_ready_binaries_may_hold_definitions(tmp_path: Path) -> None:
    mine = tmp_path / "jobset.crd.yaml"
    mine.touch()
    assert crds.ensure(["jobset"], Steps(), given=tmp_path) == {"jobset": mine}


@pytest.mark.usefixtures("cache")
def test_a_file_that_the_module_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Definition("podgroup", "sigs.k8s.io/scheduler-plugins", "config/none.yaml")
    monkeypatch.setitem(crds.DEFINITIONS, "podgroup", wrong)
    with pytest.raises(Terminal, match=r"sigs\.k8s\.io/scheduler-plugins has no config/none\.yaml\n  → "):
        crds.ensure(["podgroup"], Steps())

"""NodeSets and LoginSets in their short form and in full: each says what the other said."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.errors import Terminal
from isthmus.operator.conversion import FULL, KEPT_FULL, KEPT_SHORT, SHORT, convert


def written(version: str, kind: str = "NodeSet", *, annotations: dict[str, str] | None = None, **spec: Any) -> Any:
    metadata: dict[str, Any] = {"name": "compute-cluster", "namespace": "hpc", "uid": "1"}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def test_the_short_form_of_the_documents_becomes_a_whole_nodeset() -> None:
    short = written(
        SHORT,
        replicas=20,
        template={"spec": {"containers": [{"name": "compute-node", "image": "hpc-node:latest"}]}},
    )
    full = convert(short, FULL)
    assert full == written(FULL, replicas=20, slurmd={"name": "compute-node", "image": "hpc-node:latest"})
    assert convert(full, SHORT) == short


def test_a_loginset_has_its_own_main_container() -> None:
    short = written(
        SHORT,
        "LoginSet",
        replicas=2,
        clusterName="slurm",
        template={"spec": {"containers": [{"name": "helper"}, {"name": "login", "image": "login:1"}]}},
    )
    full = convert(short, FULL)
    assert full["spec"] == {
        "replicas": 2,
        "controllerRef": {"name": "slurm"},
        "login": {"image": "login:1"},
        "template": {"spec": {"containers": [{"name": "helper"}]}},
    }
    assert convert(full, SHORT) == short


def test_the_container_called_slurmd_is_the_main_one_wherever_it_stands() -> None:
    containers = [{"name": "side"}, {"name": "slurmd", "image": "slurm:1"}]
    full = convert(written(SHORT, template={"spec": {"containers": containers, "hostNetwork": True}}), FULL)
    assert full["spec"]["slurmd"] == {"image": "slurm:1"}
    assert full["spec"]["template"]["spec"] == {"hostNetwork": True, "containers": [{"name": "side"}]}


def test_what_the_short_form_cannot_say_is_kept_in_an_annotation() -> None:
    full = written(FULL, replicas=1, partition={"enabled": True, "config": "Default=YES"}, extraConf="Weight=2")
    short = convert(full, SHORT)
    assert set(short["metadata"]["annotations"]) == {KEPT_FULL}
    assert convert(short, FULL) == full


def test_defaults_are_not_kept() -> None:
    full = written(FULL, replicas=1, scalingMode="StatefulSet", ssh={"enabled": False}, pinToNode=False)
    assert "annotations" not in convert(full, SHORT)["metadata"]


def test_what_the_full_form_cannot_say_is_kept_in_an_annotation() -> None:
    short = written(SHORT, selector={"matchLabels": {"a": "b"}}, serviceName="nodes", replicas=1)
    full = convert(short, FULL)
    assert set(full["metadata"]["annotations"]) == {KEPT_SHORT}
    assert convert(full, SHORT) == short


def test_who_edits_the_short_form_changes_the_full_one() -> None:
    full = written(FULL, replicas=3, slurmd={"image": "old"}, extraConf="Weight=2", controllerRef={"name": "slurm"})
    short = convert(full, SHORT)
    short["spec"]["replicas"] = 5
    short["spec"]["template"]["spec"]["containers"][0]["image"] = "new"
    assert convert(short, FULL)["spec"] == full["spec"] | {"replicas": 5, "slurmd": {"image": "new"}}


def test_side_containers_alone_do_not_become_the_main_one() -> None:
    full = written(FULL, template={"spec": {"containers": [{"name": "side"}]}})
    assert convert(convert(full, SHORT), FULL) == full


def test_a_second_container_called_slurmd_is_not_taken_for_the_first() -> None:
    full = written(FULL, slurmd={"name": "mine"}, template={"spec": {"containers": [{"name": "slurmd"}]}})
    assert convert(convert(full, SHORT), FULL) == full


def test_status_goes_along() -> None:
    full = written(FULL, replicas=1) | {"status": {"replicas": 1, "slurmIdle": 1}}
    assert convert(full, SHORT)["status"] == full["status"]


@pytest.mark.parametrize("text", ["{", "[]", '{"container": -1}', '{"container": true}', '{"container": "x"}'])
def test_spoiled_kept_fields_refuse_a_write_in_short(text: str) -> None:
    with pytest.raises(Terminal, match="was changed"):
        convert(written(SHORT, annotations={KEPT_FULL: text}), FULL)


@pytest.mark.parametrize("text", ["{", "[]", '{"container": -1}', '{"container": "x"}', '{"serviceName": 5}'])
def test_spoiled_kept_fields_never_stop_a_list(text: str) -> None:
    full = written(FULL, annotations={KEPT_SHORT: text}, replicas=1, slurmd={"image": "x"})
    assert convert(full, SHORT)["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("manifest", "version"),
    [
        (written(SHORT, "Controller"), FULL),
        (written(SHORT), "slinky.slurm.net/v2"),
        (written("apps/v1"), FULL),
        ({}, FULL),
    ],
)
def test_what_is_not_ours_is_refused(manifest: dict[str, Any], version: str) -> None:
    with pytest.raises(Terminal, match="cannot convert"):
        convert(manifest, version)


names = st.sampled_from(["slurmd", "login", "side", "other"])
containers = st.lists(
    st.fixed_dictionaries({"name": names}, optional={"image": st.sampled_from(["a", "b"])}),
    max_size=3,
    unique_by=lambda it: it["name"],
)
pods = st.fixed_dictionaries({}, optional={"hostNetwork": st.booleans(), "containers": containers.filter(bool)})
templates = st.fixed_dictionaries(
    {}, optional={"metadata": st.just({"labels": {"a": "b"}}), "spec": pods.filter(bool)}
).filter(bool)
mains = st.fixed_dictionaries(
    {}, optional={"name": st.sampled_from(["side", "mine"]), "image": st.just("x"), "args": st.just(["-v"])}
).filter(bool)
full_specs = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 9),
        "controllerRef": st.just({"name": "slurm"}),
        "slurmd": mains,
        "template": templates,
        "extraConf": st.just("Weight=1"),
        "volumeClaimTemplates": st.just([{"metadata": {"name": "data"}}]),
        "scalingMode": st.just("DaemonSet"),
        "ssh": st.just({"enabled": True}),
        "logfile": st.just({"image": "log:1"}),
        "sharedRoot": st.just({"volume": {"emptyDir": {}}}),
    },
)
short_specs = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 9),
        "clusterName": st.just("slurm"),
        "template": templates,
        "selector": st.just({"matchLabels": {}}),
        "serviceName": st.just("nodes"),
        "minReadySeconds": st.just(3),
    },
)
annotated = st.sampled_from([None, {"a": "b"}])


def comes_back(there: str, back: str, spec: dict[str, Any], annotations: dict[str, str] | None) -> bool:
    """Whether an object is the same after two conversions, which leave their own source alone."""
    made = written(back, annotations=annotations, **spec)
    before = copy.deepcopy(made)
    return bool(convert(convert(made, there), back) == made == before)


@given(spec=full_specs, annotations=annotated)
def test_nothing_is_lost_on_the_way_to_the_short_form_and_back(
    spec: dict[str, Any], annotations: dict[str, str] | None
) -> None:
    assert comes_back(SHORT, FULL, spec, annotations)


@given(spec=short_specs, annotations=annotated)
def test_nothing_is_lost_on_the_way_to_the_full_form_and_back(
    spec: dict[str, Any], annotations: dict[str, str] | None
) -> None:
    assert comes_back(FULL, SHORT, spec, annotations)

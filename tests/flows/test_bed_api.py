"""The API server as tests ask it in their own process: the same names as kubectl, and errors that say as much."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.bed.api import Api
from tests.bed.commands import CommandError
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.waiting import eventually

_CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.bed.isthmus.test}
spec:
  group: bed.isthmus.test
  scope: Cluster
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""


@pytest.fixture(scope="module")
def api(control_plane: ControlPlaneBed) -> Iterator[Api]:
    with closing(Api(control_plane.kubeconfig)) as opened:
        control_plane.kubectl("create", "namespace", "bed-api")
        for name in ("one", "two"):
            control_plane.kubectl("create", "configmap", name, "--namespace=bed-api", f"--from-literal=is={name}")
        control_plane.kubectl("label", "configmap", "one", "--namespace=bed-api", "chosen=yes")
        yield opened
        control_plane.kubectl("delete", "namespace", "bed-api", "--wait=false")


@pytest.mark.parametrize("word", ["configmap", "configmaps", "cm"])
def test_an_object_is_read_by_any_name_of_its_kind(api: Api, word: str) -> None:
    assert api.get(f"{word}/one", "bed-api")["data"] == {"is": "one"}


def test_objects_are_listed_by_namespace_and_selector(api: Api) -> None:
    def names(**chosen: str) -> set[str]:
        return {it["metadata"]["name"] for it in api.get("configmaps", "bed-api", **chosen)["items"]}

    assert names() >= {"one", "two"}
    assert names(selector="chosen=yes") == {"one"}
    assert "bed-api" in {it["metadata"]["name"] for it in api.get("namespaces")["items"]}


def test_a_group_may_be_named_and_a_kind_may_be_new(api: Api, control_plane: ControlPlaneBed) -> None:
    assert api.get("deployments.apps", "bed-api")["items"] == []
    with pytest.raises(LookupError, match="gadget"):
        api.get("gadget/none")
    control_plane.kubectl("apply", "--filename=-", stdin=_CRD)
    try:
        control_plane.kubectl("wait", "--for=condition=Established", "crd/gadgets.bed.isthmus.test")

        def told() -> str:
            try:
                return str(api.get("gadgets.bed.isthmus.test")["items"])
            except LookupError as error:
                return str(error)

        eventually(told, "the new kind to be served", holds=lambda it: it == "[]")
    finally:
        control_plane.kubectl("delete", "crd", "gadgets.bed.isthmus.test")


def test_a_failure_says_what_was_asked_and_what_the_server_answered(api: Api) -> None:
    with pytest.raises(CommandError) as told:
        api.get("cm/none", "bed-api")
    assert "get cm/none in namespace bed-api: " in str(told.value)
    assert 'configmaps "none" not found' in str(told.value)
    with pytest.raises(CommandError) as told:
        api.exec("nobody", "hostname", "-f", namespace="bed-api")
    assert "exec nobody -- hostname -f in namespace bed-api: " in str(told.value)
    assert 'pods "nobody" not found' in str(told.value)


def test_a_server_that_is_away_is_a_failure_of_now(own_control_plane: ControlPlaneBed) -> None:
    with closing(Api(own_control_plane.kubeconfig)) as api:
        assert api.get("namespace/default")["metadata"]["name"] == "default"
        own_control_plane.kill("kube-apiserver")
        with pytest.raises(CommandError, match="no response from"):
            api.get("namespace/default")
        own_control_plane.start("kube-apiserver")
        assert eventually(lambda: api.get("namespace/default"), "the server to answer again")

"""What claims ask for, and the claim for extended resources of a pod."""

from typing import Any

import msgspec
import pytest

from isthmus.domain.kube.deviceclaims import Choice, Need, Request, Rule, extended_of, need_of
from isthmus.errors import Terminal
from isthmus.model.dra import ClaimSpec
from isthmus.model.pod import Container, Pod, PodSpec, Resources

GPU = "deviceclass.resource.kubernetes.io/gpu.example.com"


def spec(*requests: dict[str, Any], **more: Any) -> ClaimSpec:
    return msgspec.convert({"devices": {"requests": requests, **more}}, ClaimSpec)


def test_a_claim_is_read_as_kubernetes_reads_it() -> None:
    expression = "device.driver == 'a'"
    found = need_of(
        spec(
            {"name": "a", "exactly": {"deviceClassName": "x", "selectors": [{"cel": {"expression": expression}}]}},
            {"name": "b", "exactly": {"deviceClassName": "x", "allocationMode": "All", "adminAccess": True}},
            {"name": "c", "firstAvailable": [{"name": "p", "deviceClassName": "x", "count": 2}]},
            {"name": "d", "exactly": {"deviceClassName": "x", "capacity": {"requests": {"memory": "1Gi"}}}},
            constraints=[{"matchAttribute": "d/e", "requests": ["a"]}, {"distinctAttribute": "d/f"}],
        )
    )
    assert found == Need(
        (
            Request("a", (Choice("x", (expression,)),)),
            Request("b", (Choice("x", every=True, admin=True),)),
            Request("c", (Choice("x", count=2, name="p"),)),
            Request("d", (Choice("x", capacity=(("memory", "1Gi"),)),)),
        ),
        (Rule("d/e", ("a",)), Rule("d/f", distinct=True)),
    )


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"name": "a", "exactly": {"deviceClassName": "x", "count": 33}}, "33 devices"),
        ({"name": "a", "exactly": {"deviceClassName": "x", "allocationMode": "Most"}}, "mode Most"),
        ({"name": "a", "exactly": {"deviceClassName": "x", "selectors": [{}]}}, "unknown kind of selector"),
        (
            {"name": "a", "exactly": {"deviceClassName": "x", "selectors": [{"cel": {"expression": "f(1)"}}]}},
            "is not supported",
        ),
        ({"name": "a"}, "of an unknown kind"),
    ],
)
def test_what_slurm_cannot_place_is_refused(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(Terminal, match=why):
        need_of(spec(asked))


def test_a_constraint_of_another_kind_is_refused() -> None:
    with pytest.raises(Terminal, match="constraint"):
        need_of(spec({"name": "a", "exactly": {"deviceClassName": "x"}}, constraints=[{}]))


def container(name: str, count: int, *, restarts: str = "") -> Container:
    resources = Resources({"cpu": "1", GPU: str(count)} if count else {"cpu": "1"})
    return Container(name, resources, restart_policy=restarts)


def told(*containers: Container, init: tuple[Container, ...] = ()) -> tuple[dict[str, int], list[tuple[str, str]]]:
    found = extended_of(Pod(spec=PodSpec(containers, init)), {GPU: "gpu.example.com"})
    counts = {name: count for name, _, count in found.requests}
    return counts, [(it.container_name, it.request_name) for it in found.mappings]


def test_each_container_has_a_request_that_is_named_as_kube_scheduler_names_it() -> None:
    counts, mappings = told(container("a", 0), container("b", 2), container("c", 1))
    assert counts == {"container-1-request-1": 2, "container-2-request-1": 1}
    assert mappings == [("b", "container-1-request-1"), ("c", "container-2-request-1")]


def test_more_than_one_claim_can_have_is_refused() -> None:
    found = extended_of(Pod(spec=PodSpec((container("a", 33),))), {GPU: "gpu.example.com"})
    with pytest.raises(Terminal, match="33 devices"):
        assert found.need


def test_init_containers_use_the_devices_of_those_that_come_later() -> None:
    init = (container("small", 1), container("sidecar", 1, restarts="Always"), container("large", 5))
    counts, mappings = told(container("main", 2), init=init)
    # Beside the two of the main container, the largest init container needs three more.
    assert counts == {"container-1-request-1": 1, "container-2-request-1": 3, "container-3-request-1": 2}
    assert [request for name, request in mappings if name == "small"] == ["container-1-request-1"]
    assert [request for name, request in mappings if name == "large"] == [
        "container-3-request-1",
        "container-2-request-1",
    ]

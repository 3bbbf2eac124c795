"""The claims of a pod: which are there, who else uses them, and what they take."""

from typing import Any

import msgspec
import pytest

from isthmus.domain.bridge.allocation import Fit
from isthmus.domain.bridge.podclaims import PodClaims, claim_names, gather, shape_of
from isthmus.domain.kube.deviceclaims import Need, extended_of
from isthmus.model.dra import ResourceClaim
from isthmus.model.meta import Key
from isthmus.model.pod import Pod

CPUS = "deviceclass.resource.kubernetes.io/dra.cpu"


def pod(uid: str = "u1", **more: Any) -> Pod:
    return msgspec.convert({"metadata": {"namespace": "ns", "name": "p", "uid": uid}, **more}, Pod)


def claim(**status: Any) -> ResourceClaim:
    meta = {"namespace": "ns", "name": "c", "uid": "cu"}
    return msgspec.convert({"metadata": meta, "status": status}, ResourceClaim)


def test_claims_of_a_pod_are_found_by_the_names_that_they_were_given() -> None:
    uses = [
        {"name": "a", "resourceClaimName": "c"},
        {"name": "b", "resourceClaimTemplateName": "t"},
        {"name": "none", "resourceClaimTemplateName": "t"},
    ]
    waiting = pod(spec={"resourceClaims": uses})
    assert list(claim_names(waiting)) == [("a", "c"), ("b", ""), ("none", "")]
    none = Need(())
    assert "does not exist yet" in gather(waiting, {Key("ns", "c"): claim()}.get, lambda _: none).waiting
    made = {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "b-1"}, {"name": "none"}]}
    ready = pod(spec={"resourceClaims": uses}, status=made)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1", "controller": True}
    theirs = {**owner, "uid": "another"}
    of_pod, of_other = (
        msgspec.convert({"metadata": {"namespace": "ns", "name": "b-1", "ownerReferences": [it]}}, ResourceClaim)
        for it in (owner, theirs)
    )
    found = gather(ready, {Key("ns", "c"): claim(), Key("ns", "b-1"): of_pod}.get, lambda _: none)
    assert (found.waiting, len(found.open)) == ("", 2)
    # A claim of an earlier pod of the same name is not this pod's.
    assert gather(ready, {Key("ns", "c"): claim(), Key("ns", "b-1"): of_other}.get, lambda _: none).waiting


def test_a_claim_of_others_ties_the_pod_to_its_node() -> None:
    other = {"resource": "pods", "name": "o", "uid": "u2"}
    selector = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    }
    result = {"request": "r", "driver": "d.org", "pool": "n1", "device": "g0"}
    has = {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}}
    user = pod(spec={"resourceClaims": [{"name": "a", "resourceClaimName": "c"}]})
    shared = gather(user, lambda _: claim(reservedFor=[other], **has), lambda _: Need(()))
    assert (len(shared.settled), len(shared.terms), shared.needs) == (1, 1, ())
    mine = gather(user, lambda _: claim(reservedFor=[{**other, "uid": "u1"}], **has), lambda _: Need(()))
    assert (len(mine.open), mine.terms) == (1, ())


def container(name: str, cpu: str = "", *claims: str) -> dict[str, Any]:
    uses = [dict(zip(("name", "request"), it.split("/"), strict=False)) for it in claims]
    return {"name": name, "resources": {"requests": {"cpu": cpu} if cpu else {}, "claims": uses}}


@pytest.mark.parametrize(
    ("containers", "of_pod", "cpus"),
    [
        ([container("a", "", "c")], "", 4),
        ([container("a", "4", "c"), container("b", "2")], "", 6),  # as the driver advises
        ([container("a", "6", "c")], "", 6),
        ([container("a", "1", "c"), container("b", "2")], "", 6),
        ([container("a", "", "c/r"), container("b", "2", "gpus")], "", 6),
        ([container("a", "", "c"), container("b")], "6", 6),  # the whole pod is told
        ([container("a", "", "c")], "1", 4),
        ([container("a", "2")], "", 6),  # nobody uses them yet
    ],
)
def test_cpus_of_claims_and_of_requests_are_not_counted_twice(
    containers: list[dict[str, Any]], of_pod: str, cpus: int
) -> None:
    whole = {"resources": {"requests": {"cpu": of_pod}}} if of_pod else {}
    made = pod(spec={"containers": containers, **whole})
    claims = PodClaims((claim(),), uses=("c",))
    shape = shape_of(made, claims, Fit({"gpu:x": 1}, {(0, "r"): 4}, 0))
    assert (shape.milli_cpu, dict(shape.gres)) == (cpus * 1000, {"gpu:x": 1})


def test_cpus_as_extended_resources_are_those_of_their_containers() -> None:
    asked = {"name": "a", "resources": {"requests": {CPUS: "4", "cpu": "4"}}}
    made = pod(spec={"containers": [asked, container("b", "1")]})
    extended = extended_of(made, {CPUS: "dra.cpu"})
    (request,) = (name for name, _, _ in extended.requests)
    claims = PodClaims(extended=extended, resources=frozenset({CPUS}))
    assert shape_of(made, claims, Fit({}, {(0, request): 4}, 0)).milli_cpu == 5000

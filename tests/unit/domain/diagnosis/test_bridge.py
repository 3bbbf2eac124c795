"""What the doctor says about the bridge: that it runs, is believed, and serves whom it should."""

from typing import Any

from isthmus.domain.diagnosis import ClusterFacts, Facts, Finding, diagnose
from isthmus.domain.diagnosis.facts import (
    BridgeFacts,
    Hold,
    PodFact,
    ReturnedFact,
    SecretFact,
    SlurmNodeFact,
    WebhookFact,
)
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.policy import BridgePolicy, BridgePolicySpec

HOOKS = tuple(WebhookFact(kind=f"{it}WebhookConfiguration", name="bridge-admission") for it in ("A", "B"))
PODS = tuple(PodFact(name=it, component=it, ready=True) for it in ("scheduler", "controllers", "admission"))
TLS, TOKEN = Key("slurm", "bridge-admission-tls"), Key("slurm", "bridge-token")
WELL: dict[str, Any] = {
    "key": Key("slurm", "bridge"),
    "pods": PODS,
    "webhooks": HOOKS,
    "certificate": SecretFact(key=TLS, left=60 * 86400.0),
    "token": SecretFact(key=TOKEN, left=30 * 86400.0),
    "slurm": "http://demo-restapi.hpc:6820",
}


def found(bridge: dict[str, Any] | None = None, **facts: Any) -> tuple[Finding, ...]:
    return diagnose(Facts(bridges=(BridgeFacts(**(WELL | (bridge or {}))),), **facts))


def only(bridge: dict[str, Any] | None = None, **facts: Any) -> Finding:
    findings = found(bridge, **facts)
    assert len(findings) == 1, findings
    return findings[0]


def asleep(*parts: str) -> tuple[PodFact, ...]:
    return tuple(PodFact(name=it.name, component=it.component, ready=it.name not in parts) for it in PODS)


def test_a_bridge_that_is_well_has_no_findings() -> None:
    assert found() == ()
    assert found({"pods": (PodFact(name="all", component="all", ready=True),)}) == ()


def test_a_token_that_expired_or_is_missing_explains_the_pods_that_are_not_ready() -> None:
    expired = only({"token": SecretFact(key=TOKEN, left=-7200.0), "pods": asleep("scheduler", "controllers")})
    assert (expired.area, expired.grave) == ("auth", True)
    assert expired.what == "the bridge's token for Slurm expired 2 h ago"
    missing = only({"token": SecretFact(key=TOKEN, trouble="is missing"), "pods": asleep("scheduler")})
    assert missing.what == "the bridge's token for Slurm is missing"
    soon = only({"token": SecretFact(key=TOKEN, left=3600.0)})
    assert not soon.grave
    assert found({"token": SecretFact(key=TOKEN)}) == (), "it never expires"


def test_webhooks_that_nobody_answers_for() -> None:
    assert "new pods for Slurm are refused" in only({"pods": asleep("admission")}).what
    assert found({"webhooks": (), "pods": asleep("admission")}) == (), "it is installed without admission"


def test_an_authority_that_the_api_server_does_not_know_can_be_put_right() -> None:
    strange = WebhookFact(kind="A", name="bridge-admission", trusts=False)
    finding = only({"webhooks": (strange, HOOKS[1])})
    assert finding.where == "A bridge-admission"
    assert finding.fix
    assert (finding.fix.repair, finding.fix.target) == ("trust", "slurm/bridge")


def test_a_certificate_that_nobody_renews() -> None:
    late = only({"certificate": SecretFact(key=TLS, left=3 * 86400.0)})
    assert (late.grave, "expires in 3 d" in late.what) == (False, True)
    assert only({"certificate": SecretFact(key=TLS, left=-1.0)}).grave
    assert "is missing" in only({"certificate": SecretFact(key=TLS, trouble="is missing")}).what


def test_pods_that_do_not_start_are_explained_as_those_of_clusters() -> None:
    held = PodFact(name="scheduler", component="scheduler", holds=(Hold("main", "ErrImagePull", image="x"),))
    assert only({"pods": (held, *PODS[1:])}).area == "images"
    assert "no scheduler of the bridge is ready" in only({"pods": asleep("scheduler")}).what


def test_nodes_that_slurm_does_not_have() -> None:
    cluster = ClusterFacts(key=Key("hpc", "demo"), controller="demo", nodes=(SlurmNodeFact("k1", ("IDLE",)),))
    finding = [it for it in found(external=("k1", "k2"), clusters=(cluster,)) if it.area == "bridge"]
    assert [it.what.partition(" ")[0] for it in finding] == ["k2"]
    elsewhere = {"slurm": "https://slurm.example.org:6820"}
    assert not [it for it in found(elsewhere, external=("k2",), clusters=(cluster,)) if it.area == "bridge"]


def test_devices_that_the_two_sides_count_differently() -> None:
    finding = only(miscounted={"k2": "gpu: Slurm has 4, drivers have 8"})
    assert "devices of k2" in finding.what
    assert (finding.why, finding.grave) == ("gpu: Slurm has 4, drivers have 8", False)


def test_pods_for_a_bridge_that_is_not_there() -> None:
    (finding,) = diagnose(Facts(bridges=(), unserved=("team/a", "team/b")))
    assert finding.what == "2 pods wait for Slurm, and no bridge is installed"
    assert diagnose(Facts(bridges=None, unserved=("team/a",))) == (), "who may not list knows nothing"


def test_a_policy_for_nobody() -> None:
    policy = BridgePolicy(BridgePolicySpec(namespaces=("gone",)), ObjectMeta(name="p"))
    finding = only(bridge_policies=(policy,), namespaces={"team": {}})
    assert (finding.what, finding.why) == ("BridgePolicy p has no effect", "there is no namespace gone")


def test_allocations_that_went_back_are_worth_knowing_with_pod_and_node() -> None:
    returned = ReturnedFact(pod="batch/train-1", why="Slurm gave node w3, but w3 is too small")
    (told,) = diagnose(Facts(returned=(returned,)))
    assert (told.area, told.where, told.grave) == ("bridge", "pod batch/train-1", False)
    assert "node w3" in told.why

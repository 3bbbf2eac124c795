"""Each fault of the list in docs/operator.md, with all that follows from it: the doctor names the cause alone.

The facts hold what follows from a fault, too: Degraded parts and the sum of them in the SlurmCluster, pods that
wait for others, commands of Slurm that fail. `LIVE` says which faults are also injected, by flows into a real API
server with the whole operator, and by end-to-end tests into a cluster at work.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from isthmus.domain.diagnosis import Facts, Finding, diagnose
from isthmus.domain.diagnosis.facts import (
    Answer,
    ClaimFact,
    DiskFact,
    Ending,
    Hold,
    InsideFact,
    KindFact,
    OperatorFact,
    PartFact,
    PodFact,
    SlurmNodeFact,
    StrayFact,
)
from isthmus.domain.kube.conditions import no, yes
from isthmus.domain.operator.manifests import sssd
from isthmus.model.meta import Condition
from tests.e2e.injected import INJECTED, STILLBORN
from tests.unit.domain.test_diagnosis import ALIVE, INSIDES, KEYS, NODES, changed, healthy, seen

TESTS = Path(__file__).parents[2]
DOCUMENT = TESTS.parent / "docs" / "operator.md"
NOW = 1_800_000_000.0

_PARTS = {
    "Controller": ("demo", "ControllersAvailable", "slurmctld"),
    "RestApi": ("demo", "CommonAvailable", "slurmrestd"),
    "Accounting": ("demo", "AccountingAvailable", "slurmdbd"),
    "LoginSet": ("login", "LoginAvailable", "login"),
    "NodeSet": ("worker", "WorkersAvailable", "NodeSet worker"),
}


def parts(
    wrong: dict[str, str] | None = None,
    *own: Condition,
    cluster: str = "",
    of: dict[str, tuple[Condition, ...]] | None = None,
    also: tuple[PartFact, ...] = (),
) -> tuple[PartFact, ...]:
    """Make the parts of a cluster: `wrong` of some of them, of the cluster itself, and conditions besides."""
    wrong, of = wrong or {}, of or {}
    texts = [f"{title}: {wrong[kind]}" for kind, (_, _, title) in _PARTS.items() if kind in wrong]
    views = [no(_PARTS[kind][1], "NotAvailable", f"{_PARTS[kind][2]}: {text}") for kind, text in wrong.items()]
    whole = "; ".join([*texts, *([cluster] if cluster else [])])
    return (
        PartFact(kind="SlurmCluster", name="demo", age=600.0, conditions=(*_held(whole), *views, *own)),
        *(
            PartFact(kind=kind, name=name, conditions=(*_held(wrong.get(kind, "")), *of.get(kind, ())))
            for kind, (name, _, _) in _PARTS.items()
        ),
        *also,
    )


def _held(wrong: str) -> tuple[Condition, ...]:
    if wrong:
        return (no("Ready", "Degraded", wrong), yes("Degraded", "NeedsAttention", wrong))
    return (yes("Ready", "AsExpected"), no("Degraded", "AsExpected"))


def facts(cluster: dict[str, Any] | None = None, **other: Any) -> Facts:
    given = {"parts": parts(), "now": NOW, **(cluster or {})}
    return Facts(**({"operators": (ALIVE,), "clusters": (healthy(**given),)} | other))


def pending(pod: str, **fields: Any) -> tuple[PodFact, ...]:
    return changed(pod, **{"ready": False, "phase": "Pending", **fields})


def root(reason: str, message: str, status: str = "False", **more: Any) -> Facts:
    held = Condition(type="JailPopulated", status=status, reason=reason, message=message)  # type: ignore[arg-type]
    wrong = message if status == "False" else ""
    waiting = changed("worker-1", ready=False, age=300.0, host="worker-9")
    return facts({"parts": parts(None, held, cluster=wrong), **({"pods": waiting} if wrong else {}), **more})


def silent(text: str = "Slurmctld(primary) at controller-0 is DOWN") -> dict[str, Any]:
    """All that fails while slurmctld does not answer."""
    unreachable = (no("SlurmReachable", "OutOfTouch", "Slurm does not answer"),)
    return {
        "ping": Answer(code=1, text=text),
        "database": Answer(code=1, text="sacctmgr: error: could not get the configuration"),
        "nodes": None,
        "unreachable": unreachable,
    }


def without_slurmctld(*, pods: tuple[PodFact, ...], wrong: dict[str, str] | None = None, **more: Any) -> Facts:
    gone = silent()
    if any(it.name == "controller-0" and not it.ready for it in pods):
        # slurmrestd ends where it finds no slurmctld.
        ended = Ending(container="slurmrestd", code=1, restarts=5, message="fatal: slurm_init failed")
        pods = (*pods, PodFact(name="demo-restapi-x", component="restapi", part="demo", endings=(ended,)))
        wrong = {**(wrong or {}), "RestApi": "pod demo-restapi-x: container slurmrestd ended with 1"}
    made = parts(wrong, of={"Controller": gone.pop("unreachable")})
    return facts({"parts": made, "pods": pods, **gone, **more})


JAILED = PartFact(kind="JailedConfig", name="scripts", age=600.0)
CRASH = 'exec: "isthmus": executable file not found in $PATH'
WRITER = PodFact(
    name="sconfigcontroller-x",
    component="sconfigcontroller",
    part="demo",
    ready=False,
    holds=(Hold(container="sconfigcontroller", reason="CrashLoopBackOff"),),
    endings=(Ending(container="sconfigcontroller", code=128, restarts=4, reason="StartError", message=CRASH),),
)
SLURMDBD = PodFact(name="demo-accounting-0", component="accounting", part="demo", ready=False)
TAINT = "0/3 nodes are available: 3 node(s) had untolerated taint {hpc: true}"
NO_CLAIM = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims"
NO_PASSWORD = "there is no Secret db, which passwordKeyRef names"
PULL = Hold(container="slurmctld", reason="ErrImagePull", message="not found", image="example/slurm:9")
DENIED = "error: mysql_real_connect failed: 1045 Access denied for user 'slurm'"


def _kubernetes_node() -> Facts:
    nodes = (NODES[0], SlurmNodeFact(name="worker-1", states=("DOWN",), reason="Not responding"))
    pods = changed("worker-1", ready=False)
    unready = {"k2": "Kubelet stopped posting node status."}
    return facts({"pods": tuple(it for it in pods if it.name != "login-0"), "nodes": nodes}, unready=unready)


def _no_claim() -> Facts:
    text = f"the shared root cannot be filled: pod populate-jail-x cannot be scheduled: {NO_CLAIM}"
    claims = (ClaimFact(name="jail", phase="Pending", shared=True, note="no storage class is set"),)
    pods = tuple(
        it for name in ("login-0", "worker-1") for it in pending(name, unplaced=NO_CLAIM) if it.name == name
    )
    return root("Waiting", text, claims=claims, pods=pods, nodes=(), insides=())


def _config(reason: str, message: str, *, ago: float) -> Facts:
    since = datetime.fromtimestamp(NOW - ago, UTC)
    held = Condition("ConfigApplied", "False", reason=reason, message=message, last_transition_time=since)
    wrong = {"Controller": message} if reason != "Delivering" else None
    return facts({"parts": parts(wrong, of={"Controller": (held,)})})


def _database(log: str) -> Facts:
    """A new cluster: slurmctld waits for slurmdbd, and everybody for slurmctld."""
    pods = (*changed("controller-0", ready=False), SLURMDBD)
    made = without_slurmctld(pods=pods, slurmdbd_log=log)
    (cluster,) = made.clusters
    waiting = (no("Ready", "Progressing", "slurmdbd: pod demo-accounting-0 is not ready yet"),)
    accounting = PartFact(kind="Accounting", name="demo", conditions=waiting)
    others = [it for it in cluster.parts if it.kind != "Accounting"]
    return facts({**_fields(cluster), "parts": (*others, accounting)})


def _fields(of: Any) -> dict[str, Any]:
    return {name: getattr(of, name) for name in of.__struct_fields__}


def _clock() -> Facts:
    nodes = (NODES[0], SlurmNodeFact(name="worker-1", states=("DOWN",), reason="Not responding"))
    return facts({"insides": seen("worker-1", clock=400.0), "nodes": nodes})


def _keys() -> Facts:
    nodes = (NODES[0], SlurmNodeFact(name="worker-1", states=("IDLE", "NOT_RESPONDING")))
    return facts({"insides": seen("worker-1", keys={"slurm.jwks": "bbbb"}), "nodes": nodes})


def _dns() -> Facts:
    deaf = tuple(
        InsideFact(pod=it.pod, component=it.component, keys=KEYS, unresolved=("worker-0", "controller-0"))
        for it in INSIDES
    )
    return facts(
        {"insides": deaf, "ping": Answer(code=1, text="Unable to contact slurm controller"), "nodes": None}
    )


def _state_full() -> Facts:
    disks = (DiskFact(path="/var/spool/slurmctld", space=100),)
    gone = silent()
    gone.pop("unreachable")
    return facts({"insides": seen("controller-0", disks=disks), **gone, "database": Answer(code=0)})


def _rest(message: str) -> Facts:
    held = (no("SlurmReachable", "OutOfTouch", message),)
    return facts({"parts": parts(of={"Controller": held, "NodeSet": held})})


def _drained(reason: str) -> Facts:
    nodes = tuple(SlurmNodeFact(name=f"worker-{it}", states=("IDLE", "DRAIN"), reason=reason) for it in (0, 1))
    return facts({"nodes": nodes})


def _node(*states: str, reason: str = "") -> Facts:
    return facts({"nodes": (NODES[0], SlurmNodeFact(name="worker-1", states=states, reason=reason))})


def _worker_image() -> Facts:
    hold = Hold(container="slurmd", reason="ErrImagePull", message="not found", image="example/login:9")
    pods = tuple(it for name in ("controller-0", "login-0") for it in changed(name) if it.name == name) + tuple(
        PodFact(name=f"worker-{it}", component="worker", part="worker", phase="Pending", holds=(hold,))
        for it in range(2)
    )
    text = "0 of 2 nodes are ready; pod worker-0: container slurmd: ErrImagePull: not found"
    return facts({"parts": parts({"NodeSet": text}), "pods": pods, "nodes": ()})


def _login_image() -> Facts:
    hold = Hold(container="sshd", reason="ErrImagePull", message="not found", image="example/login:9")
    text = "0 of 1 pods are ready; pod login-0: container sshd: ErrImagePull: not found"
    return facts({"parts": parts({"LoginSet": text}), "pods": pending("login-0", holds=(hold,))})


def _stray(kind: str, name: str, *held: Condition) -> Facts:
    return facts(
        strays=(StrayFact(namespace="hpc", part=PartFact(kind=kind, name=name, conditions=held, age=600.0)),)
    )


FAULTS: dict[str, Callable[[], Facts]] = {
    "the kinds are not installed": lambda: facts(
        kinds=(KindFact(name="slurmclusters.slurm.nebius.ai", served=False),)
    ),
    "the kinds are of an older version": lambda: facts(
        kinds=(KindFact(name="tokens.slinky.slurm.net", lacks=("spec.refresh",)),)
    ),
    "the operator is gone": lambda: facts(operators=(OperatorFact(holder="isthmus-operator-1", renewed=300.0),)),
    "you may not list pods": lambda: facts(troubles={"pods": "pods is forbidden"}),
    "a node filter is named that there is none of": lambda: facts(
        {"parts": parts(None, no("Accepted", "CannotBeMade", "no filter 'gpu'"), cluster="no filter 'gpu'")}
    ),
    "a policy refuses a part of the cluster": lambda: facts(
        {"parts": parts(cluster="ConfigMap demo-files: denied the request")}
    ),
    "a quota leaves no room for pods": lambda: _refused(
        "exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3",
        *("Controller", "RestApi", "LoginSet", "NodeSet"),
    ),
    "a security policy refuses the pods of workers": lambda: _refused(
        'violates PodSecurity "baseline:latest": privileged', "NodeSet"
    ),
    "the node port is taken": lambda: facts(
        {"parts": parts({"LoginSet": "nodePort: provided port is already allocated"})}
    ),
    "the RestApi of a cluster of parts is missing": lambda: facts(
        {"parts": tuple(it for it in parts() if it.kind != "RestApi")}
    ),
    "a LoginSet names a Controller that there is none of": lambda: _stray(
        "LoginSet", "door", *_held("there is no Controller typo in namespace hpc")
    ),
    "a NodeSet of Soperator names a cluster that there is none of": lambda: _stray(
        "NodeSet.slurm.nebius.ai", "gpu", no("Ready", "Progressing", "there is no SlurmCluster typo")
    ),
    "a JailedConfig names a cluster that there is none of": lambda: _stray(
        "JailedConfig",
        "motd",
        no("UpdateActionsCompleted", "Init", "there is no SlurmCluster typo in this namespace"),
    ),
    "the key of a Token is in no Secret": lambda: _stray("Token", "pass", *_held("there is no Secret some-keys")),
    "a rebooter has no account": lambda: _stray(
        "NodeConfigurator", "machines", *_held("rebooter.serviceAccountName is empty: name an account")
    ),
    "a Secret with a key is missing": lambda: _config(
        "Invalid", "there is no Secret site-keys, which slurmKeyRef names", ago=60.0
    ),
    "a Kubernetes node is lost": _kubernetes_node,
    "no node takes a worker": lambda: facts(
        {
            "parts": parts({"NodeSet": f"1 of 2 nodes are ready; 1 has no place: {TAINT}"}),
            "pods": pending("worker-1", unplaced=TAINT, node=""),
            "nodes": NODES[:1],
        }
    ),
    "there is no storage class": _no_claim,
    "the shared volume can be mounted on one node only": lambda: facts(
        {"claims": (ClaimFact(name="jail", modes=("ReadWriteOnce",), shared=True),)}
    ),
    "a volume is not mounted": lambda: facts(
        {"pods": pending("login-0", unmounted='MountVolume.SetUp failed for volume "x": secret "x" not found')}
    ),
    "slurmctld's image does not exist": lambda: without_slurmctld(
        pods=pending("controller-0", holds=(PULL,)),
        wrong={"Controller": "slurmctld: pod controller-0: container slurmctld: ErrImagePull: not found"},
        insides=(),
    ),
    "the workers' image does not exist": _worker_image,
    "the image of login nodes does not exist": _login_image,
    "slurmctld ends again and again": lambda: without_slurmctld(
        pods=changed(
            "controller-0",
            ready=False,
            endings=(Ending(container="slurmctld", code=1, restarts=5, message="fatal: no state"),),
        ),
        wrong={"Controller": "slurmctld: pod controller-0: container slurmctld ended with 1: fatal: no state"},
    ),
    "sconfigcontroller's image has no isthmus": lambda: facts(
        {
            "parts": parts(
                None,
                no("SConfigControllerAvailable", "NotAvailable", f"sconfigcontroller: {CRASH}"),
                cluster=f"sconfigcontroller: {CRASH}",
                also=(JAILED,),
            ),
            "pods": (*changed("login-0"), WRITER),
        }
    ),
    "the image of the shared root does not exist": lambda: root(
        "Waiting", "the shared root cannot be filled: pod populate-jail-x: container image: ErrImagePull: not found"
    ),
    "the volume of the shared root is too small": lambda: root("Failed", "/mnt/jail is too small: 2 GB are needed"),
    "the shared root is full": lambda: facts(
        {"insides": seen("worker-0", disks=(DiskFact(path="/mnt/jail", space=100),))}
    ),
    "the shared root is from an older image": lambda: root("RefreshDue", "root:2 is wanted", "True"),
    "the ConfigMap of a JailedConfig is missing": lambda: facts(
        {
            "parts": parts(
                also=(
                    PartFact(
                        kind="JailedConfig",
                        name="scripts",
                        conditions=(no("FilesWritten", "NotFound", "there is no ConfigMap scripts; create it"),),
                    ),
                )
            )
        }
    ),
    "slurm.conf has a line that Slurm refuses": lambda: _config(
        "Rejected", "slurmctld in controller-0 rejects it: error: Invalid SlurmctldDebug", ago=5.0
    ),
    "a node does not take the configuration": lambda: _config(
        "Delivering", "1 of 2 nodes have not loaded it yet: worker-1", ago=900.0
    ),
    "a pod has another slurm.conf": lambda: facts(
        {"config": "new", "config_age": 900.0, "insides": seen("worker-1", config="old")}
    ),
    "DNS does not answer": _dns,
    "a worker is not in DNS": lambda: facts({"insides": seen("login-0", unresolved=("worker-1",))}),
    "a node's clock is wrong": _clock,
    "a worker has an old key": _keys,
    "the disk of slurmctld's state is full": _state_full,
    "slurmctld hangs": lambda: without_slurmctld(
        pods=changed("controller-0"), database=Answer(code=0, text="demo")
    ),
    "the Secret of the database's password is missing": lambda: facts(
        {"parts": parts({"Accounting": NO_PASSWORD}), "database": Answer(code=1, text="sacctmgr: error: refused")}
    ),
    "the database cannot be reached": lambda: _database("waiting for the database at db.example.org:3306\n"),
    "the database refuses the password": lambda: facts(
        {
            "pods": (*changed("login-0"), SLURMDBD),
            "database": Answer(code=1, text="sacctmgr: error: refused"),
            "slurmdbd_log": f"slurmdbd: {DENIED}\n",
        }
    ),
    "slurmrestd does not answer": lambda: _rest("Slurm does not answer: connection refused"),
    "the JWT key is another one": lambda: _rest("Slurm refuses the token (HTTP 401)"),
    "a worker does not register": lambda: facts({"nodes": NODES[:1]}),
    "a worker is smaller than its NodeSet says": lambda: _node("IDLE", "INVALID_REG", reason="Low RealMemory"),
    "somebody sets a node down": lambda: _node("DOWN", reason="test broke it"),
    "somebody drains a node": lambda: _node("IDLE", "DRAIN", reason="maintenance"),
    "the shared root is not mounted on workers": lambda: _drained("shared root /mnt/jail is missing on this node"),
    "the login image has no SSSD": lambda: facts(
        {"parts": parts(of={"LoginSet": (no(sssd.AVAILABLE, "NotInImage", sssd.NOT_THERE),)})}
    ),
}
"""By what is done to a healthy cluster."""

LIVE: dict[str, dict[str, str]] = {
    "flows/operator/test_operator_chart.py": dict.fromkeys(
        ("the kinds are not installed", "the kinds are of an older version"),
        "test_the_doctor_names_kinds_that_are_old_and_those_that_are_missing",
    ),
    "flows/operator/test_doctor.py": {
        "you may not list pods": "test_who_may_not_list_pods_is_told_so",
        "a node filter is named that there is none of": "test_a_filter_that_there_is_none_of",
        "a policy refuses a part of the cluster": "test_a_policy_that_refuses_a_part",
        "a quota leaves no room for pods": "test_a_quota_that_lets_no_pod_be_made",
        "a security policy refuses the pods of workers": "test_a_security_policy_that_refuses_pods_of_workers",
        "the RestApi of a cluster of parts is missing": "test_parts_without_a_restapi",
        "a LoginSet names a Controller that there is none of": "test_a_controller_that_there_is_none_of",
        "a NodeSet of Soperator names a cluster that there is none of": "test_a_cluster_that_there_is_none_of",
        "a JailedConfig names a cluster that there is none of": "test_a_jailedconfig_of_no_cluster",
        "the key of a Token is in no Secret": "test_a_token_whose_key_is_in_no_secret",
        "a rebooter has no account": "test_a_rebooter_without_an_account",
        "a Secret with a key is missing": "test_a_key_that_is_in_no_secret",
        "a Kubernetes node is lost": "test_a_machine_that_is_lost",
        "there is no storage class": "test_claims_for_which_there_is_no_storage_class",
        "the shared volume can be mounted on one node only": "test_a_shared_volume_that_one_node_alone_can_mount",
        "the Secret of the database's password is missing": "test_a_database_whose_password_is_in_no_secret",
    },
    "e2e/test_shared_root_filling.py": {
        "the volume of the shared root is too small": (
            "test_a_volume_that_is_too_small_is_said_so_by_the_condition_and_by_the_doctor"
        ),
    },
    "e2e/test_operator_cluster.py": {
        **dict.fromkeys(INJECTED, "test_the_doctor_names_what_was_injected_and_nothing_else"),
        **dict.fromkeys(STILLBORN, "test_the_doctor_names_what_keeps_a_cluster_from_coming_up_and_nothing_else"),
    },
}
"""Which test injects a fault into a real cluster."""


def _refused(reason: str, *kinds: str) -> Facts:
    """Leave parts without pods, because Kubernetes creates none of them."""
    titles = {"Controller": "slurmctld: ", "RestApi": "slurmrestd: ", "LoginSet": "login: ", "NodeSet": ""}
    components = {"Controller": "controller", "RestApi": "restapi", "LoginSet": "login", "NodeSet": "worker"}
    wrong = {
        kind: f'{titles[kind]}pods cannot be created: pods "{components[kind]}-x" is forbidden: {reason}'
        for kind in kinds
    }
    gone = {components[kind] for kind in kinds}
    pods = tuple(it for it in healthy().pods if it.component not in gone)
    if "Controller" in kinds:
        return without_slurmctld(pods=pods, wrong=wrong)
    return facts({"parts": parts(wrong), "pods": pods})


def printed(finding: Finding) -> str:
    return f"{finding.area}: {finding.what}"


def row(fault: str) -> str:
    """Write a fault as the document has it."""
    finding = diagnose(FAULTS[fault]())[0]
    sign = "" if finding.grave else " (worth knowing)"
    return f"| {fault}{sign} | `{printed(finding)}` | {finding.why} |"


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_cause_is_named_and_nothing_else(fault: str) -> None:
    found = diagnose(FAULTS[fault]())
    assert len(found) == 1, [printed(it) for it in found]
    assert found[0].why
    assert found[0].remedy


def test_the_document_lists_every_fault_with_the_words_that_are_printed() -> None:
    _, _, section = DOCUMENT.read_text().partition("| fault | it prints | why |\n")
    rows = [line for line in section.partition("\n\n")[0].splitlines() if not line.startswith("|---")]
    assert rows == [row(fault) for fault in FAULTS]
    assert len(rows) >= 25


def test_most_faults_are_injected_into_real_clusters() -> None:
    injected = [fault for tests in LIVE.values() for fault in tests]
    assert set(injected) <= FAULTS.keys()
    assert len(set(injected)) == len(injected) >= 25
    for file, tests in LIVE.items():
        text = (TESTS / file).read_text()
        assert all(f"def {test}(" in text for test in tests.values())


def test_what_is_of_no_cluster_is_not_told_where_its_cause_was_or_it_is_new() -> None:
    wrong = "there is no Secret site-keys, which slurmKeyRef names"
    (cluster,) = _config("Invalid", wrong, ago=60.0).clusters
    (stray,) = _stray("Token", "pass", *_held("there is no Secret site-keys")).strays
    (finding,) = diagnose(facts({**_fields(cluster)}, strays=(stray,)))
    assert finding.area == "configuration"
    waits = no("Ready", "Progressing", "there is no SlurmCluster typo")
    young = PartFact(kind="NodeSet.slurm.nebius.ai", name="gpu", conditions=(waits,), age=5.0)
    assert diagnose(facts(strays=(StrayFact(namespace="hpc", part=young),))) == ()


def test_what_was_delivered_seconds_ago_is_not_refused() -> None:
    assert diagnose(_config("Delivering", "1 of 2 nodes have not loaded it yet", ago=5.0)) == ()
    assert diagnose(facts({"config": "new", "config_age": 5.0, "insides": seen("worker-1", config="old")})) == ()


def test_a_key_that_is_being_changed_may_differ_for_a_moment() -> None:
    (cluster,) = _config("Delivering", "new keys are being mounted in all pods", ago=5.0).clusters
    insides = seen("worker-1", keys={"slurm.jwks": "bbbb"})
    assert diagnose(facts({**_fields(cluster), "insides": insides})) == ()


def test_a_degraded_cluster_is_never_well_whatever_it_says() -> None:
    only = PartFact(kind="SlurmCluster", name="demo", conditions=_held("something that nobody foresaw"))
    (finding,) = diagnose(facts({"parts": (only, *parts()[1:])}))
    assert finding.grave
    assert finding.why == "something that nobody foresaw"


def test_what_only_the_cluster_says_is_told_beside_what_its_parts_say() -> None:
    made = parts({"LoginSet": "nodePort: provided port is already allocated"}, cluster="Service slurmctld: denied")
    found = diagnose(facts({"parts": made}))
    assert [it.what for it in found] == ["LoginSet login is degraded", "SlurmCluster demo is degraded"]
    assert found[1].why == "Service slurmctld: denied"


@pytest.mark.parametrize(
    ("part", "what"),
    [
        (
            PartFact(kind="SlurmCluster", name="demo", generation=3, observed_generation=2),
            "the operator has not applied the last change of SlurmCluster demo yet",
        ),
        (
            PartFact(kind="SlurmCluster", name="demo", conditions=(no("Ready", "Progressing", "login is made"),)),
            "SlurmCluster demo is not ready",
        ),
    ],
)
def test_what_is_on_its_way_is_told_but_not_grave(part: PartFact, what: str) -> None:
    (finding,) = diagnose(facts({"parts": (part, *parts()[1:])}))
    assert (finding.what, finding.grave) == (what, False)

"""What is wrong with a cluster, from facts about it: one test for each trouble that the documents know."""

from base64 import b64encode
from typing import Any

import pytest

from isthmus.domain.diagnosis import ClusterFacts, Facts, Finding, diagnose
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
)
from isthmus.domain.diagnosis.known import stands_in
from isthmus.domain.diagnosis.probes import read_answers, read_inside, read_jobs, read_nodes
from isthmus.domain.kube.conditions import no, yes
from isthmus.model.meta import Condition, Key

ALIVE = OperatorFact(holder="isthmus-operator-1", renewed=2.0)
PARTS = tuple(PartFact(kind=kind, name="demo") for kind in ("SlurmCluster", "Controller", "RestApi"))
PODS = (
    PodFact(name="controller-0", component="controller", ready=True, host="controller-0", node="k1"),
    PodFact(name="worker-0", component="worker", ready=True, host="worker-0", node="k1"),
    PodFact(name="worker-1", component="worker", ready=True, host="worker-1", node="k2"),
    PodFact(name="login-0", component="login", ready=True, host="login-0", node="k2"),
    # Which only keeps an image at hand.
    PodFact(name="controller-placeholder-x", component="controller", ready=True, node="k2"),
)
KEYS = {"slurm.jwks": "aaaa"}
INSIDES = tuple(
    InsideFact(pod=pod.name, component=pod.component, clock=0.1, keys=KEYS, resolved=("worker-0",))
    for pod in PODS
    if not stands_in(pod)
)
NODES = (SlurmNodeFact(name="worker-0", states=("IDLE",)), SlurmNodeFact(name="worker-1", states=("ALLOCATED",)))


def healthy(**other: Any) -> ClusterFacts:
    facts: dict[str, Any] = {
        "key": Key("hpc", "demo"),
        "controller": "demo",
        "parts": PARTS,
        "pods": PODS,
        "insides": INSIDES,
        "ping": Answer(code=0, text="Slurmctld(primary) at controller-0 is UP"),
        "database": Answer(code=0, text="demo"),
        "nodes": NODES,
        "claims": (ClaimFact(name="jail", modes=("ReadWriteMany",), shared=True),),
    }
    return ClusterFacts(**(facts | other))


def found(cluster: ClusterFacts, **other: Any) -> tuple[Finding, ...]:
    facts: dict[str, Any] = {"operators": (ALIVE,), "clusters": (cluster,)}
    return diagnose(Facts(**(facts | other)))


def only(cluster: ClusterFacts, **other: Any) -> Finding:
    findings = found(cluster, **other)
    assert len(findings) == 1, findings
    assert findings[0].remedy
    assert findings[0].why
    return findings[0]


def changed(pod: str, **fields: Any) -> tuple[PodFact, ...]:
    def new(it: PodFact) -> PodFact:
        return PodFact(**({name: getattr(it, name) for name in it.__struct_fields__} | fields))

    return tuple(new(it) if it.name == pod else it for it in PODS)


def seen(pod: str, **fields: Any) -> tuple[InsideFact, ...]:
    def new(it: InsideFact) -> InsideFact:
        return InsideFact(**({name: getattr(it, name) for name in it.__struct_fields__} | fields))

    return tuple(new(it) if it.pod == pod else it for it in INSIDES)


def test_a_healthy_cluster_has_no_findings() -> None:
    assert found(healthy()) == ()


# What every cluster depends on


def test_kinds_that_are_not_installed() -> None:
    kinds = (KindFact(name="slurmclusters.slurm.nebius.ai", served=False),)
    assert "does not know slurmclusters" in only(healthy(), kinds=kinds).what


def test_kinds_that_are_older_than_the_program() -> None:
    finding = only(healthy(), kinds=(KindFact(name="controllers.slinky.slurm.net", lacks=("spec.users",)),))
    assert finding.area == "kinds"
    assert "spec.users" in finding.what


@pytest.mark.parametrize(
    ("operators", "why"),
    [
        ((), "never installed"),
        ((OperatorFact(holder="gone", renewed=300.0),), "has not renewed its Lease for 300 s"),
        ((OperatorFact(),), "never renewed its Lease"),
    ],
)
def test_an_operator_that_does_not_run(operators: tuple[OperatorFact, ...], why: str) -> None:
    finding = only(healthy(), operators=operators)
    assert finding.area == "operator"
    assert why in finding.why


def test_what_is_not_known_is_not_concluded_from() -> None:
    assert found(healthy(ping=None, database=None, nodes=None, insides=()), operators=None) == ()


def test_what_cannot_be_read_is_said() -> None:
    assert only(healthy(), troubles={"pods": "forbidden"}).area == "access"


# Up to the start


def test_a_restapi_that_is_missing() -> None:
    assert "no RestApi" in only(healthy(parts=PARTS[:2])).what


def test_a_specification_that_cannot_be_carried_out() -> None:
    refused = PartFact(kind="SlurmCluster", name="demo", conditions=(no("Accepted", "X", "no filter 'gpu'"),))
    finding = only(healthy(parts=(refused, *PARTS[1:])))
    assert finding.why == "no filter 'gpu'"
    assert "kubectl edit -n hpc slurmcluster demo" in finding.remedy[0]


def test_fields_without_effect_are_worth_knowing_but_not_grave() -> None:
    told = PartFact(kind="SlurmCluster", name="demo", conditions=(yes("FieldsWithoutEffect", "X", "topology"),))
    assert not only(healthy(parts=(told, *PARTS[1:]))).grave


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("0/3 nodes are available: 3 node(s) had untolerated taint {hpc: true}", "hpc=true:NoSchedule"),
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector", "--show-labels"),
        ("0/3 nodes are available: 3 Insufficient cpu", "ask for less"),
    ],
)
def test_a_pod_that_no_node_takes(message: str, remedy: str) -> None:
    pods = changed("worker-1", unplaced=message, phase="Pending", ready=False, node="")
    finding = only(healthy(pods=pods), taints={"k1": ("hpc=true:NoSchedule",)})
    assert finding.area == "placing"
    assert remedy in finding.remedy[0]


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"])
def test_an_image_that_cannot_be_had(reason: str) -> None:
    hold = Hold(container="slurmd", reason=reason, message="not found", image="example/slurm:9")
    finding = only(healthy(pods=changed("worker-0", holds=(hold,), ready=False, phase="Pending")))
    assert finding.area == "images"
    assert "example/slurm:9" in finding.what


def test_a_secret_that_a_container_needs() -> None:
    hold = Hold(container="slurmctld", reason="CreateContainerConfigError", message='secret "x" not found')
    finding = only(healthy(pods=changed("controller-0", holds=(hold,), ready=False, phase="Pending")))
    assert 'secret "x" not found' in finding.why


def test_a_claim_that_waits() -> None:
    claims = (ClaimFact(name="jail", phase="Pending", shared=True, note="no class 'nfs'", storage_class="nfs"),)
    finding = only(healthy(claims=claims))
    assert finding.area == "storage"
    assert finding.why == "no class 'nfs'"


def test_a_claim_that_waits_for_its_first_pod_is_fine() -> None:
    assert found(healthy(claims=(ClaimFact(name="state", phase="Pending", storage_class="local"),))) == ()


def test_a_shared_claim_that_only_one_node_can_mount() -> None:
    claims = (ClaimFact(name="jail", modes=("ReadWriteOnce",), shared=True),)
    assert "ReadWriteOnce" in only(healthy(claims=claims)).what


def test_volumes_that_are_not_mounted() -> None:
    pods = changed("login-0", unmounted="MountVolume.SetUp failed", phase="Pending", ready=False)
    assert only(healthy(pods=pods)).why == "MountVolume.SetUp failed"


def test_a_daemon_that_does_not_stay_up_says_why() -> None:
    ending = Ending(container="slurmctld", code=1, restarts=5, message="fatal: no state")
    pods = changed("controller-0", endings=(ending,), ready=False)
    finding = only(healthy(pods=pods))
    assert "fatal: no state" in finding.why
    assert "--previous" in finding.remedy[0]


def test_a_daemon_that_was_restarted_and_is_well_again_is_fine() -> None:
    ending = Ending(container="slurmctld", code=1, restarts=5)
    assert found(healthy(pods=changed("controller-0", endings=(ending,)))) == ()


# At work


def test_names_that_are_not_found() -> None:
    finding = only(healthy(insides=seen("login-0", unresolved=("worker-1",))))
    assert finding.area == "names"
    assert "worker-1" in finding.what


def test_dns_that_does_not_answer_at_all() -> None:
    finding = only(healthy(insides=seen("login-0", unresolved=("worker-0", "worker-1"), resolved=())))
    assert "does not answer" in finding.why
    assert "kube-dns" in finding.remedy[0]


def test_clocks_that_are_apart() -> None:
    finding = only(healthy(insides=seen("worker-1", clock=400.0)))
    assert finding.area == "clock"
    assert "k2" in finding.where


def test_a_slow_answer_is_no_wrong_clock() -> None:
    assert found(healthy(insides=seen("worker-1", clock=70.0, doubt=20.0))) == ()


def test_keys_that_differ() -> None:
    finding = only(healthy(insides=seen("worker-1", keys={"slurm.jwks": "bbbb"})))
    assert finding.area == "auth"
    assert finding.what.startswith("worker-1 and ")
    assert "bbbb" not in str(finding)  # not even a fingerprint of a key is shown


def test_a_key_that_is_missing() -> None:
    assert "has no key" in only(healthy(insides=seen("worker-1", keys={}))).what


@pytest.mark.parametrize(
    ("said", "area"),
    [
        ("slurm_load_ctl_conf error: Protocol authentication error", "auth"),
        ("error: Munge decode failed: Unauthorized credential", "auth"),
        ("error: If munged is up, restart with --num-threads=10", "auth"),
        ("error: Munge decode failed: Rewound credential", "clock"),
        ("Expired credential", "clock"),
        ("Unable to contact slurm controller (connect failure)", "names"),
        ("Slurmctld(primary) at controller-0 is DOWN", "starting"),
    ],
)
def test_a_slurmctld_that_does_not_answer(said: str, area: str) -> None:
    finding = only(healthy(ping=Answer(code=1, text=f"{said}\n")))
    assert finding.area == area
    assert said in finding.why


def test_a_disk_that_is_full() -> None:
    disks = (DiskFact(path="/var/spool/slurmctld", space=99), DiskFact(path="/home", space=10, files=100))
    findings = found(healthy(insides=seen("controller-0", disks=disks)))
    assert [finding.area for finding in findings] == ["storage", "storage"]
    assert "inodes" in findings[1].what


def test_a_home_that_is_full_is_told_once() -> None:
    disks = (DiskFact(path="/home", space=100),)
    insides = tuple(InsideFact(pod=it.pod, component=it.component, keys=KEYS, disks=disks) for it in INSIDES)
    assert "users' files" in only(healthy(insides=insides)).why


def test_a_configuration_that_slurm_does_not_take() -> None:
    told = (no("ConfigApplied", "Refused", "error: Invalid SlurmctldDebug"),)
    part = PartFact(kind="Controller", name="demo", conditions=told)
    finding = only(healthy(parts=(PARTS[0], part, PARTS[2])))
    assert finding.area == "configuration"
    assert finding.why == "error: Invalid SlurmctldDebug"


def test_a_daemon_with_another_configuration() -> None:
    assert "worker-1" in only(healthy(config="new", insides=seen("worker-1", config="old"))).what


def test_a_worker_that_slurm_does_not_know() -> None:
    finding = only(healthy(nodes=NODES[:1]))
    assert finding.area == "registration"
    assert "worker-1" in finding.what


def test_a_worker_that_has_just_started_is_on_its_way() -> None:
    assert found(healthy(pods=changed("worker-1", ready=False, age=20.0), nodes=NODES[:1])) == ()
    assert only(healthy(pods=changed("worker-1", ready=False, age=90.0), nodes=NODES[:1])).area == "registration"


def test_a_worker_that_could_not_start_is_not_also_missed_in_slurm() -> None:
    hold = Hold(container="slurmd", reason="ErrImagePull")
    pods = changed("worker-1", holds=(hold,), ready=False, phase="Pending")
    assert only(healthy(pods=pods, nodes=NODES[:1])).area == "images"


@pytest.mark.parametrize(
    ("states", "what", "grave"),
    [
        (("IDLE", "INVALID_REG"), "INVALID_REG", True),
        (("DOWN",), "DOWN", True),
        (("IDLE", "NOT_RESPONDING"), "not responding", True),
        (("IDLE", "DRAIN"), "drained", False),
    ],
)
def test_nodes_that_slurm_does_not_use(states: tuple[str, ...], what: str, grave: bool) -> None:  # noqa: FBT001 - a table
    nodes = (SlurmNodeFact(name="worker-0", states=states, reason="low memory"), NODES[1])
    finding = only(healthy(nodes=nodes))
    assert what in finding.what
    assert finding.why == "low memory"
    assert finding.grave is grave


def test_many_nodes_with_one_reason_are_one_finding() -> None:
    nodes = tuple(SlurmNodeFact(name=f"worker-{n}", states=("DOWN",), reason="gone") for n in range(40))
    assert "worker-[0-39]" in only(healthy(nodes=nodes)).what


def test_a_database_that_is_away() -> None:
    database = PodFact(name="demo-mariadb-0", component="database", ready=False)
    finding = only(healthy(pods=(*PODS, database), database=Answer(code=1, text="sacctmgr: error: refused")))
    assert finding.area == "accounting"
    assert "demo-mariadb-0 is not ready" in finding.why


def test_a_slurmdbd_that_does_not_answer() -> None:
    assert (
        only(healthy(database=Answer(code=1, text="error: Connection refused"))).why == "error: Connection refused"
    )


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("Slurm does not answer: connection refused", "cannot reach Slurm"),
        ("Slurm refuses the token (HTTP 401)", "rejects the operator's token"),
    ],
)
def test_a_rest_api_that_does_not_serve_the_operator(message: str, what: str) -> None:
    part = PartFact(kind="Controller", name="demo", conditions=(no("SlurmReachable", "X", message),))
    assert what in only(healthy(parts=(PARTS[0], part, PARTS[2]))).what


# Reading what pods say


def test_what_a_pod_sees_from_inside() -> None:
    text = (
        "time\t1010.5\nkey\tslurm.jwks\tabc\nconf\tdef\ndisk\t/home\t42%\t-\n"
        "name\tworker-0\tyes\nname\tworker-1\tno\nnoise\n"
    )
    inside = read_inside("login-0", "login", text, asked=1000.0, answered=1001.0)
    assert inside.clock == pytest.approx(10.0)
    assert inside.doubt == pytest.approx(0.5)
    assert inside.keys == {"slurm.jwks": "abc"}
    assert inside.disks == (DiskFact(path="/home", space=42, files=0),)
    assert (inside.resolved, inside.unresolved) == (("worker-0",), ("worker-1",))
    assert inside.config == "def"


def test_what_commands_say() -> None:
    said = b64encode(b"two\nlines\twith a tab").decode()
    answers = read_answers(f"ping\t1\t{said}\nnodes\tx\t{said}\nrubbish\t0\t!!\n")
    assert answers == {"ping": Answer(code=1, text="two\nlines\twith a tab")}


def test_nodes_as_scontrol_shows_them() -> None:
    text = (
        "NodeName=worker-0 Arch=x86_64 CPUAlloc=0 State=IDLE+DYNAMIC_NORM ThreadsPerCore=1 Reason=(null)\n"
        "NodeName=worker-1 State=DOWN*+DRAIN Weight=1 Reason=Not responding [slurm@2026-01-01T00:00:00]"
        " Comment=State=FINE\n"
    )
    assert read_nodes(text) == (
        SlurmNodeFact(name="worker-0", states=("IDLE", "DYNAMIC_NORM")),
        SlurmNodeFact(
            name="worker-1",
            states=("DOWN", "DRAIN", "NOT_RESPONDING"),
            reason="Not responding [slurm@2026-01-01T00:00:00]",
        ),
    )


def test_jobs_are_counted_by_state() -> None:
    assert read_jobs("RUNNING\nPENDING\nRUNNING\n") == {"running": 2, "pending": 1}


# The shared root


def with_root(status: str, reason: str, message: str) -> tuple[PartFact, ...]:
    held = Condition(type="JailPopulated", status=status, reason=reason, message=message)  # type: ignore[arg-type]
    return (PartFact(kind="SlurmCluster", name="demo", conditions=(held,)), *PARTS[1:])


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("pod x: container image: ErrImagePull: not found", "spec.populateJail.image"),
        ("/mnt/jail is too small: 2 GB are needed", "spec.resources.requests.storage"),
        ("pod x cannot be scheduled: 0/3 nodes", "kubectl get nodes --show-labels"),
        ("Kubernetes has not created the pod of its Job yet", "kubectl describe -n hpc job populate-jail"),
        ("the image cannot be a shared root: it has no Slurm", "kubectl logs -n hpc job/populate-jail"),
    ],
)
def test_a_root_that_is_not_filled(message: str, hint: str) -> None:
    jail = PodFact(
        name="populate-jail-x1",
        component="jail",
        phase="Pending",
        unplaced="0/3 nodes",
        holds=(Hold(container="image", reason="ErrImagePull"),),
    )
    waiting = changed("worker-1", ready=False, age=300.0, host="worker-9")
    finding = only(healthy(parts=with_root("False", "Failed", message), pods=(*waiting, jail)))
    assert finding.area == "root"
    assert finding.why == message
    assert any(hint in it for it in finding.remedy), finding.remedy


def test_a_root_that_is_being_filled_is_nothing_wrong() -> None:
    assert found(healthy(parts=with_root("False", "Filling", "the shared root is being filled"))) == ()


@pytest.mark.parametrize("reason", ["RefreshDue", "RefreshFailed"])
def test_a_root_of_an_older_image_is_worth_knowing(reason: str) -> None:
    finding = only(healthy(parts=with_root("True", reason, "root:2 is wanted")))
    assert not finding.grave
    assert finding.remedy == ("isthmus cluster refresh demo -n hpc",)


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("shared root /mnt/jail is not filled, or not mounted: it has no .isthmus/ready", "job/populate-jail"),
        ("shared root /mnt/jail is stale: its volume must be mounted again", "kubectl delete -n hpc pod worker-0"),
        ("shared root /mnt/jail is not root's alone: it needs owner root and mode 755", "chmod 755 /mnt/jail"),
        ("plugstack.conf: unknown argument x=y", "spec.plugStackConfig"),
        ("/run/x, which jobs are to see, cannot be opened on this node", "isthmus-enter root=/mnt/jail"),
    ],
)
def test_nodes_that_the_plugin_drained(reason: str, hint: str) -> None:
    nodes = tuple(SlurmNodeFact(name=f"worker-{it}", states=("IDLE", "DRAIN"), reason=reason) for it in (0, 1))
    finding = only(healthy(nodes=nodes))
    assert finding.area == "root"
    assert finding.what == "worker-[0-1] cannot run jobs in the shared root"
    assert hint in finding.remedy[0]
    assert "scontrol update nodename=worker-[0-1] state=resume" in finding.remedy[1]


def test_a_shared_root_that_is_full() -> None:
    insides = (*seen("worker-0", disks=(DiskFact(path="/mnt/jail", space=99),)),)
    assert "/mnt/jail of worker-0 is full" in only(healthy(insides=insides)).what

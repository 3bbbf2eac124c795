"""Where a pod stands, from made-up facts."""

from datetime import UTC, datetime

import pytest
from msgspec import structs

from isthmus import names
from isthmus.domain.bridge.explain import Devices, Facts, Gate, Mark, Trouble, ago, gates, place_in_queue
from isthmus.domain.bridge.groups import GroupKey
from isthmus.domain.bridge.placement import Demand
from isthmus.model.meta import ObjectMeta, OwnerReference
from isthmus.model.pod import Pod, PodCondition, PodSpec, PodStatus, SchedulingGate
from isthmus.model.slurm import Job, Number

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC).timestamp()
GANG = GroupKey("PodGroup.scheduling.x-k8s.io", "batch", "train")
META = ObjectMeta(
    name="one",
    namespace="batch",
    creation_timestamp=datetime.fromtimestamp(NOW - 180, UTC),
    owner_references=(OwnerReference("batch/v1", "Job", "train", "u", controller=True),),
)
POD = Pod(META, PodSpec(scheduler_name=names.SCHEDULER_NAME))
WAITING = Job(7, ("PENDING",), state_reason="Priority", partition="main", priority=Number.of(500), user_name="ann")
RUNNING = structs.replace(
    WAITING, job_state=("RUNNING",), state_reason="None", nodes="e1", start_time=Number.of(NOW - 60)
)
FACTS = Facts(
    pod=POD,
    scheduler_name=names.SCHEDULER_NAME,
    now=NOW,
    group=GroupKey("Pod", "batch", "one"),
    demand=Demand(),
    fit=2,
    nodes="2 of 3 nodes fit: 1 is cordoned",
)


def of(pod: Pod = POD, **changes: object) -> dict[str, Gate]:
    return {gate.name: gate for gate in gates(structs.replace(FACTS, pod=pod, **changes))}


def bound(phase: str = "Pending", reason: str = "", message: str = "") -> Pod:
    status = PodStatus(phase=phase, reason=reason, message=message)
    return structs.replace(POD, spec=structs.replace(POD.spec, node_name="e1"), status=status)


def marks(found: dict[str, Gate]) -> str:
    signs = {Mark.PASSED: "✓", Mark.WAITING: "…", Mark.REFUSED: "✗", Mark.UNKNOWN: "?", Mark.AHEAD: "·"}
    return "".join(signs[gate.mark] for gate in found.values())


def test_a_new_pod_has_no_job_yet() -> None:
    found = of()
    assert marks(found) == "✓✓✓✓✓✓…··✓···"
    assert found["created"].text == "3 min ago, by Job train"
    assert found["nodes"].text == "2 of 3 nodes fit: 1 is cordoned"


def test_a_pod_of_another_scheduler_has_nothing_to_do_with_slurm() -> None:
    stranger = structs.replace(POD, spec=PodSpec(scheduler_name="default-scheduler"))
    found = of(stranger)
    assert list(found) == ["created", "admitted"]
    assert found["admitted"].mark is Mark.REFUSED
    assert "set spec.schedulerName to slurm-bridge-scheduler" in found["admitted"].remedy
    assert "create the pod again" in of(stranger, managed=True)["admitted"].remedy


def test_a_gated_pod_waits_for_whoever_set_the_gates() -> None:
    gated = structs.replace(POD, spec=structs.replace(POD.spec, scheduling_gates=(SchedulingGate("quota.io/x"),)))
    found = of(gated)
    assert found["ungated"] == Gate(
        "ungated",
        Mark.WAITING,
        "held back by quota.io/x",
        "wait until the controllers that set these scheduling gates remove them",
    )
    assert found["submitted"].mark is Mark.AHEAD


def test_a_gang_tells_how_many_are_missing() -> None:
    found = of(group=GANG, members=(POD,), demand=Demand(4, 4))
    assert found["complete"].mark is Mark.WAITING
    assert found["complete"].text == "1 of 4 pods of PodGroup.scheduling.x-k8s.io batch/train exist"
    assert of(group=GANG, members=(POD,) * 4, demand=Demand(4, 4))["complete"].mark is Mark.PASSED


def test_a_gang_without_its_object_says_so() -> None:
    found = of(group=GANG, demand=None, gang=Trouble("it does not exist", "create it"))
    assert found["complete"] == Gate("complete", Mark.WAITING, "it does not exist", "create it")


def test_it_tells_how_close_the_nodes_of_a_job_are() -> None:
    job = structs.replace(RUNNING, nodes="e[1-4]")
    blocks = {"e1": "b1", "e2": "b1", "e3": "b2"}
    assert of(job=job, blocks=blocks)["allocated"].text == "e[1-4]; e[1-2] in block b1, e3 in block b2"


def test_claims_have_devices_or_wait_for_them() -> None:
    assert "devices" not in of()
    assert of(devices=Devices(waiting="they are chosen later"))["devices"].mark is Mark.AHEAD
    held = of(bound(), devices=Devices(held="gpu-1 of gpu.example.com"))["devices"]
    assert (held.mark, held.text) == (Mark.PASSED, "gpu-1 of gpu.example.com")
    wrong = of(devices=Devices(waiting="there is no DeviceClass x", remedy="create it"))["devices"]
    assert (wrong.mark, wrong.remedy) == (Mark.WAITING, "create it")


def test_a_refusal_comes_with_its_remedy() -> None:
    found = of(refusal=Trouble("user-id 'root' is not allowed", "request what is allowed"))
    assert found["allowed"] == Gate(
        "allowed", Mark.REFUSED, "user-id 'root' is not allowed", "request what is allowed"
    )
    assert found["bound"].mark is Mark.AHEAD


def test_without_a_node_that_fits_it_says_why() -> None:
    found = of(fit=0, nodes="0 of 3 nodes fit: 3 are cordoned")
    assert found["nodes"].mark is Mark.REFUSED
    assert "uncordon" in found["nodes"].remedy


def test_a_waiting_job_tells_slurms_reason_its_place_and_its_prospects() -> None:
    found = of(job=structs.replace(WAITING, start_time=Number.of(NOW + 1800)), place=(3, 12))
    assert marks(found) == "✓✓✓✓✓✓✓…·✓···"
    assert found["submitted"].text == "job 7 to partition main, as ann"
    assert found["queue"].text == (
        "waits because other jobs are ahead of it in the queue (Priority), number 3 of 12 in partition main,"
        " priority 500, expected to start in 30 min (2026-11-16 12:30 UTC)"
    )


@pytest.mark.parametrize(
    ("reason", "mark", "remedy"),
    [
        ("Resources", Mark.WAITING, "wait, or ask for less"),
        ("JobHeldUser", Mark.REFUSED, "release it: scontrol release 7"),
        ("BadConstraints", Mark.REFUSED, "check its constraints"),
    ],
)
def test_a_job_that_waits_in_vain_is_marked_so(reason: str, mark: Mark, remedy: str) -> None:
    gate = of(job=structs.replace(WAITING, state_reason=reason))["queue"]
    assert gate.mark is mark
    assert gate.remedy.startswith(remedy)


def test_an_allocation_that_kubernetes_cannot_use_yet() -> None:
    found = of(job=RUNNING, kube_nodes={"e1": "kube-1"}, room="needs 1 CPU, 0 are free")
    assert found["queue"].text == "started 60 s ago"
    assert found["allocated"].text == "e1 (e1 is kube-1)"
    assert found["room"].mark is Mark.WAITING
    assert marks(found) == "✓✓✓✓✓✓✓✓✓✓…··"


def test_an_allocation_outside_of_kubernetes_is_pointed_out() -> None:
    gate = of(job=RUNNING, kube_nodes={"e1": ""})["allocated"]
    assert gate.mark is Mark.WAITING
    assert names.NODE_NAME_LABEL in gate.remedy


def test_volumes_that_are_being_made() -> None:
    assert of(job=RUNNING, volumes="volume claim a/b is not bound yet")["volumes"].mark is Mark.WAITING


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_a_pod_that_runs_or_has_run_passed_everything(phase: str) -> None:
    assert marks(of(bound(phase), job=RUNNING, kube_nodes={"e1": "e1"})) == "✓" * 13


def test_a_pod_whose_job_is_forgotten_passed_everything_all_the_same() -> None:
    assert marks(of(bound("Succeeded"), job=None)) == "✓" * 13


def test_a_bound_pod_that_does_not_start_points_to_its_kubelet() -> None:
    gate = of(bound(), job=RUNNING)["running"]
    assert gate.mark is Mark.WAITING
    assert gate.remedy == "see kubectl describe pod -n batch one"


def test_a_failed_pod_says_why() -> None:
    gate = of(bound("Failed", reason="Evicted", message="job cancelled"), job=None)["running"]
    assert (gate.mark, gate.text) == (Mark.REFUSED, "it has failed: Evicted: job cancelled")


def test_a_job_that_ended_under_a_living_pod_is_no_pass() -> None:
    gate = of(bound("Running"), job=structs.replace(RUNNING, job_state=("TIMEOUT",), state_reason="TimeLimit"))[
        "queue"
    ]
    assert gate.mark is Mark.REFUSED
    assert gate.text == "job 7 reached its time limit"


def test_a_suspended_job_can_be_resumed() -> None:
    gate = of(job=structs.replace(RUNNING, job_state=("SUSPENDED",)))["queue"]
    assert gate == Gate("queue", Mark.WAITING, "the job is suspended", "scontrol resume 7")


def test_what_could_not_be_looked_at_is_said_so() -> None:
    blind = dict.fromkeys(("submitted", "queue", "allocated"), "Slurm is away")
    found = of(blind=blind)
    assert found["submitted"] == Gate("submitted", Mark.UNKNOWN, "unknown: Slurm is away")
    assert found["nodes"].mark is Mark.PASSED
    assert marks(of(bound("Running"), blind=blind)) == "✓" * 13


def test_a_start_that_is_no_estimate_is_not_told_as_one() -> None:
    text = of(job=structs.replace(WAITING, start_time=Number.of(NOW + 365 * 86400)))["queue"].text
    assert text.endswith("with no estimated start, since jobs ahead of it have no time limit")


def test_without_slurm_the_pods_own_condition_tells_what_was_known() -> None:
    told = PodCondition("PodScheduled", "False", "SlurmPending", "Slurm job 7 waits")
    pod = structs.replace(POD, status=PodStatus(conditions=(told,)))
    text = of(pod, blind={"submitted": "Slurm is away"})["submitted"].text
    assert text == "unknown: Slurm is away; last known: Slurm job 7 waits"


def test_what_the_scheduler_told_the_pod_is_shown() -> None:
    told = PodCondition("PodScheduled", "False", "SlurmRefused", "no such partition")
    gate = of(structs.replace(POD, status=PodStatus(conditions=(told,))))["submitted"]
    assert gate.text == "it has no job in Slurm: no such partition"


def test_the_place_in_the_queue_is_by_priority_within_the_partition() -> None:
    def job(job_id: int, priority: int, partition: str = "main", state: str = "PENDING") -> Job:
        return Job(job_id, (state,), partition=partition, priority=Number.of(priority))

    queue = [
        job(1, 10),
        job(2, 30),
        job(3, 20),
        job(4, 20),
        job(5, 99, "other"),
        job(6, 50, state="RUNNING"),
        job(7, 0),
    ]
    places = {it.job_id: place_in_queue(it, queue) for it in queue}
    assert places == {1: (4, 4), 2: (1, 4), 3: (2, 4), 4: (3, 4), 5: (1, 1), 6: None, 7: None}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0 s"), (59, "59 s"), (119, "119 s"), (180, "3 min"), (7200, "2 h"), (200000, "2 d")],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert ago(seconds) == words

"""The way of a bad node, on a real API server and a real Slurm: found, drained, repaired, tested, returned."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable

import pytest

from isthmus import names
from isthmus.domain.health.actions import Action, Notify
from isthmus.domain.operator.nodeset.identity import node_of
from isthmus.health.reservations import reserved_nodes
from isthmus.health.runner import ActionRunner, Batch
from isthmus.kube.client import Client
from isthmus.model.dra import RESOURCE_SLICES
from isthmus.model.health import HEALTH_POLICIES
from isthmus.model.meta import Key, condition
from isthmus.model.objects import SECRETS
from isthmus.model.pod import PODS, Pod
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.metrics import counted
from tests.bed.slurm import SlurmBed
from tests.bed.waiting import PATIENCE
from tests.flows.health.bed import CHECK, HealthBed, running
from tests.flows.health.checks_bed import end_pod
from tests.flows.health.conftest import NODES as ALL
from tests.flows.health.test_notifications import Hook, hook
from tests.flows.kube.waiting import eventually, eventually_read

__all__ = ["hook"]

REASON = f"[node_problem] {CHECK}: job 17 [slurm_job]"
PASSIVE = "[node_problem] disk: /tmp is full [hc_program]"

newest = pytest.mark.parametrize("slurm_version", ["26.05"])


def job_on(slurm: SlurmBed, node: str, *more: str) -> str:
    """Let a job run on a node for long."""
    return slurm.command(
        "sbatch", "--parsable", "-w", node, *more, "--output=/dev/null", "--wrap=sleep 600", user="alice"
    ).strip()


async def started(bed: HealthBed, node: str) -> None:
    bed.slurm.hurry()
    await eventually(
        lambda: (it := bed.record(node)) and not {"ALLOCATED", "MIXED"}.isdisjoint(it.state), within=PATIENCE
    )


async def test_a_bad_node_is_drained_repaired_tested_and_returned(bed: HealthBed) -> None:
    await bed.check()
    pod = bed.uid("n1")
    await bed.fails("n1")
    await bed.drained("n1", REASON)
    await bed.phase("n1", "Repairing")
    await bed.replaced("n1", pod)
    status = await bed.phase("n1", "Testing")
    assert status.reason == REASON
    assert [(it.rung, it.outcome) for it in status.steps] == [("restartPod", "done")]
    reservation = await bed.tested("n1")
    assert reservation == "health-n1"
    await bed.opened("n1")
    status = await bed.phase("n1", "Recovered")
    await eventually(lambda: bed.status("n1").reason == "")
    assert await reserved_nodes(bed.slurm.client) == set()
    assert [it.check for it in status.findings] == [CHECK]
    machine = f"{bed.namespace}-n1"
    await eventually(lambda: bed.shown(machine, "SoperatorChecksNodeDegraded")[0] == "False")
    assert counted(bed.metrics, names.REPAIR_SECONDS, "_count") == 1
    assert counted(bed.metrics, names.FALSE_POSITIVES) == 0
    # The check still lists it, until its next run: what was found before the test counts no more.
    await bed.settled()
    assert bed.reason("n1") == ""


async def test_what_a_passive_check_drained_is_tested_in_its_pod(bed: HealthBed, nodes: SlurmBed) -> None:
    pod = bed.uid("n2")
    nodes.scontrol("update", "nodename=n2", "state=drain", f"reason={PASSIVE}")
    status = await bed.phase("n2", "Repairing")
    assert status.reason == PASSIVE
    await bed.replaced("n2", pod)
    await bed.opened("n2")
    await bed.phase("n2", "Recovered")
    assert bed.execution.ran == [("pod-n2", "disk")]
    assert counted(bed.metrics, names.CHECK_RUNS, check="disk", result="passed") == 1


@newest
async def test_a_check_in_a_pod_is_run_again_on_the_machine_that_failed_it(bed: HealthBed, kube: Client) -> None:
    await bed.check(in_slurm=False)
    machine, pod = f"{bed.namespace}-n1", bed.uid("n1")
    await bed.fails("n1")
    await bed.drained("n1", REASON.replace("slurm_job", "k8s_job"))
    await bed.fails()  # its next run is on another machine, which says nothing of this one
    await bed.phase("n1", "Repairing")
    await bed.replaced("n1", pod)
    test = (await bed.phase("n1", "Testing")).test
    (tester,) = await eventually_read(
        lambda: _pods_of(kube, Key(bed.namespace, test)), "the pod of the test", holds=lambda it: len(it) == 1
    )
    assert node_of(tester) == machine
    assert bed.reason("n1")
    await end_pod(kube, tester.metadata.key, code=0, node=machine)
    await bed.opened("n1")
    await bed.phase("n1", "Recovered")


async def _pods_of(kube: Client, job: Key) -> tuple[Pod, ...]:
    return (await kube.list(PODS, namespace=job.namespace, labels=f"{names.JOB_NAME_LABEL}={job.name}")).items


@newest
async def test_a_node_whose_test_fails_stays_out(bed: HealthBed, nodes: SlurmBed) -> None:
    bed.execution.codes["disk"] = 1
    bed.execution.said = b"looking\nthe disk is still full\n"
    pod = bed.uid("n2")
    nodes.scontrol("update", "nodename=n2", "state=drain", f"reason={PASSIVE}")
    await bed.phase("n2", "Repairing")
    await bed.replaced("n2", pod)
    status = await bed.phase("n2", "OutOfService")
    assert "the disk is still full" in status.message
    await bed.settled()
    assert bed.reason("n2") == PASSIVE


@newest
async def test_a_humans_drain_stays_first(bed: HealthBed, nodes: SlurmBed) -> None:
    await bed.check()
    job_on(nodes, "n1")
    await started(bed, "n1")
    nodes.scontrol("update", "nodename=n1", "state=drain", "reason=alice looks into it")
    bed.slurm.hurry()
    await eventually(lambda: bed.reason("n1"))
    await bed.fails("n1")
    status = await bed.phase("n1", "Waiting")
    assert "alice looks into it" in status.message
    await bed.settled()
    assert bed.reason("n1") == "alice looks into it"
    nodes.scontrol("update", "nodename=n1", "state=undrain")
    await bed.drained("n1", REASON)


@newest
async def test_a_human_who_resumes_a_node_is_obeyed(bed: HealthBed, nodes: SlurmBed) -> None:
    await bed.check()
    job = job_on(nodes, "n1")
    await started(bed, "n1")
    await bed.fails("n1")
    await bed.drained("n1", REASON)
    await eventually(lambda: bed.status("n1").drained)
    nodes.scontrol("update", "nodename=n1", "state=undrain")
    await bed.phase("n1", "Recovered")
    await bed.settled()
    assert bed.reason("n1") == ""
    assert job in nodes.command("squeue", "-h", "-t", "running", "-o", "%i")
    await asyncio.sleep(1.0)  # findings are dated in seconds, and only a later one counts
    await bed.fails("n1", job=18)
    await bed.drained("n1", REASON.replace("17", "18"))


@newest
async def test_jobs_finish_or_are_requeued_after_a_deadline(bed: HealthBed, nodes: SlurmBed) -> None:
    rule = {"action": "repair", "match": {"sources": ["check"]}, "jobDeadline": "1s"}
    await bed.policy(rules=[rule])
    await bed.check()
    job = job_on(nodes, "n1", "--requeue")
    await started(bed, "n1")
    await bed.fails("n1")
    await bed.drained("n1", REASON)
    await bed.phase("n1", "Repairing")
    await eventually(lambda: "Restarts=1" in nodes.scontrol("show", "job", job))


@newest
async def test_limits_hold_when_much_is_found_at_once(bed: HealthBed) -> None:
    await bed.check()
    await bed.fails("n1", "n2")
    await eventually(lambda: {bed.status(it).phase for it in ("n1", "n2")} >= {"Waiting"})
    await eventually(lambda: any(bed.reason(it) for it in ("n1", "n2")))
    await bed.settled()
    assert sorted(bool(bed.status(it).reason) for it in ("n1", "n2")) == [False, True]
    waiting = next(it for it in ("n1", "n2") if not bed.status(it).reason)
    assert "maxUnavailable" in bed.status(waiting).message
    assert bed.reason(waiting) == ""


@newest
async def test_a_check_that_condemns_all_is_not_believed(bed: HealthBed) -> None:
    await bed.policy()
    await bed.check()
    await bed.fails(*ALL)
    for name in ALL:
        status = await bed.phase(name, "Waiting")
        assert CHECK in status.message
    await eventually(lambda: (it := bed.world.policies.get(bed.key("policy"))) and it.status.storms)
    await bed.settled()
    assert [bed.reason(it) for it in ALL] == ["", "", ""]


@newest
async def test_shadow_mode_shows_and_does_nothing_and_a_pause_begins_nothing(bed: HealthBed) -> None:
    await bed.policy(mode="shadow")
    await bed.check()
    await bed.fails("n1")
    status = await bed.phase("n1", "Suspect")
    assert REASON in status.message
    await bed.policy(mode="enforce", paused=True)
    status = await bed.phase("n1", "Waiting")
    assert "paused" in status.message
    await bed.settled()
    assert bed.reason("n1") == ""
    await bed.policy(mode="enforce")
    await bed.drained("n1", REASON)
    await eventually(lambda: (it := bed.world.policies.get(bed.key("policy"))) and it.status.held == 1)


@newest
async def test_a_machine_is_rebooted_for_a_condition_and_returned_when_that_is_gone(bed: HealthBed) -> None:
    await bed.policy(ladder=[{"rung": "reboot", "timeout": "5m"}], healthyDelay="1s")
    machine = f"{bed.namespace}-n1"
    await bed.condition(machine, "KernelDeadlock", reason="DockerHung")
    await bed.drained("n1", "[node_problem] KernelDeadlock: DockerHung")
    await eventually(lambda: bed.shown(machine, names.NODE_REBOOT_CONDITION) == ("True", "NodeNeedReboot"))
    await bed.condition(machine, "KernelDeadlock", status="False", reason="Fine")
    await bed.condition(machine, names.NODE_REBOOT_CONDITION, reason="NodeRebooted")
    await bed.opened("n1")
    await bed.phase("n1", "Recovered")
    await eventually(lambda: bed.shown(machine, names.NODE_REBOOT_CONDITION)[0] == "False")


@newest
async def test_a_kubelet_that_is_away_shuts_its_node_until_it_is_back(
    control_plane: ControlPlaneBed, namespace: str, nodes: SlurmBed
) -> None:
    async with running(control_plane, namespace, nodes, not_ready_grace=2.0) as bed:
        await bed.policy(ladder=[], healthyDelay="1s")
        await bed.worker(*ALL)
        job = job_on(nodes, "n1")
        await started(bed, "n1")
        machine = f"{namespace}-n1"
        await bed.condition(machine, "Ready", reason="KubeletReady")
        await bed.settled()
        assert bed.health("n1") is None
        await bed.condition(machine, "Ready", status="Unknown", reason="NodeStatusUnknown")
        await bed.drained("n1", "[node_problem] NotReady: the kubelet does not answer")
        assert job in nodes.command("squeue", "-h", "-t", "running", "-o", "%i")
        await bed.condition(machine, "Ready", reason="KubeletReady")
        await bed.opened("n1")
        await bed.phase("n1", "Recovered")
        assert job in nodes.command("squeue", "-h", "-t", "running", "-o", "%i")


@newest
async def test_checks_may_ask_for_something_when_nodes_pass(bed: HealthBed) -> None:
    drains = {"action": "drain", "match": {"checks": ["recalled", CHECK]}}
    await bed.policy(rules=[drains], healthyDelay="1s")
    await bed.check("burn-in", success={"commentSlurmNode": {"commentPrefix": "burnt in:"}})
    await bed.fails(name="burn-in", passed=["n1"])
    await eventually(lambda: (it := bed.record("n1")) and it.comment == "burnt in: burn-in: job 17 [slurm_job]")
    # A check that finds what it looks for by passing; no test could show that it is over.
    await bed.check("recalled", success={"drainSlurmNode": {"drainReasonPrefix": "[recall]"}})
    await bed.fails(name="recalled", passed=["n2"])
    await bed.drained("n2", "[recall] recalled: job 17 [slurm_job]")
    await bed.settled()
    assert bed.status("n2").test == ""
    await bed.fails(name="recalled")
    await bed.opened("n2")
    # One that puts nodes back which it had condemned.
    await bed.check(success={"undrainSlurmNode": {}})
    await bed.fails("n3")
    await bed.drained("n3", REASON)
    await asyncio.sleep(1.0)  # results are dated in seconds, and only a later one counts
    await bed.fails(passed=["n3"], job=18)
    await bed.opened("n3")
    await bed.phase("n3", "Recovered")


@newest
async def test_a_device_that_its_driver_taints_is_a_finding(bed: HealthBed, kube: Client) -> None:
    await bed.policy(ladder=[], healthyDelay="1s")
    machine, driver = f"{bed.namespace}-n1", "gpu.example.com"
    taint = {"key": f"{driver}/lost", "value": "XID79", "effect": "NoExecute"}

    async def publish(*taints: dict[str, str]) -> None:
        devices = [{"name": "gpu-0"}, {"name": "gpu-1", "taints": taints}]
        pool = {"name": machine, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": machine, "pool": pool, "devices": devices}
        body = {"metadata": {"name": machine}, "spec": spec}
        await kube.apply(RESOURCE_SLICES, body, manager="driver", force=True)

    await publish()
    try:
        await bed.settled()
        assert bed.health("n1") is None
        await publish({**taint, "effect": "NoSchedule"})
        assert [it.devices for it in (await bed.phase("n1", "Suspect")).findings] == [("gpu-1",)]
        await bed.settled()
        assert bed.reason("n1") == "", "a device that is only set aside is recorded"
        await publish(taint)
        await bed.drained("n1", f"[hardware_problem] device: {driver}/lost")
        assert bed.status("n1").findings[0].evidence == "gpu-1: XID79:NoExecute"
        await publish()
        await bed.opened("n1")
        await bed.phase("n1", "Recovered")
    finally:
        await kube.delete(RESOURCE_SLICES, machine)


@newest
async def test_two_policies_for_one_cluster_are_told(bed: HealthBed) -> None:
    await bed.policy("a")
    await bed.policy("b", mode="shadow")

    def ready(name: str) -> str:
        found = bed.world.policies.get(bed.key(name))
        told = condition(found.status.conditions, "Ready") if found else None
        return told.status if told else ""

    await eventually(lambda: sorted((ready("a"), ready("b"))) == ["False", "True"])


@newest
async def test_receivers_are_told_and_a_secret_is_followed(bed: HealthBed, kube: Client, hook: Hook) -> None:
    metadata = {"namespace": bed.namespace, "name": "hooks"}
    await kube.create(SECRETS, {"metadata": metadata, "data": {"url": b64encode(hook.url.encode()).decode()}})
    receiver = {"name": "ops", "urlSecret": {"name": "hooks", "key": "url"}}
    await bed.policy(receivers=[receiver])
    await bed.check()
    await bed.fails("n3")
    await bed.drained("n3", REASON)
    await eventually(lambda: hook.heard)
    told = hook.heard[0][1]
    assert (told["node"], told["phase"], told["machine"]) == ("n3", "Draining", f"{bed.namespace}-n3")
    assert REASON in told["message"]
    found = await kube.get(HEALTH_POLICIES, bed.key("policy"))
    assert hook.url not in str(found)


@pytest.fixture
def own_slurm(slurm_bed: Callable[..., SlurmBed]) -> SlurmBed:
    """A Slurm whose slurmctld one test alone stops and kills."""
    return slurm_bed("26.05", nodes=3, accounting=False, settings={"MessageTimeout": "5"})


@pytest.fixture
async def own_bed(control_plane: ControlPlaneBed, namespace: str, own_slurm: SlurmBed) -> AsyncIterator[HealthBed]:
    async with running(control_plane, namespace, own_slurm) as bed:
        await bed.worker(*ALL)
        await bed.check()
        yield bed


async def test_nothing_is_decided_while_slurmctld_is_away(own_slurm: SlurmBed, own_bed: HealthBed) -> None:
    own_slurm.kill("slurmctld")
    await eventually(lambda: not own_bed.slurm.in_touch)
    await own_bed.fails("n1")
    await own_bed.phase("n1", "Suspect")
    await own_bed.settled()
    assert own_bed.status("n1").reason == ""
    own_slurm.start("slurmctld")
    await own_bed.drained("n1", REASON)
    pod = own_bed.uid("n1")
    await own_bed.phase("n1", "Repairing")
    # The pod goes, slurmctld goes, and both come back in the wrong order.
    own_slurm.kill("slurmctld")
    await eventually(lambda: not own_bed.slurm.in_touch)
    if own_bed.uid("n1") == pod:
        own_slurm.start("slurmctld")
        await own_bed.replaced("n1", pod)
    else:
        await own_bed.replaced("n1", pod)
        own_slurm.start("slurmctld")
    await own_bed.phase("n1", "Testing")
    await own_bed.tested("n1")
    await own_bed.opened("n1")


async def test_a_drain_that_a_killed_slurmctld_has_forgotten_is_made_again(
    own_slurm: SlurmBed, own_bed: HealthBed
) -> None:
    job = job_on(own_slurm, "n1")
    await started(own_bed, "n1")
    own_slurm.stop("slurmctld")
    before = {it: it.read_bytes() for it in own_slurm.state_directory.glob("node_state*")}
    own_slurm.start("slurmctld")
    await own_bed.fails("n1")
    await own_bed.drained("n1", REASON)
    first = await eventually(lambda: own_bed.status("n1").drained)
    # One that has run for a moment has counted as little as the next one, and cannot be told from it.
    own_slurm.command("bash", "-c", "for _ in {1..40}; do scontrol ping; done")
    own_bed.slurm.hurry()
    await eventually(lambda: own_bed.slurm.watch._restarts._requests > 40, "slurmctld is known to have run")
    # What one that is killed has on its disk is some seconds old.
    own_slurm.stop("slurmctld")
    for file, content in before.items():
        file.write_bytes(content)
    own_slurm.start("slurmctld")
    await eventually(lambda: own_bed.status("n1").drained != first, "it is seen that the drain is gone")
    assert own_bed.status("n1").phase == "Draining"
    await eventually(lambda: own_bed.status("n1").drained, "it is drained again")
    assert REASON in own_slurm.scontrol("show", "node", "n1")
    assert job in own_slurm.command("squeue", "-h", "-t", "running", "-o", "%i")


@newest
async def test_a_process_that_is_killed_after_every_action_gets_there(
    control_plane: ControlPlaneBed, namespace: str, nodes: SlurmBed
) -> None:
    """Each process carries out one action and is never heard of again; the next one goes on."""
    begun: set[str] = set()
    done: list[str] = []
    uid = ""
    for _ in range(80):
        struck = asyncio.Event()
        with pytest.MonkeyPatch.context() as patch:
            _strike(patch, struck, begun, done)
            async with running(control_plane, namespace, nodes, grace=0.0) as bed:
                if not uid:
                    await bed.worker(*ALL)
                    await bed.check()
                    await eventually(lambda: bed.uid("n1"))
                    uid = bed.uid("n1")
                    await bed.fails("n1")
                await _play_along(bed, struck, uid)
                if not struck.is_set():
                    break
    else:
        raise AssertionError(f"it does not end: {done}")
    assert {"Record", "Drain", "Climb", "Reserve", "RunTest", "Unreserve"} <= begun
    assert done.count("Climb") <= 2
    text = nodes.scontrol("--oneliner", "show", "node", "n1")
    assert "DRAIN" not in text
    assert "no reservations" in nodes.scontrol("show", "reservations").lower()


def _strike(patch: pytest.MonkeyPatch, struck: asyncio.Event, begun: set[str], done: list[str]) -> None:
    """Let a loop hang for ever after its first action. It begins by itself, so this comes before it."""
    carry_out = ActionRunner.carry_out

    async def once(runner: ActionRunner, batch: Batch, action: Action) -> None:
        if struck.is_set():
            await asyncio.Event().wait()
        if isinstance(action, Notify):
            return  # every process tells again what the one before it may not have told
        begun.add(type(action).__name__)  # also of one that is carried out although its answer is lost
        await carry_out(runner, batch, action)
        done.append(type(action).__name__)
        struck.set()
        await asyncio.Event().wait()

    patch.setattr(ActionRunner, "carry_out", once)  # the one seam for a crash between two actions


async def _play_along(bed: HealthBed, struck: asyncio.Event, uid: str) -> None:
    """Do what a NodeSet and a check do, until the loop has struck or everything is over."""
    async with asyncio.timeout(PATIENCE):
        while not struck.is_set():
            status = bed.status("n1")
            if status.phase == "Recovered" and not status.reason and not bed.reason("n1"):
                await bed.settled(seconds=1.0)
                if not struck.is_set():
                    return
            if not bed.uid("n1") and status.phase == "Repairing":
                await bed.replaced("n1", uid)
            job = bed.world.check_jobs.get(bed.key(status.test)) if status.test else None
            if job and not job.complete and status.phase == "Testing":
                await bed.tested("n1")
            await asyncio.sleep(0.05)


@newest
async def test_no_writes_at_rest(bed: HealthBed) -> None:
    await bed.check()
    await bed.fails("n1", "n2")
    # One waits for its new pod, which nobody makes here, and the other for the first.
    await eventually(lambda: {bed.status(it).phase for it in ("n1", "n2")} == {"Repairing", "Waiting"})
    # A server that is slow to answer delays what was begun; who writes all the time is never quiet for so long.
    await bed.settled(seconds=5.0)


@newest
async def test_a_check_that_asks_for_it_tells_of_each_failure(bed: HealthBed, kube: Client, hook: Hook) -> None:
    metadata = {"namespace": bed.namespace, "name": "hooks"}
    await kube.create(SECRETS, {"metadata": metadata, "data": {"url": b64encode(hook.url.encode()).decode()}})
    secret = {"name": "hooks", "key": "url"}
    await bed.policy(paused=True, receivers=[{"name": it, "urlSecret": secret} for it in ("ops", "others")])
    await bed.check(notify=["ops"])
    await asyncio.sleep(1.0)  # results are dated in seconds, and those from before this process are not told
    await bed.fails("n1")
    await eventually(lambda: hook.heard)
    await bed.settled()
    assert [(it["node"], it["phase"], it["message"]) for _, it in hook.heard] == [
        ("n1", "Failed", f"{CHECK} failed: exit code 1")
    ]

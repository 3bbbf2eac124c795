"""What the rungs of the repair ladder really do, and the same loop for nodes without pods.

Nodes are external to Slurm: jobs on them are real to slurmctld, and there is no slurmd.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from isthmus import names
from isthmus.domain.health.reboots import DRAINED
from isthmus.domain.health.replacement import Replacement
from isthmus.kube.client import Client, path
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.objects import BUDGETS
from isthmus.model.pod import PODS
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.health.bed import PREFIX, HealthBed, running
from tests.flows.health.conftest import clean
from tests.flows.kube.waiting import eventually, eventually_read
from tests.flows.operator.nodesets_bed import PLACES
from tests.flows.slurm.helpers import busy_on, new_key

NODE = "e1"
HUNG = f"{PREFIX} KernelDeadlock: DockerHung"


@pytest.fixture
def slurm(shared_slurm: Callable[..., SlurmBed]) -> Iterator[SlurmBed]:
    bed = shared_slurm("26.05", nodes=0, external_nodes=3, accounting=False)
    yield bed
    clean(bed)


@asynccontextmanager
async def looping(
    control_plane: ControlPlaneBed, namespace: str, slurm: SlurmBed, *, rung: str, may_replace: bool = False
) -> AsyncIterator[HealthBed]:
    """Run a health loop with a ladder of one rung, and a worker pod."""
    async with running(control_plane, namespace, slurm, replacement=Replacement(allowed=may_replace)) as bed:
        await bed.policy(ladder=[{"rung": rung, "timeout": "5m"}], healthyDelay="1s")
        await bed.worker(NODE)
        yield bed


async def job_on(bed: HealthBed, node: str) -> int:
    """Let a job run on a node."""
    job = (await bed.slurm.client.submit(busy_on(node), key=new_key())).job_id
    await eventually_read(
        lambda: bed.slurm.client.job(job), f"job {job} to run", holds=lambda it: it[0].job_state == ("RUNNING",)
    )
    bed.slurm.hurry()
    return job


async def test_a_disruption_budget_keeps_a_pod_from_being_restarted(
    control_plane: ControlPlaneBed, namespace: str, slurm: SlurmBed, kube: Client
) -> None:
    async with looping(control_plane, namespace, slurm, rung="restartPod") as bed:
        selector = {"matchLabels": {names.POD_HOSTNAME_LABEL: NODE}}
        budget = Key(namespace, "stays")
        metadata = {"namespace": namespace, "name": budget.name}
        await kube.create(BUDGETS, {"metadata": metadata, "spec": {"minAvailable": 1, "selector": selector}})
        await eventually_read(
            lambda: kube.raw(path(BUDGETS, budget)),
            "the budget to count",
            holds=lambda it: b'"currentHealthy":1' in it,
        )
        pod = bed.uid(NODE)
        await bed.check()
        await bed.fails(NODE)
        await bed.phase(NODE, "Repairing")
        # Records are changed by PATCH: what is posted now are evictions.
        asked = bed.requests.count("POST")
        await eventually(lambda: bed.requests.count("POST") >= asked + 2, "it to be asked for again")
        assert bed.uid(NODE) == pod
        await kube.delete(BUDGETS, budget)
        await bed.replaced(NODE, pod)
        await bed.tested(NODE)
        await bed.opened(NODE)


async def test_the_devices_that_were_found_are_reset_when_the_last_job_has_ended(
    control_plane: ControlPlaneBed, namespace: str, slurm: SlurmBed, kube: Client
) -> None:
    async with looping(control_plane, namespace, slurm, rung="resetDevice") as bed:
        job, machine = await job_on(bed, NODE), f"{namespace}-{NODE}"

        async def say(devices: str | None) -> None:
            annotations = {names.UNHEALTHY_DEVICES: devices}
            await kube.merge_patch(NODES, machine, {"metadata": {"annotations": annotations}})

        await say("GPU-7,GPU-9")
        await bed.drained(NODE, f"[hardware_problem] device: {names.UNHEALTHY_DEVICES}")
        await bed.settled()
        assert bed.execution.commands == [], "nothing is reset under a job"
        await bed.slurm.client.cancel_job(job)
        await bed.phase(NODE, "Testing")
        assert bed.execution.commands == [(f"pod-{NODE}", ("nvidia-smi", "--gpu-reset", "--id=GPU-7,GPU-9"))]
        await say(None)
        await bed.opened(NODE)
        status = await bed.phase(NODE, "Recovered")
        assert [(it.rung, it.outcome) for it in status.steps] == [("resetDevice", "done")]


async def test_a_machine_is_deleted_when_its_pods_are_off_and_its_successor_returns(
    control_plane: ControlPlaneBed, namespace: str, slurm: SlurmBed, kube: Client
) -> None:
    async with looping(control_plane, namespace, slurm, rung="replace", may_replace=True) as bed:
        machine = f"{namespace}-{NODE}"
        job = await job_on(bed, NODE)
        # A rebooter whose kubelet is away would see nobody off, and is not waited for.
        await bed.condition(machine, "Ready", reason="KubeletReady")
        await bed.condition(machine, "KernelDeadlock", reason="DockerHung")
        await bed.drained(NODE, HUNG)
        await bed.settled()
        assert bed.shown(machine, names.NODE_DRAIN_CONDITION)[0] != "True", "a job is there"
        await bed.slurm.client.cancel_job(job)
        await eventually(lambda: bed.shown(machine, names.NODE_DRAIN_CONDITION) == ("True", "NodeNeedDrain"))
        await bed.settled()
        before = (await kube.get(NODES, machine)).metadata.uid
        await bed.condition(machine, names.NODE_DRAIN_CONDITION, reason=DRAINED)
        await eventually(lambda: Key("", machine) not in bed.world.operator.kube_nodes, "the Node to be deleted")
        # Its cloud makes another machine, and its NodeSet another pod.
        await kube.delete(PODS, bed.key(f"pod-{NODE}"), grace=0)
        await eventually(lambda: bed.key(f"pod-{NODE}") not in bed.world.operator.pods)
        await bed.worker(NODE)
        assert (await kube.get(NODES, machine)).metadata.uid != before
        await bed.opened(NODE)
        status = await bed.phase(NODE, "Recovered")
        assert [(it.rung, it.outcome) for it in status.steps] == [("replace", "done")]


async def test_an_external_node_is_drained_for_its_machine_and_returned_without_a_pod(
    control_plane: ControlPlaneBed, namespace: str, slurm: SlurmBed, kube: Client
) -> None:
    async with running(control_plane, namespace, slurm) as bed:
        await bed.policy(healthyDelay="1s")
        machine = f"{namespace}-of-the-bridge"
        labels = {PLACES: namespace, names.NODE_NAME_LABEL: "e2"}
        await kube.create(NODES, {"metadata": {"name": machine, "labels": labels}})
        job = await job_on(bed, "e2")
        await bed.condition(machine, "KernelDeadlock", reason="DockerHung")
        await bed.drained("e2", HUNG)
        status = await bed.phase("e2", "Draining")
        assert (status.nodeset, status.machine) == ("external", machine)
        await eventually(lambda: bed.shown(machine, "SoperatorChecksNodeDegraded") == ("True", "NodeDraining"))
        await bed.condition(machine, "KernelDeadlock", status="False", reason="Fine")
        await bed.opened("e2")
        await bed.phase("e2", "Recovered")
        assert (await bed.slurm.client.job(job))[0].job_state == ("RUNNING",)
        # Without a machine that carries its name, nothing is known of a node.
        assert bed.health("e3") is None

"""Whether every daemon has taken files and keys, asked of a real Slurm."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from isthmus import names
from isthmus.domain.operator import authkeys
from isthmus.domain.operator.authkeys import KeySet
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.domain.operator.slurmfiles import delivery
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.objects import SECRETS
from isthmus.model.pod import PODS
from isthmus.model.slinky import CONTROLLERS, NODESETS
from isthmus.operator.metrics import ClusterMetrics
from isthmus.operator.slurmctld import ControllerSync, sync
from isthmus.operator.slurms import Address
from isthmus.runtime.metrics import Metrics
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Faults
from tests.bed.metrics import counted
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.parts_bed import JWT_KEY_REF, LIMIT, SLURM_KEY_REF, Bed, working

pytestmark = pytest.mark.long

NEW_KEY = b"n" * 64


@asynccontextmanager
async def following(bed: Bed, slurm: SlurmBed, url: str = "") -> AsyncIterator[None]:
    """Let the Controller's Slurm be this one, by way of this URL."""
    address = Address((url or slurm.rest_url,), slurm.jwt_key.read_bytes())
    bed.world.slurms.follow(Key(bed.namespace, "slurm"), address)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(bed.world.slurms.run())
        try:
            await eventually(lambda: bed.world.slurms.in_touch(bed.key("slurm")))
            yield
        finally:
            bed.world.slurms.stop()


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, namespace: str) -> AsyncIterator[Bed]:
    async with working(control_plane, namespace, ControllerSync) as made:
        await made.keys()
        yield made


@pytest.fixture
def slurm_here(slurm_version: str, slurm_bed: Callable[..., SlurmBed]) -> SlurmBed:
    return slurm_bed(slurm_version, nodes=1, accounting=False)


async def next_second() -> None:
    """Wait for a time that Slurm, whose times have whole seconds, can tell from what was before."""
    begun = int(time.time())
    await eventually(lambda: int(time.time()) > begun)


async def read_again(slurm: SlurmBed) -> None:
    """Do as the side-car of slurmctld does, which tries again when slurmctld does not answer in time."""
    while True:
        try:
            await asyncio.to_thread(slurm.scontrol, "reconfigure")
        except RuntimeError as error:
            # Also one that is just being replaced, because the operator has asked for it, too.
            if not any(it in str(error) for it in ("timed out", "Unable to contact", "Zero Bytes")):
                raise
        else:
            return


async def make(bed: Bed, **spec: object) -> None:
    """Make a Controller, and so files, in a second in which slurmctld and its nodes have surely read nothing."""
    # slurmctld answers a second or two before it begins to count.
    slurm = bed.world.slurms.of(bed.key("slurm"))
    assert slurm
    while not (await slurm.client.diagnose()).since.value:  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(0.1)
    await next_second()
    await bed.make(CONTROLLERS, "slurm", slurmKeyRef=SLURM_KEY_REF, jwtKeyRef=JWT_KEY_REF, **spec)


async def applied(bed: Bed, status: str, *, saying: str = "") -> None:
    await bed.until(bed.world.controllers, "slurm", "ConfigApplied", status, saying=saying)


async def test_a_change_counts_as_applied_when_slurmctld_and_its_nodes_have_read_it(
    bed: Bed, slurm_here: SlurmBed
) -> None:
    metrics, began = Metrics(), time.time()
    metrics.registry.register(ClusterMetrics([bed.world]))
    async with following(bed, slurm_here):
        await make(bed)
        await applied(bed, "False", saying="slurmctld has not read it yet")
        assert counted(metrics, names.CONFIG_APPLIED, controller="slurm") == 0
        assert began < counted(metrics, names.CONFIG_CHANGED, controller="slurm") < time.time()
        await read_again(slurm_here)
        await applied(bed, "True", saying="1 nodes run with revision")
        assert counted(metrics, names.CONFIG_APPLIED, controller="slurm") == 1
        assert counted(metrics, names.ACTIVE_CONTROLLER, pod="slurm-controller-0") == 1

        def knows_version() -> bool:
            found = bed.world.controllers.get(bed.key("slurm"))
            return found is not None and found.status.slurm_version.startswith(slurm_here.version)

        await eventually(knows_version)
        assert [it.status.active for it in bed.world.controllers.values()] == ["slurm-controller-0"]
        await bed.until(bed.world.controllers, "slurm", "SlurmReachable", "True")


async def test_who_of_several_is_in_charge_is_asked_for_ever(
    bed: Bed, slurm_here: SlurmBed, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby may take over without any answer being missed, and nobody tells."""
    monkeypatch.setattr(sync, "_STANDBYS", 0.02)
    async with faults.in_front_of(slurm_here.rest_url) as proxy, following(bed, slurm_here, proxy.url):
        await make(bed, ha={"enabled": True}, persistence={"existingClaim": "shared"})
        await read_again(slurm_here)
        await applied(bed, "True")
        # Many more than those that late news of the change bring about.
        await proxy.until_seen(path="*/ping/", times=proxy.count(path="*/ping/") + 50)


@pytest.mark.parametrize("early", [False, True], ids=["left alone", "started before slurmctld read it"])
async def test_a_node_that_has_not_taken_it_is_named(
    bed: Bed, slurm_here: SlurmBed, monkeypatch: pytest.MonkeyPatch, *, early: bool
) -> None:
    monkeypatch.setattr(delivery, "_PUSH_AGAIN", 3600.0)  # else the operator helps, sooner or later
    async with following(bed, slurm_here):
        await make(bed)
        await applied(bed, "False", saying="slurmctld has not read it yet")
        if early:
            await next_second()
            await asyncio.to_thread(slurm_here.restart, "slurmd-n1")  # with what slurmctld has: the files of before
            for _ in range(2):  # slurmctld may count from the second after its reading, so one says nothing
                await next_second()
        await asyncio.to_thread(slurm_here.restart, "slurmctld")  # which tells no node to read anything
        await applied(bed, "False", saying="1 of 1 nodes have not loaded it yet: n1")
        await asyncio.to_thread(slurm_here.restart, "slurmd-n1")
        await applied(bed, "True")


async def test_a_pod_that_starts_is_told_when_slurmctld_has_read_where_it_is(
    bed: Bed, slurm_here: SlurmBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_PUSH_AGAIN", 3600.0)  # else the operator helps, sooner or later
    machine, zone = f"{bed.namespace}-machine", "topology.kubernetes.io/zone"

    def told() -> bool:
        pod = bed.world.pods.get(bed.key("w-0"))
        return pod is not None and pod.metadata.annotations.get(names.TOPOLOGY_ANNOTATION) == "known"

    async def placed_in(switch: str) -> None:
        def written() -> bool:
            found = bed.world.configmaps.get(bed.key("slurm-config"))
            lines = found.data.get("topology.conf", "").splitlines() if found else ()
            return any(line.startswith(f"SwitchName={switch} ") and "w-0" in line for line in lines)

        await eventually(written)
        await applied(bed, "False", saying="slurmctld has not read it yet")
        await next_second()

    async with following(bed, slurm_here):
        await make(bed, topology={"plugin": "tree"})
        controller = await bed.there(bed.world.controllers, "slurm")
        spec = {"replicas": 1, "autoscale": {}, "ephemeralTopologyWaitTimeout": 60}
        nodeset = await bed.make(NODESETS, "w", controllerRef={"name": "slurm"}, **spec)
        template = worker.template(nodeset, controller, settings=Settings())
        await bed.kube.create(NODES, {"metadata": {"name": machine}})
        await bed.kube.create(PODS, template.fill(numbered(nodeset, 0)))
        await bed.kube.bind(bed.key("w-0"), machine)
        await placed_in("unknown")
        await read_again(slurm_here)
        await applied(bed, "True")
        assert not told(), "its machine does not say where it is"
        await bed.kube.merge_patch(NODES, machine, {"metadata": {"labels": {zone: "z"}}})
        await placed_in("z")
        assert not told(), "slurmctld has not read it"
        await read_again(slurm_here)
        await eventually(told)
    await bed.kube.delete(NODES, machine)


async def test_a_key_goes_through_all_steps_each_taken_by_everybody(
    bed: Bed, slurm_here: SlurmBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "KEYS_SETTLE", 1.0)
    monkeypatch.setattr(authkeys, "_MARGIN", 0.0)
    seen: list[str] = []
    moments: list[float] = []

    def note(key: Key, *_: object) -> None:
        secret = bed.world.secrets.get(key) if key.name == "slurm-auth" else None
        held = KeySet.read(secret.data["slurm.jwks"]) if secret else None
        if held and held.fingerprint not in seen:
            seen.append(held.fingerprint)
            moments.append(time.monotonic())

    bed.world.secrets.on_change(note)
    async with following(bed, slurm_here):
        # Else credentials that the old key signed live for two minutes, and it with them.
        await make(bed, extraConf="AuthInfo=cred_expire=5")
        await applied(bed, "False", saying="slurmctld has not read it yet")
        await read_again(slurm_here)
        await applied(bed, "True")
        (old,) = seen
        await bed.secret("slurm-key", slurm_key=NEW_KEY)
        for steps in (2, 3, 4):
            await eventually(lambda wanted=steps: len(seen) >= wanted, within=LIMIT)  # type: ignore[misc]
            await next_second()
            await read_again(slurm_here)  # What else is needed, the operator asks for
        await applied(bed, "True")
        new = seen[-1]
        kids = old.strip("*"), new.strip("*")
        assert seen == [old, f"{kids[0]}*,{kids[1]}", f"{kids[0]},{kids[1]}*", new]
        assert moments[3] - moments[2] > 5 - 1, "the old key was retired before what it signed had expired"


async def test_while_slurm_is_out_of_touch_no_key_is_switched(bed: Bed, slurm_here: SlurmBed) -> None:
    async with following(bed, slurm_here):
        await make(bed)
        await applied(bed, "False", saying="slurmctld has not read it yet")
        await read_again(slurm_here)
        await applied(bed, "True")
        slurm_here.kill("slurmrestd")
        await eventually(lambda: not bed.world.slurms.in_touch(bed.key("slurm")), within=LIMIT)
        await bed.secret("slurm-key", slurm_key=NEW_KEY)
        await applied(bed, "Unknown")
        secret = await bed.kube.get(SECRETS, bed.key("slurm-auth"))
        held = KeySet.read(secret.data["slurm.jwks"])
        assert held
        assert len(held.keys) == 2
        assert held.signing == held.keys[0].kid

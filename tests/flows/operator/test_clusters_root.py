"""The Jobs of a shared root on a real API server, with the real Job controller; kubelets are elsewhere."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from isthmus.domain.operator.manifests import sconfig
from isthmus.kube.client import Client, path
from isthmus.kube.errors import NotFound
from isthmus.model.meta import condition
from isthmus.model.pod import PODS, Pod
from isthmus.model.slinky import CONTROLLERS, LOGINSETS, NODESETS
from isthmus.model.soperator import SLURM_CLUSTERS
from isthmus.model.storage import CLAIMS
from isthmus.model.workload import OWN_JOBS, OwnJob
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.parts_bed import LIMIT
from tests.flows.operator.test_clusters import Bed, working

OVERWRITE = "downscaleAndOverwritePopulateJail"


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[Bed]:
    del kube  # which has the kinds installed
    async with working(control_plane.kubeconfig, namespace) as bed:
        yield bed


async def pod_of(bed: Bed, job: str) -> Pod:
    """Wait for the pod that the Job controller makes; the newest of them."""
    made = await bed.there(OWN_JOBS, job)

    def newest() -> Pod | None:
        pods = [it for it in bed.world.pods.by("owner", made.metadata.uid) if it.status.phase in {"", "Pending"}]
        return pods[-1] if pods else None

    await eventually(lambda: newest() is not None)
    found = newest()
    assert found is not None
    return found


async def ends(bed: Bed, job: str, *, code: int = 0, said: str = "") -> None:
    """Let the command of a Job end, as kubelet would tell."""
    pod = await pod_of(bed, job)
    ended = {"exitCode": code, "message": said, "finishedAt": "2026-01-01T00:00:01Z"}
    status = {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [
            {
                "name": "populate",
                "image": "x",
                "imageID": "x",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": ended},
            }
        ],
    }
    await bed.kube.merge_patch(PODS, pod.metadata.key, {"status": status}, subresource="status")


async def all_run(bed: Bed, *, workers: int, prefix: str = "", name: str = "demo") -> None:
    """Tell that every part is ready, sconfigcontroller's pod among them."""
    await bed.tell_all(workers=workers, prefix=prefix, name=name)

    def found() -> Pod | None:
        pods = bed.world.pods.by("part", (sconfig.COMPONENT, bed.key(name)))
        return next((it for it in pods if not it.leaving), None)

    await eventually(lambda: found() is not None)
    pod = found()
    assert pod is not None
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await bed.kube.merge_patch(PODS, pod.metadata.key, {"status": running}, subresource="status")


def ready(image: str, *, day: int = 1) -> str:
    """What the command says when it is done."""
    return json.dumps({"image": image, "when": f"2026-01-0{day}T00:00:00+00:00", "files": 1, "revision": "x"})


async def raw(bed: Bed, job: str) -> dict[str, Any]:
    await bed.there(OWN_JOBS, job)
    found: dict[str, Any] = json.loads(await bed.kube.send("GET", path(OWN_JOBS, bed.key(job))))
    return found


async def patch(bed: Bed, name: str = "demo", **spec: Any) -> None:
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key(name), {"spec": spec})


async def told(bed: Bed, status: str, saying: str, *, type_: str = "JailPopulated", name: str = "demo") -> None:
    """Wait until a condition says something."""

    def holds() -> bool:
        now, message = bed.condition(type_, name)
        return now == status and saying in message

    try:
        await eventually(holds)
    except AssertionError:
        raise AssertionError(f"{type_} is {bed.condition(type_, name)}") from None


async def events(bed: Bed) -> str:
    listing = await bed.kube.send("GET", f"/apis/events.k8s.io/v1/namespaces/{bed.namespace}/events")
    return " ".join(f"{it['reason']}: {it['note']}" for it in json.loads(listing)["items"])


async def recorded(bed: Bed, event: str) -> None:
    async with asyncio.timeout(LIMIT):
        while event not in await events(bed):  # noqa: ASYNC110 - Events are sent beside everything else
            await asyncio.sleep(0.05)


async def test_it_is_filled_once_beside_everything_else_and_the_cluster_is_available_only_then(
    bed: Bed, control_plane: ControlPlaneBed
) -> None:
    await bed.make(populateJail={"image": "root:1"}, slurmNodes={"worker": {"size": 2}})
    # Nobody waits for the Job: all parts are there while it runs.
    job = await raw(bed, "populate-jail")
    assert (await bed.there(LOGINSETS, "login")).spec.shared_root is not None
    assert (await bed.there(NODESETS, "worker")).spec.shared_root is not None
    await all_run(bed, workers=2)
    await told(bed, "False", "the shared root is being filled from root:1")
    assert bed.cluster().status.phase == "Not available"
    await ends(bed, "populate-jail", said=ready("root:1"))
    await told(bed, "True", "the shared root is from root:1")
    await eventually(lambda: bed.cluster().status.phase == "Available")
    assert bed.cluster().status.jail_image == "root:1"
    words = ("wait", "--for=condition=JailPopulated", "slurmcluster/demo", f"-n={bed.namespace}", "--timeout=30s")
    assert "condition met" in await asyncio.to_thread(control_plane.kubectl, *words)
    # The record stays, and nothing is done about it again.
    await bed.quiet()
    before = len(bed.writes)
    bed.wake("demo")
    await bed.quiet()
    assert len(bed.writes) == before
    assert (await raw(bed, "populate-jail"))["metadata"]["uid"] == job["metadata"]["uid"]
    await recorded(bed, "JailFilled: the shared root is from root:1")
    assert set(re.findall(r"Jail\w+:", await events(bed))) == {"JailFilled:"}, "and of nothing else"


async def test_s22_a_root_that_cannot_be_filled_is_told_and_holds_up_nobody(bed: Bed) -> None:
    await bed.make("bad", populateJail={"image": "root:1"}, slurmNodes={"worker": {"size": 1}})
    said = "looking\n/mnt/jail is too small: 2 GB needed, 1 GB free. Remedy: enlarge the volume or free space on it"
    await ends(bed, "populate-jail", code=3, said=said)
    await told(bed, "False", "/mnt/jail is too small: 2 GB needed", name="bad")
    await told(bed, "True", "/mnt/jail is too small", type_="Degraded", name="bad")
    assert f"kubectl delete job populate-jail -n {bed.namespace}" in bed.condition("JailPopulated", "bad")[1]

    await recorded(bed, "JailFailed: the shared root cannot be filled: /mnt/jail is too small")
    job = await raw(bed, "populate-jail")
    assert job["status"]["failed"] == 1  # it is not tried again: somebody has to do something
    await bed.make("good", populateJail={"image": "root:1"}, slurmNodes={"worker": {"size": 1}})
    await ends(bed, "good-populate-jail", said=ready("root:1"))
    await all_run(bed, workers=1, prefix="good-", name="good")
    await eventually(lambda: bed.cluster("good").status.phase == "Available")
    # Who has mended it deletes the Job, as he was told.
    await bed.kube.delete(OWN_JOBS, bed.key("populate-jail"), propagation="Background")

    def anew() -> bool:
        found = bed.world.jobs.get(bed.key("populate-jail"))
        return found is not None and found.metadata.uid != job["metadata"]["uid"]

    await eventually(anew, within=LIMIT)
    await ends(bed, "populate-jail", said=ready("root:1"))
    await told(bed, "True", "the shared root is from root:1", name="bad")


async def test_a_wrong_image_is_mended_in_the_specification_alone(bed: Bed) -> None:
    await bed.make(populateJail={"image": "roo:1"}, slurmNodes={"worker": {"size": 1}})
    before = await raw(bed, "populate-jail")
    await patch(bed, populateJail={"image": "root:1"})

    def image() -> str:
        found = bed.world.jobs.get(bed.key("populate-jail"))
        return found.metadata.annotations["isthmus.dev/jail-image"] if found else ""

    await eventually(lambda: image() == "root:1", within=LIMIT)
    assert (await raw(bed, "populate-jail"))["metadata"]["uid"] != before["metadata"]["uid"]


async def test_a_newer_image_waits_for_somebody_to_ask(bed: Bed) -> None:
    await bed.make(populateJail={"image": "root:1"}, slurmNodes={"worker": {"size": 1}})
    await ends(bed, "populate-jail", said=ready("root:1"))
    await told(bed, "True", "from root:1")
    await patch(bed, populateJail={"image": "root:2"})
    await told(bed, "True", "the specification names root:2")
    status = bed.cluster().status
    assert (status.jail_image, status.jail_image_wanted) == ("root:1", "root:2")
    found = condition(status.conditions, "JailPopulated")
    assert found is not None
    assert found.reason == "RefreshDue"
    with pytest.raises(NotFound):
        await bed.kube.get(OWN_JOBS, bed.key("refresh-jail"))


async def rests(bed: Bed) -> None:
    """Let the parts tell that they are scaled down."""
    await bed.tell(LOGINSETS, "login", replicas=0, readyReplicas=0)
    await bed.tell(
        NODESETS, "worker", replicas=0, readyReplicas=0, desired=0, nodeSetHash="x", selector="x", ready=True
    )


async def test_s23_in_maintenance_all_is_scaled_down_first_and_then_refreshed(bed: Bed) -> None:
    await bed.make(populateJail={"image": "root:1"}, slurmNodes={"worker": {"size": 1}})
    await ends(bed, "populate-jail", said=ready("root:1"))
    await all_run(bed, workers=1)
    await eventually(lambda: bed.cluster().status.phase == "Available")
    await patch(bed, maintenance=OVERWRITE, populateJail={"image": "root:2"})
    await eventually(lambda: bed.size("worker") == 0)
    mode = condition(bed.cluster().status.conditions, "PopulateJailMode")
    await eventually(lambda: condition(bed.cluster().status.conditions, "PopulateJailMode").reason == OVERWRITE)  # type: ignore[union-attr]
    assert mode is not None
    with pytest.raises(NotFound):  # a worker is still there
        await bed.kube.get(OWN_JOBS, bed.key("refresh-jail"))
    await rests(bed)
    await bed.gone(CONTROLLERS, "demo")
    job = await raw(bed, "refresh-jail")
    args = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[:2] == ["jail", "refresh"]
    await told(bed, "True", "being refreshed from root:1 to root:2")
    await ends(bed, "refresh-jail", said=ready("root:2", day=2))
    await told(bed, "True", "the shared root is from root:2; set maintenance to none")
    await told(bed, "False", "set maintenance to none", type_="Ready")
    await patch(bed, maintenance="none")
    await bed.gone(OWN_JOBS, "refresh-jail")
    await bed.there(CONTROLLERS, "demo")
    await eventually(lambda: bed.cluster().status.jail_image == "root:2")
    await told(bed, "True", "the shared root is from root:2")


async def test_the_other_modes(bed: Bed) -> None:
    await bed.make(populateJail={}, maintenance="skipPopulateJail", slurmNodes={"worker": {"size": 1}})
    await bed.there(NODESETS, "worker")
    await told(bed, "Unknown", "used as it is")
    await bed.quiet()
    assert bed.key("populate-jail") not in bed.world.jobs
    await all_run(bed, workers=1)
    await eventually(lambda: bed.cluster().status.phase == "Available")
    await patch(bed, maintenance="none")
    await ends(bed, "populate-jail", said=ready("root:1"))
    await told(bed, "True", "from root:1")
    await patch(bed, maintenance="downscaleAndDeletePopulateJail")
    await bed.gone(OWN_JOBS, "populate-jail")
    await told(bed, "True", "from root:1")  # the root itself was left alone
    await patch(bed, maintenance="none")
    made: OwnJob = await bed.there(OWN_JOBS, "populate-jail")
    assert made.metadata.controller is not None
    assert bed.cluster().status.jail_image == "root:1"


async def test_the_job_goes_with_its_cluster_and_the_volume_stays(bed: Bed) -> None:
    await bed.make(populateJail={}, slurmNodes={"worker": {"size": 1}})
    await bed.there(OWN_JOBS, "populate-jail")
    await bed.kube.delete(SLURM_CLUSTERS, bed.key("demo"))
    await bed.gone(NODESETS, "worker")
    await bed.gone(SLURM_CLUSTERS, "demo")
    await bed.gone(OWN_JOBS, "populate-jail")
    await bed.there(CLAIMS, "jail")


async def test_a_job_that_kubernetes_refuses_is_told(bed: Bed) -> None:
    await bed.make(
        k8sNodeFilters=[{"name": "odd", "nodeSelector": {"not a label": "x"}}],
        populateJail={"k8sNodeFilterName": "odd"},
        slurmNodes={"worker": {"size": 1}},
    )
    await told(bed, "False", "cannot create the Job of the shared root")
    assert "not a label" in bed.condition("JailPopulated")[1]


async def test_a_root_that_is_not_wanted_any_more_takes_its_job_along_and_leaves_the_volume(bed: Bed) -> None:
    await bed.make(populateJail={}, slurmNodes={"worker": {"size": 1}})
    await bed.there(OWN_JOBS, "populate-jail")
    await patch(bed, populateJail=None)
    await eventually(lambda: bed.key("populate-jail") not in bed.world.jobs, within=LIMIT)
    await bed.there(CLAIMS, "jail")

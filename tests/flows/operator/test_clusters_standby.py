"""From one slurmctld to several on a real API server, by the words of the document and of the refusal."""

import asyncio
import re
from pathlib import Path
from typing import Any

import yaml

from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.base import Kind
from isthmus.model.objects import STATEFULSETS
from isthmus.model.pod import PODS
from isthmus.model.soperator import SLURM_CLUSTERS
from isthmus.model.storage import CLAIMS
from isthmus.operator.webhook import judge
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.parts_bed import LIMIT
from tests.flows.operator.whole_bed import Bed, working

KINDS: dict[str, Kind[Any]] = {it.name: it for it in (CLAIMS, PODS)}
DOCUMENT = Path(__file__).parents[3] / "docs" / "operator.md"


def recipe() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read from the document what to apply between the two clusters, and what to add to the second."""
    text = DOCUMENT.read_text().partition("#### From one slurmctld to several\n")[2].partition("\n### ")[0]
    applied = list(yaml.safe_load_all(text.partition("<< EOF\n")[2].partition("\nEOF\n")[0]))
    told = re.findall(r"`(slurmNodes\.controller|volumeSources): (.*?)`", text, re.DOTALL)
    fields = {name.partition(".")[2] or name: yaml.safe_load(value) for name, value in told}
    return applied, {"slurmNodes": {"controller": fields["controller"]}, "volumeSources": fields["volumeSources"]}


async def gone(bed: Bed, name: str) -> None:
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                await bed.kube.get(SLURM_CLUSTERS, bed.key(name))
            except NotFound:
                return
            await asyncio.sleep(0.05)


async def test_a_cluster_gets_a_second_slurmctld_as_the_document_says(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    meta = {"namespace": namespace, "name": "demo"}
    one: dict[str, Any] = {"metadata": meta, "spec": {"slurmNodes": {"worker": {"size": 0}}}}
    applied, added = recipe()
    two: dict[str, Any] = {
        "metadata": meta,
        "spec": {**added, "slurmNodes": {**added["slurmNodes"], **one["spec"]["slurmNodes"]}},
    }
    (refusal,) = judge(SLURM_CLUSTERS, two, one).problems
    assert "docs/operator.md, From one slurmctld to several" in refusal
    assert judge(SLURM_CLUSTERS, two).problems == []
    async with working(control_plane.kubeconfig, namespace) as bed:
        await kube.create(SLURM_CLUSTERS, one)
        # Kubernetes makes it with the pod; it is what the document says to copy.
        await eventually(lambda: bed.key("statesave-controller-0") in bed.world.claims, within=LIMIT)
        await kube.delete(SLURM_CLUSTERS, bed.key("demo"))
        await gone(bed, "demo")
        assert (await kube.get(CLAIMS, bed.key("statesave-controller-0"))).metadata.deletion_timestamp is None
        for manifest in applied:
            made = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
            await kube.create(KINDS[manifest["kind"]], made)
        (copy,) = (it for it in applied if it["kind"] == "Pod")
        claims = [it["persistentVolumeClaim"]["claimName"] for it in copy["spec"]["volumes"]]
        assert claims[0] == "statesave-controller-0"
        await kube.create(SLURM_CLUSTERS, two)

        def mounted() -> list[str]:
            pods = bed.world.pods.by("part", ("controller", bed.key("demo")))
            live = [it for it in pods if not it.leaving]
            return sorted(
                it.persistent_volume_claim.claim_name
                for pod in live
                for it in pod.spec.volumes
                if it.persistent_volume_claim
            )

        await eventually(lambda: mounted() == [claims[1]] * 2, within=LIMIT)
        assert (await kube.get(STATEFULSETS, bed.key("controller"))).spec.replicas == 2

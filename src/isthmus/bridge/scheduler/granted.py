"""Which devices of a node a job has, as Slurm says it: the indices of GRES, and the cores."""

from isthmus.bridge.cache.world import World
from isthmus.domain.bridge import cores, gresindex, marker, noderecord
from isthmus.domain.bridge.devices import NodeDevices
from isthmus.domain.bridge.noderules import index_of
from isthmus.domain.bridge.placement import Seat
from isthmus.domain.languages import hostlist
from isthmus.model.slurm import Job
from isthmus.slurm.versions import Feature


async def granted(world: World, seat: Seat, node: str, here: NodeDevices) -> set[int] | str:
    """Find the devices that the job of a pod has on its node, by their positions, or say why that is unknown."""
    known = world.slurm_nodes.get(seat.slurm_node)
    if known is None:
        return "Slurm no longer has it"
    places = index_of(here, known, node=node)
    if isinstance(places, str):
        return places
    job, cpus = world.record_of(seat.job_id), set[int]()
    if here.cpus and (await world.slurm.server()).has(Feature.ALLOCATIONS):
        portions = {it.node: it for it in await world.slurm.nodes_of(seat.job_id)}
        if (portion := portions.get(seat.slurm_node)) is None:
            return "Slurm does not say what the job has there"
        detail, bitmap = portion.gres, cores.cores_in(portion.core_bitmap)
        found = cores.given(here, bitmap, total=portion.cores, ours=noderecord.read(known) is not None)
        if isinstance(found, str):
            return found
        cpus = found
    else:
        job = job if job and job.gres_detail else await _read(world, seat.job_id)
        details = dict(zip(hostlist.expand(job.nodes or ""), job.gres_detail, strict=False)) if job else {}
        detail = details.get(seat.slurm_node) or ""
    devices = gresindex.given(detail, places, known.gres)
    if isinstance(devices, str):
        return devices
    marked = marker.read(job.admin_comment) if job else None
    # With a whole node a job has what Slurm does not count there, too.
    return devices | cpus | (here.uncounted if marked and not marked.shared else set())


async def _read(world: World, job_id: int) -> Job | None:
    return next((it for it in await world.slurm.job(job_id) if it.job_id == job_id), None)

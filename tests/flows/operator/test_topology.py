"""Slurm's topology on a real slurmctld of each release: jobs stay together, and changed labels are followed."""

from collections.abc import Callable, Mapping

import pytest

from isthmus.domain.languages import hostlist
from isthmus.domain.operator.slurmfiles.topology import FILES, FIRST_WITH_YAML, Place
from isthmus.domain.operator.slurmfiles.topology import files as topology_files
from isthmus.model.slinky import NetworkTopology
from tests.bed.slurm import SlurmBed
from tests.bed.waiting import eventually

LEAF = "topology.nebius.com/tier-1"
BLOCK = "topology.nebius.com/tier-0"


@pytest.fixture
def bed(slurm_version: str, slurm_bed: Callable[..., SlurmBed]) -> SlurmBed:
    bed = slurm_bed(slurm_version, nodes=4, accounting=False)
    bed.scontrol("create", "NodeName=d1", "State=CLOUD", "CPUs=2", "RealMemory=100", "NodeAddr=127.0.0.1")
    return bed


def lay(bed: SlurmBed, topology: NetworkTopology, places: Mapping[str, tuple[str, str]]) -> None:
    """Write the topology of nodes, given as (fabric, label), and let slurmctld read it."""
    key = LEAF if topology.plugin == "tree" else BLOCK
    release = tuple(int(it) for it in bed.version.split("."))
    made = topology_files(
        topology,
        [Place(node, {key: label} if label else {}, fabric) for node, (fabric, label) in places.items()],
        with_yaml=release >= FIRST_WITH_YAML,
    )
    for file in FILES:
        bed.path(f"/etc/slurm/{file}").unlink(missing_ok=True)
    for file, text in made.items():
        bed.path(f"/etc/slurm/{file}").write_text(text)
    conf = bed.path("/etc/slurm/slurm.conf")
    kept = [it for it in conf.read_text().splitlines() if not it.startswith("TopologyPlugin")]
    conf.write_text("\n".join([*kept, f"TopologyPlugin=topology/{topology.plugin}", ""]))
    bed.scontrol("reconfigure")


def together(bed: SlurmBed, *options: str) -> set[str]:
    """Give a job two whole nodes, and return which it had. No slurmd is asked: each reads its files again."""
    eventually(lambda: idle(bed), "all nodes to be idle", holds=lambda it: {"n1", "n2", "n3", "n4"} <= it)
    bed.command("salloc", "-N2", "--exclusive", "--no-shell", "--immediate=60", "--job-name=both", *options)
    # The one before it may still be about to end.
    where = bed.command("squeue", "-h", "--name=both", "--states=running", "-o%N").strip()
    bed.command("scancel", "--name=both")
    return set(hostlist.expand(where))


def idle(bed: SlurmBed) -> set[str]:
    return set(bed.command("sinfo", "-h", "-N", "-tidle", "-o%N").split())


@pytest.mark.parametrize("plugin", ["tree", "block"])
def test_a_job_stays_within_a_switch_or_block_and_follows_the_labels(bed: SlurmBed, plugin: str) -> None:
    topology = NetworkTopology(plugin, block_size=2)  # type: ignore[arg-type] # of two texts
    # Slurm 24.11 plans with the smallest block, so none is smaller than two here.
    apart = {"n1": "a", "n2": "b", "n3": "a", "n4": "b", "d1": "" if plugin == "tree" else "a"}
    lay(bed, topology, {node: ("root", label) for node, label in apart.items()})
    one = ("--switches=1",) if plugin == "tree" else ()
    assert together(bed, *one) in ({"n1", "n3"}, {"n2", "n4"})
    assert together(bed, *one, "--nodelist=n4") == {"n2", "n4"}
    beside = {"n1": "a", "n2": "a", "n3": "b", "n4": "b", "d1": "b"}
    lay(bed, topology, {node: ("root", label) for node, label in beside.items()})
    assert together(bed, *one, "--nodelist=n4") == {"n3", "n4"}
    assert "d1" in bed.scontrol("show", "topology")


def test_no_job_has_nodes_of_two_fabrics(bed: SlurmBed) -> None:
    places = {"n1": ("ib", "a"), "n2": ("ib", "b"), "n3": ("eth", ""), "n4": ("eth", ""), "d1": ("eth", "")}
    lay(bed, NetworkTopology("tree"), places)
    assert together(bed, "--nodelist=n1") == {"n1", "n2"}
    with pytest.raises(RuntimeError, match="opology"):
        together(bed, "--nodelist=n1,n3")

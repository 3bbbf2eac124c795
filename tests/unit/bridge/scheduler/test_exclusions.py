"""Which nodes a group's job must not get, for how long, and when a job that waits has to be told."""

from isthmus import names
from isthmus.bridge.cache.feasible import FeasibleNodes
from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler.exclusions import AVOIDED, Exclusions
from isthmus.domain.bridge import marker
from isthmus.domain.bridge.groups import group_of
from isthmus.domain.languages.hostlist import expand
from isthmus.model import slurm
from isthmus.model.meta import Condition, ObjectMeta
from isthmus.model.node import Node, NodeStatus
from isthmus.model.pod import Container, Pod, PodSpec
from isthmus.slurm.client import Client
from tests.unit.bridge.cache import test_devices


def pod(*, name: str = "p", gang: str = "", node: str = "") -> Pod:
    labels = {names.POD_GROUP_LABEL: gang} if gang else {}
    meta = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", labels=labels)
    spec = PodSpec((Container("c"),), node_name=node, scheduler_name=names.SCHEDULER_NAME)
    return Pod(meta, spec)


class Bed:
    """Exclusions in a world whose nodes n1 and n2 are in Slurm, too, and n3 is in Slurm alone."""

    def __init__(self) -> None:
        world = World(None, Client(None), cluster="c")  # type: ignore[arg-type] # caches need no client
        ready = NodeStatus(conditions=(Condition("Ready", "True"),))
        for name in ("n1", "n2", "n3"):
            world.slurm_nodes.put(name, slurm.Node(name))
        for name in ("n1", "n2"):
            world.nodes.put(Node(ObjectMeta(name=name), status=ready))
        self.now = 0.0
        feasible = FeasibleNodes(world.nodes, world.map, world.slurm_nodes, world.capacity)
        self.exclusions = Exclusions(world, feasible, clock=lambda: self.now)

    def for_job(self, wanted: Pod) -> set[str]:
        return set(expand(self.exclusions.for_job(group_of(wanted), [self.exclusions.constraints(wanted)])))

    def news(self, told: str) -> set[str] | None:
        """What a job with this list is to be told."""
        news = self.exclusions.news(group_of(pod()), slurm.Job(7, excluded_nodes=told), [pod()])
        return None if news is None else set(expand(news))


def test_a_node_that_could_not_be_used_is_left_out_for_a_while_by_its_group_alone() -> None:
    bed = Bed()
    bed.exclusions.avoid(group_of(pod()), "n1")
    assert bed.for_job(pod()) == {"n1", "n3"}
    assert bed.for_job(pod(name="other")) == {"n3"}
    assert bed.exclusions.ends(group_of(pod())) == [AVOIDED]
    bed.now += AVOIDED
    assert bed.for_job(pod()) == {"n3"}
    assert bed.exclusions.ends(group_of(pod())) == []


def test_nothing_is_left_out_for_a_group_that_is_forgotten() -> None:
    bed = Bed()
    bed.exclusions.avoid(group_of(pod()), "n1")
    bed.exclusions.forget(group_of(pod()))
    assert bed.for_job(pod()) == {"n3"}


def test_a_job_that_waits_is_told_only_what_it_does_not_know() -> None:
    bed = Bed()
    assert bed.news("") == {"n3"}
    assert bed.news("n3") is None
    bed.exclusions.avoid(group_of(pod()), "n2")
    assert bed.news("n3") == {"n2", "n3"}
    assert bed.news("n2,n3") is None


def test_a_gang_of_which_pods_run_does_without_what_the_others_cannot_use() -> None:
    bed = Bed()
    loose, bound = pod(name="a", gang="trio"), pod(name="b", gang="trio", node="n1")
    assert bed.exclusions.unusable(group_of(loose), [loose]) == frozenset()
    assert bed.exclusions.unusable(group_of(loose), [loose, bound]) == {"n3"}


def test_whether_a_job_shares_its_nodes_is_known_from_a_process_before() -> None:
    bed = test_devices.Bed()
    bed.devices.claims.put(test_devices.claim())
    found = test_devices.pod("p", claims=("c1",))
    exclusions = Exclusions(bed.world, bed.feasible)
    assert not exclusions.constraints(found).shared
    marked = marker.mark(group_of(found), "u", [found], cluster="c", shared=True)
    exclusions.news(group_of(found), slurm.Job(7, admin_comment=marker.write(marked)), [found])
    assert exclusions.constraints(found).shared

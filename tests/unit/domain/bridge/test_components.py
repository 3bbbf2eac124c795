"""When the pods of a gang need a component for each kind of them."""

import pytest

from isthmus.domain.bridge.components import MAX_COMPONENTS, Part, parts_of, plan, role_of
from isthmus.domain.kube.feasibility import Constraints, constraints_of
from isthmus.domain.languages.hostlist import expand
from isthmus.errors import Terminal
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Container, NodeSelector, NodeSelectorTerm, Pod, PodSpec, Requirement, Resources

NODES = ["n1", "n2", "n3", "n4"]


def pod(name: str, *, cpu: str = "1", gpus: int = 0, partition: str = "", **spec: object) -> Pod:
    requests = {"cpu": cpu, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    annotations = {"slurmjob.slinky.slurm.net/partition": partition} if partition else {}
    meta = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", annotations=annotations)
    container = Container(name="main", resources=Resources(requests=requests))
    return Pod(meta, PodSpec(containers=(container,), **spec))  # type: ignore[arg-type]


def names(parts: tuple[Part, ...]) -> list[list[str]]:
    return [[it.metadata.name for it in part.pods] for part in parts]


def planned(*pods: Pod, excluded: dict[str, str] | None = None, components: bool = True) -> list[list[str]]:
    """Plan a gang on four nodes, from which the pods named first are kept as `excluded` says."""
    parts, closed = [], set[str]()
    for part in parts_of(pods, constraints_of):
        unfit = expand((excluded or {}).get(part.pods[0].metadata.name, ""))
        parts.append(Part(part.pods, part.constraints, part.role, fit=len(NODES) - len(unfit)))
        closed |= set(unfit)
    shared = len(NODES) - len(closed)
    return names(
        plan(parts, slots=len(pods), shared=shared, exclusive=True, components=components, release="25.11.1")
    )


def test_pods_of_one_template_are_one_part_without_a_role() -> None:
    (part,) = parts_of([pod("a"), pod("b")], constraints_of)
    assert [it.metadata.name for it in part.pods] == ["a", "b"]
    assert part.role == ""


def test_pods_are_sorted_by_size_devices_nodes_and_partition() -> None:
    gang = [
        pod("leader"),
        pod("large", cpu="2"),
        pod("gpu-0", gpus=1),
        pod("gpu-1", gpus=1),
        pod("picky", node_selector={"zone": "a"}),
        pod("apart", partition="other"),
    ]
    assert names(parts_of(gang, constraints_of)) == [
        ["leader"],
        ["large"],
        ["gpu-0", "gpu-1"],
        ["picky"],
        ["apart"],
    ]


def test_pods_whose_volumes_are_on_different_nodes_are_apart_but_have_one_role() -> None:
    def on(pod: Pod) -> Constraints:
        where = NodeSelector(
            (NodeSelectorTerm(match_fields=(Requirement("metadata.name", "In", (pod.metadata.name,)),)),)
        )
        return constraints_of(pod, (where,))

    first, second = parts_of([pod("n1"), pod("n2")], on)
    assert first.constraints != second.constraints
    assert first.role == second.role == role_of(pod("n3"))


def test_a_role_is_that_of_the_template() -> None:
    assert role_of(pod("a", gpus=1)) == role_of(pod("b", gpus=1))
    assert (
        len({role_of(it) for it in (pod("a"), pod("a", gpus=1), pod("a", cpu="2"), pod("a", partition="x"))}) == 4
    )


def test_sizes_that_every_node_has_need_one_plain_job() -> None:
    assert planned(pod("leader"), pod("worker", cpu="4")) == [["leader", "worker"]]


def test_sizes_for_which_too_few_nodes_are_large_enough_are_components() -> None:
    assert planned(pod("leader"), pod("worker", cpu="4"), excluded={"worker": "n[1-3]"}) == [["leader"], ["worker"]]


def test_a_pod_without_devices_takes_none() -> None:
    assert planned(pod("leader"), pod("worker", gpus=1)) == [["leader"], ["worker"]]


def test_an_older_slurm_gets_a_plain_job_where_that_will_do() -> None:
    assert planned(pod("leader"), pod("worker", gpus=1), components=False) == [["leader", "worker"]]


def test_an_older_slurm_that_could_never_start_it_is_not_asked() -> None:
    with pytest.raises(
        Terminal, match=r"need different nodes \(1 like leader, 1 like worker\), which Slurm 25\.11\.1"
    ):
        planned(
            pod("leader", node_selector={"zone": "a"}),
            pod("worker"),
            excluded={"leader": "n[2-4]", "worker": "n1"},
            components=False,
        )


def test_a_gang_that_could_not_start_in_parts_either_waits_as_a_plain_job() -> None:
    gang = [pod("leader", cpu="9"), pod("worker")]
    assert planned(*gang, excluded={"leader": "n[1-4]"}, components=False) == [["leader", "worker"]]


def test_slurm_takes_so_many_components_and_not_more() -> None:
    gang = [pod(f"p{number}", partition=f"part{number}") for number in range(MAX_COMPONENTS + 1)]
    with pytest.raises(Terminal, match="128 components at most, not 129"):
        planned(*gang)

"""Whatever pods ask for, Slurm gives no less, and whatever annotations say is understood or refused."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from isthmus import names
from isthmus.domain.bridge import joboptions
from isthmus.domain.bridge.joboptions import OPTIONS, JobOptions
from isthmus.domain.bridge.jobspec import Defaults, request
from isthmus.domain.kube.podshape import Shape, largest, shape_of
from isthmus.domain.languages.tres import parse_tres
from isthmus.errors import Terminal
from isthmus.model.pod import Container, Pod, PodSpec, Resources

MIB = 1 << 20

shapes = st.builds(
    Shape,
    st.integers(0, 200_000),
    st.integers(0, 1 << 42),
    st.dictionaries(st.sampled_from(["nvidia.com/gpu", "amd.com/gpu", "a/b"]), st.integers(1, 16)),
)
gangs = st.lists(shapes, min_size=1, max_size=6)


@given(gangs, st.builds(JobOptions, exclusive=st.booleans()), st.integers(0, 9), st.integers(0, 9))
def test_each_pod_gets_at_least_what_it_asks_for(
    pods: list[Shape], options: JobOptions, slots: int, minimum: int
) -> None:
    made = request(
        name="a",
        comment="",
        admin_comment="",
        shapes=pods,
        options=options,
        defaults=Defaults(gres={"a/b": "b"}),
        slots=slots,
        minimum=minimum,
    )
    wanted = largest(pods)
    cpus = made.cpus_per_task or 0
    memory = made.memory_per_node or made.memory_per_cpu
    per_pod = (memory.value or 0) * (max(cpus, 1) if made.memory_per_cpu else 1) if memory else 0
    gres = parse_tres(made.tres_per_node or made.tres_per_task or "")
    assert cpus * 1000 >= wanted.milli_cpu
    assert per_pod * MIB >= wanted.memory
    assert memory is None or memory.value  # 0 is all the memory of a node
    assert gres.get("gres/b", 0) == wanted.devices.get("a/b", 0)
    assert sum(gres.values()) == sum(wanted.devices.values())
    if options.exclusive or max(slots, len(pods)) == 1:
        assert made.minimum_nodes is not None
        assert made.maximum_nodes is not None
        assert 1 <= made.minimum_nodes <= made.maximum_nodes == max(slots, len(pods))
    else:
        assert made.tasks == max(slots, len(pods))


@given(gangs)
def test_the_largest_of_shapes_is_one_in_which_each_fits(pods: list[Shape]) -> None:
    most = largest(pods)
    assert largest([most, *pods]) == most
    assert most.milli_cpu == max(pod.milli_cpu for pod in pods)


amounts = st.lists(st.integers(0, 5000), max_size=4)


@given(amounts, st.lists(st.tuples(st.integers(0, 5000), st.booleans()), max_size=4), st.integers(0, 500))
def test_a_shape_is_the_most_that_a_pod_ever_holds_at_once(
    containers: list[int], init: list[tuple[int, bool]], overhead: int
) -> None:
    """Against a pod that is started step by step."""
    held = peak = 0
    for amount, stays in init:
        peak = max(peak, held + amount)
        held += amount if stays else 0
    peak = max(peak, held + sum(containers))

    def box(amount: int, policy: str = "") -> Container:
        return Container(resources=Resources({"cpu": f"{amount}m"}), restart_policy=policy)

    spec = PodSpec(
        containers=tuple(box(amount) for amount in containers),
        init_containers=tuple(box(amount, "Always" if stays else "") for amount, stays in init),
        overhead={"cpu": f"{overhead}m"},
    )
    assert shape_of(Pod(spec=spec)).milli_cpu == peak + overhead


keys = st.one_of(st.sampled_from([option.key for option in OPTIONS]), st.text(max_size=20))
prefixes = st.sampled_from([names.JOB_ANNOTATIONS, names.JOB_ANNOTATIONS_OLD, "", "example.com/"])
values = st.one_of(st.text(max_size=40), st.integers().map(str), st.sampled_from([it.example for it in OPTIONS]))


@given(st.dictionaries(st.tuples(prefixes, keys).map("".join), values, max_size=6))
def test_annotations_are_read_or_refused_and_never_anything_else(annotations: dict[str, str]) -> None:
    with suppress(Terminal):
        options = joboptions.parse(annotations)
        assert joboptions.merge(options) == options
        made = request(
            name="a", comment="", admin_comment="", shapes=[Shape()] * 3, options=options, defaults=Defaults()
        )
        sent = [getattr(made, field) for field in made.__struct_fields__]
        assert all(value.isprintable() for value in sent if isinstance(value, str))

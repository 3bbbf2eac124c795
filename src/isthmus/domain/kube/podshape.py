"""What a pod takes of a node: the sum that Kubernetes itself makes, in numbers.

Containers add up; init containers run one after another, so the largest of them counts; sidecars (init containers
that restart always) stay and add to whatever starts after them; the overhead of the sandbox comes on top. Resources
of the pod as a whole stand for the sum of its containers. Requests decide, and limits where there is no request.

Slurm is asked for this (`jobspec`), and the room that is left on a node is counted with it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Container as Container_
from types import MappingProxyType
from typing import Final, NamedTuple

from isthmus.domain.languages import quantity
from isthmus.model.base import Data
from isthmus.model.pod import Container, Pod, Resources

NO_DEVICES: Final[Mapping[str, int]] = MappingProxyType({})

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - nothing is bound here: it is what the API calls all addresses

_Amounts = dict[str, int]
Measure = Callable[[str, str], int]
"""Makes a number of a resource's name and a quantity of it."""


class Port(NamedTuple):
    protocol: str
    number: int
    address: str


class Shape(Data, frozen=True):
    """So many thousandths of a CPU, bytes of memory, and devices by the name of their resource."""

    milli_cpu: int = 0
    memory: int = 0
    devices: Mapping[str, int] = NO_DEVICES
    gres: Mapping[str, int] = NO_DEVICES
    """What its claims take, by the GRES."""


def measure(name: str, text: str) -> int:
    """Read a quantity of a resource: thousandths of a CPU, else bytes or pieces."""
    return quantity.milli(text) if name == "cpu" else quantity.whole(text)


def requests_of(pod: Pod, *, read: Measure = measure) -> dict[str, int]:
    """Add up all that a pod takes, by the name of the resource: thousandths of a CPU, else bytes or pieces.

    A few microseconds for an ordinary pod: quantities are read once and remembered. `read` decides what becomes of
    one that cannot be read; unless given, that raises `Terminal`.
    """
    spec = pod.spec
    if len(spec.containers) == 1 and not (spec.init_containers or spec.overhead):
        amounts = _asked(spec.containers[0].resources, read)
    else:
        amounts = _together(spec.containers, spec.init_containers, read)
    if spec.resources.requests or spec.resources.limits:
        amounts = _asked(spec.resources, read, instead_of=amounts)
    if spec.overhead:
        _add(amounts, {name: read(name, text) for name, text in spec.overhead.items()})
    return amounts


def shape_of(pod: Pod, *, gres: Mapping[str, int] = NO_DEVICES, without: Container_[str] = ()) -> Shape:
    """Add up what a pod takes of all that Slurm keeps account of.

    `gres` is what its claims take, which stand for the resources `without`.
    """
    amounts = requests_of(pod)
    cpu, memory = amounts.pop("cpu", 0), amounts.pop("memory", 0)
    # What has no slash is Kubernetes' own (ephemeral-storage, hugepages-2Mi): Slurm keeps no account of it.
    devices = {name: count for name, count in amounts.items() if count and "/" in name and name not in without}
    return Shape(cpu, memory, devices or NO_DEVICES, gres)


def host_ports(pod: Pod) -> Iterator[Port]:
    """The ports of its node that a pod takes for as long as it runs."""
    spec = pod.spec
    for container in (*(it for it in spec.init_containers if it.restart_policy == "Always"), *spec.containers):
        for port in container.ports:
            if port.host_port:
                yield Port(port.protocol or "TCP", port.host_port, port.host_ip or ANY_ADDRESS)


def clashes(port: Port, taken: Counter[Port]) -> bool:
    """Whether a port is taken: by the same address, or where either means all addresses."""
    if not taken:
        return False
    if port.address == ANY_ADDRESS:
        return any(it.number == port.number and it.protocol == port.protocol for it in taken)
    return port in taken or port._replace(address=ANY_ADDRESS) in taken


def largest(shapes: Iterable[Shape]) -> Shape:
    """Make a shape in which each of these fits."""
    cpu = memory = 0
    devices: _Amounts = {}
    gres: _Amounts = {}
    for shape in shapes:
        cpu, memory = max(cpu, shape.milli_cpu), max(memory, shape.memory)
        _raise_to(devices, shape.devices)
        _raise_to(gres, shape.gres)
    return Shape(cpu, memory, devices or NO_DEVICES, gres or NO_DEVICES)


def _together(containers: Iterable[Container], init_containers: Iterable[Container], read: Measure) -> _Amounts:
    running: _Amounts = {}
    for container in containers:
        _add(running, _asked(container.resources, read))
    sidecars: _Amounts = {}
    at_start: _Amounts = {}
    for container in init_containers:
        asked = _asked(container.resources, read)
        if container.restart_policy == "Always":
            _add(sidecars, asked)
            _raise_to(at_start, sidecars)
        else:
            _add(asked, sidecars)
            _raise_to(at_start, asked)
    _add(running, sidecars)
    _raise_to(running, at_start)
    return running


def _asked(resources: Resources, read: Measure, *, instead_of: Mapping[str, int] = NO_DEVICES) -> _Amounts:
    """Read requests, then what is there already, then limits: the first that names a resource decides."""
    amounts = {name: read(name, text) for name, text in resources.requests.items()}
    for name, amount in instead_of.items():
        amounts.setdefault(name, amount)
    for name, text in resources.limits.items():
        if name not in amounts:
            amounts[name] = read(name, text)
    return amounts


def _add(to: _Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        to[name] = to.get(name, 0) + amount


def _raise_to(to: _Amounts, least: Mapping[str, int]) -> None:
    for name, amount in least.items():
        if amount > to.get(name, 0):
            to[name] = amount

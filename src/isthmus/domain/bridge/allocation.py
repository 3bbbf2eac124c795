"""Which devices of a node a pod's claims get.

Slurm chooses by count: so many of a GRES, or of CPUs, whichever they are. A pod that has its node to itself can get
whatever its claims ask for, since all devices of the node are its own. A pod that shares its node gets what Slurm
picked: there, either all devices of a GRES match a request or none does, or the node is not for that pod.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from isthmus.domain.bridge import devicefacts
from isthmus.domain.bridge.devices import CPU, CPU_CAPACITY, DeviceId, NodeDevices
from isthmus.domain.kube.deviceclaims import MAX_RESULTS, Choice, Need, Request, Rule
from isthmus.domain.languages import quantity
from isthmus.model.dra import Result

_MAX_STEPS: Final = 20_000
"""Of the search for devices that keep all rules; more than enough for claims that people write."""

Classes = Callable[[str], tuple[str, ...] | None]
"""Finds the selectors of a device class; None for one that does not exist."""


class Picked(NamedTuple):
    """A device for a request of the claim with this number; `choice` names the alternative that was taken."""

    claim: int
    request: str
    choice: Choice
    position: int

    @property
    def result(self) -> str:
        """The request as an allocation names it."""
        return f"{self.request}/{self.choice.name}" if self.choice.name else self.request


class Load(NamedTuple):
    """What other claims have of a node: of counters that devices share, and of the capacity of each device."""

    counters: Mapping[str, int]
    capacity: Mapping[int, Mapping[str, int]]


_UNUSED: Final = Load({}, {})


def load_of(node: NodeDevices, held: Iterable[Result]) -> Load:
    """Add up what allocations take of a node."""
    counters: Counter[str] = Counter()
    capacity: dict[int, Counter[str]] = {}
    for it in held:
        position = node.positions.get(DeviceId(it.driver, it.pool, it.device))
        if position is None or it.admin_access:
            continue
        if position not in capacity:
            counters.update(dict(node.devices[position].takes))
        used = capacity.setdefault(position, Counter())
        used.update({name: quantity.parse(amount) for name, amount in it.consumed_capacity.items()})
    return Load(counters, capacity)


class Fit(NamedTuple):
    """What the claims of a pod take on a node."""

    gres: Mapping[str, int]
    """Devices of each GRES."""
    cpus: Mapping[tuple[int, str], int]
    """CPUs, by the number of the claim and the name of the request."""
    detours: int
    """How many alternatives before those had to be left out."""

    def within(self, other: "Fit") -> bool:
        """Whether what the other takes is enough for this, too."""
        enough = all(count <= other.gres.get(gres, 0) for gres, count in self.gres.items())
        return enough and sum(self.cpus.values()) <= sum(other.cpus.values())


NOTHING: Final = Fit({}, {}, 0)


def fit(
    needs: Sequence[Need], node: NodeDevices, classes: Classes, *, shared: bool, foreign: Collection[Result] = ()
) -> Fit | str:
    """How the claims of a pod are served on a node where nothing else of Slurm runs, or why they are not.

    `foreign` are devices that somebody else's pods hold. With `shared`, other pods of Slurm may be there.
    """
    free = _free(node, foreign, shared=shared)
    if shared and (trouble := _ambiguous(needs, node, classes, free)):
        return trouble
    load = load_of(node, foreign) if foreign else _UNUSED
    picked = allocate(needs, node, classes, may=free.__contains__, load=load)
    if picked is None:
        return "does not have the devices of the resource claims"
    choices = {(at, it.name): it.choices for at, need in enumerate(needs) for it in need.requests}
    left_out = {(it.claim, it.request): choices[it.claim, it.request].index(it.choice) for it in picked}
    own = [it for it in picked if not it.choice.admin]
    gres = Counter(node.counted[at] for at in {it.position for it in own})
    cpus: Counter[tuple[int, str]] = Counter()
    for it in own:
        if node.devices[it.position].gres == CPU:
            cpus[it.claim, it.request] += _cpus(node, it)
    return Fit({name: count for name, count in gres.items() if name not in {"", CPU}}, cpus, sum(left_out.values()))


def _cpus(node: NodeDevices, picked: Picked) -> int:
    """How many CPUs a request gets by one device."""
    if not node.devices[picked.position].shared:
        return 1
    amount = (node.consumed(picked.position, picked.choice) or {}).get(CPU_CAPACITY, 0)
    return -(-amount // quantity.ONE)


def _free(node: NodeDevices, foreign: Collection[Result], *, shared: bool) -> set[int]:
    """The devices that a pod may get."""
    taken = node.places(foreign)
    return {
        at
        for at, it in enumerate(node.devices)
        if (it.gres or not shared) and (at not in taken or node.is_group(at))
    }


def _ambiguous(needs: Sequence[Need], node: NodeDevices, classes: Classes, free: Collection[int]) -> str:
    """Why Slurm could pick devices on a shared node that a claim cannot use; empty if it could not."""
    total = Counter(node.counted)
    for need in needs:
        for choice in (it for request in need.requests for it in request.choices if not it.admin):
            matching = [at for at in node.matching(choice, classes(choice.device_class) or ()) if at in free]
            if choice.every:
                return "is shared, and a resource claim asks for all devices of a node"
            found = Counter(node.counted[at] for at in matching)
            if any(count != total[gres] for gres, count in found.items()):
                return "has devices of which only some match the resource claims, and Slurm picks freely"
            for rule in need.rules:
                values = [_attribute(node, at, rule.attribute) for at in matching]
                if None in values or len(set(values)) not in ({len(values)} if rule.distinct else {0, 1}):
                    return "has devices that may break a constraint of the resource claims, and Slurm picks freely"
    return ""


def allocate(
    needs: Sequence[Need],
    node: NodeDevices,
    classes: Classes,
    *,
    may: Callable[[int], bool],
    load: Load = _UNUSED,
) -> tuple[Picked, ...] | None:
    """Give each request its devices, of those that it `may` have; None if there are not enough.

    A request with administrative access uses devices beside those who have them.
    """
    search = _Search(needs, node, classes, may, load)
    return None if search.is_hopeless() or not search.place(0) else tuple(search.picked)


class _Option(NamedTuple):
    """A choice of a request, with the devices that it may take and how many of them it takes."""

    choice: Choice
    allowed: tuple[int, ...]
    number: int


class _Search:
    """Tries one device after the other for one request after the other, and goes back where that leads nowhere."""

    def __init__(
        self, needs: Sequence[Need], node: NodeDevices, classes: Classes, may: Callable[[int], bool], load: Load
    ) -> None:
        self._node, self._classes, self._may = node, classes, may
        self._requests = [
            (at, need, request.name, self._options(request))
            for at, need in enumerate(needs)
            for request in need.requests
        ]
        self._users: Counter[int] = Counter()
        self._counters = Counter(load.counters)
        self._capacity = {at: Counter(used) for at, used in load.capacity.items()}
        self._loaded = load.capacity.keys()
        self._steps = 0
        self.picked: list[Picked] = []

    def _options(self, request: Request) -> list[_Option]:
        """The choices of a request for which there are devices, whatever the other requests take."""
        found = []
        for choice in request.choices:
            of_class = self._classes(choice.device_class)
            if of_class is None:
                continue
            matching = self._node.matching(choice, of_class)
            allowed = tuple(at for at in matching if choice.admin or self._may(at))
            if choice.every and (len(allowed) < len(matching) or len(allowed) > MAX_RESULTS):
                continue
            count = len(allowed) if choice.every else choice.count
            again = not (choice.admin or choice.every) and any(self._node.devices[at].shared for at in allowed)
            if allowed and (len(allowed) >= count or again):
                found.append(_Option(choice, allowed, count))
        return found

    def is_hopeless(self) -> bool:
        """Whether there are too few devices, however they are given.

        To find that out by trying takes thousands of steps, on each of thousands of nodes.
        """
        least, there = 0, set[int]()
        for _, _, _, options in self._requests:
            if not options:
                return True
            own = [it for it in options if not it.choice.admin]
            if len(own) == len(options):
                least += min(it.number for it in own)
            there.update(at for it in own for at in it.allowed)
        return least > len(there) and not any(self._node.devices[at].shared for at in there)

    def place(self, number: int) -> bool:
        if number == len(self._requests):
            return True
        claim, need, request, options = self._requests[number]
        return any(self._pick(number, (claim, need, request, it.choice), it.allowed, it.number) for it in options)

    def _pick(self, number: int, what: tuple[int, Need, str, Choice], allowed: Sequence[int], count: int) -> bool:
        if not count:
            return self.place(number + 1)
        claim, need, request, choice = what
        for at, position in enumerate(allowed):
            self._steps += 1
            # A device that is shared may serve the rest of the request, too.
            again = self._node.devices[position].shared and not (choice.admin or choice.every)
            if self._steps > _MAX_STEPS or (len(allowed) - at < count and not again):
                return False
            picked = Picked(claim, request, choice, position)
            if not all(self._keeps(rule, picked) for rule in need.rules if rule.covers(request, choice.name)):
                continue
            if not self._take(picked):
                continue
            self.picked.append(picked)
            if self._pick(number, what, allowed[at if again else at + 1 :], count - 1):
                return True
            self.picked.pop()
            self._return(picked)
        return False

    def _take(self, picked: Picked) -> bool:
        """Take a device, or a part of one; return whether that is there."""
        position, device = picked.position, self._node.devices[picked.position]
        if picked.choice.admin:
            return True
        if self._users[position] and not device.shared:
            return False
        if self._is_first(position) and any(
            self._counters[name] + amount > self._node.counters.get(name, 0) for name, amount in device.takes
        ):
            return False
        if device.shared:
            used = self._capacity.setdefault(position, Counter())
            wanted = self._node.consumed(position, picked.choice) or {}
            has = device.device.capacity
            if any(used[name] + amount > quantity.parse(has[name].value) for name, amount in wanted.items()):
                return False
            used.update(wanted)
        if self._is_first(position):
            self._counters.update(dict(device.takes))
        self._users[position] += 1
        return True

    def _return(self, picked: Picked) -> None:
        position, device = picked.position, self._node.devices[picked.position]
        if picked.choice.admin:
            return
        self._users[position] -= 1
        if self._is_first(position):
            self._counters.subtract(dict(device.takes))
        if device.shared:
            self._capacity[position].subtract(self._node.consumed(position, picked.choice) or {})

    def _is_first(self, position: int) -> bool:
        """Whether nobody has a device whose counters would be taken already."""
        return not self._users[position] and position not in self._loaded

    def _keeps(self, rule: Rule, one: Picked) -> bool:
        value = _attribute(self._node, one.position, rule.attribute)
        if value is None:
            return False
        others = [
            _attribute(self._node, it.position, rule.attribute)
            for it in self.picked
            if it.claim == one.claim and rule.covers(it.request, it.choice.name)
        ]
        return value not in others if rule.distinct else all(other == value for other in others)


def _attribute(node: NodeDevices, position: int, name: str) -> object:
    device = node.devices[position]
    return devicefacts.attribute(device.id.driver, device.device, name)

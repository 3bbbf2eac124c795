"""Which device an index of Slurm is.

Slurm counts the devices of a GRES name through all its types, in the order in which it has them:

    Gres=gpu:a:2,gpu:b:2        index of gpu   0 1 2 3
                                device         a's first, a's second, b's first, b's second

Of a node that we made, the record in its `extra` says which device stood at which place when it was made; so an
index means the same device for as long as the node exists. Of any other node the order is that of `NodeDevices`,
and it is believed only if Slurm has as many of each type as the driver says.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from isthmus.domain.bridge.devices import CPU, DeviceId, NodeDevices
from isthmus.domain.languages.tres import Gres, TresError, parse_gres

Table = Mapping[str, tuple[int | None, ...]]
"""By GRES name, the position in `NodeDevices` of the device with each index; None for what no driver published."""

Order = tuple[tuple[str, tuple[str, ...]], ...]
"""By GRES, the devices in the order of their indices, as `written`."""


def written(devices: NodeDevices, *, node: str) -> Order:
    """Write down the order of a node's devices.

    Those of alike nodes read alike, since a pool that is named like its node is left out.
    """
    found: dict[str, list[str]] = {}
    for kind, it in zip(devices.counted, devices.devices, strict=True):
        if kind not in devices.gres:
            continue
        pool = "" if it.id.pool == node else it.id.pool
        found.setdefault(kind, []).append(f"{it.id.driver}/{pool}/{it.id.name}")
    return tuple((gres, tuple(ids)) for gres, ids in found.items())


def table(devices: NodeDevices, gres: str, order: Order, *, node: str) -> Table | str:
    """Find the device of each index of a node, or say why Slurm and the drivers do not agree about it.

    `gres` is what Slurm says that the node has, `order` what we wrote down when we made it, if we did.
    """
    try:
        found = parse_gres(gres.replace(":(null)", ""))
    except TresError as error:
        return error.what
    known = dict(order)
    kinds = devices.counted if known else tuple(it.gres for it in devices.devices)
    has, wanted = _counts(found), Counter(it for it in kinds if it not in {"", CPU})
    if differing := sorted(kind for kind in wanted if has[kind] != wanted[kind]):
        told = ", ".join(f"{wanted[kind]} of {kind} where Slurm has {has[kind]}" for kind in differing)
        return f"its drivers publish {told}"
    places: dict[str, list[int | None]] = {}
    for it in found:
        kind = _kind(it)
        positions: list[int | None] = [at for at, each in enumerate(kinds) if each == kind]
        if kind in known:
            positions = [devices.positions.get(_id(text, node)) for text in known[kind]]
            if None in positions or len(positions) != it.count:
                return f"other devices of {kind} are there than when Slurm's node was made"
        places.setdefault(it.name, []).extend(positions or [None] * it.count)
    return {name: tuple(positions) for name, positions in places.items()}


def needed(devices: NodeDevices) -> str:
    """Write the GRES that Slurm would have to have for a node, as in slurm.conf."""
    counts = Counter(it.gres for it in devices.devices if it.gres not in {"", CPU})
    return ",".join(f"{gres}:{count}" for gres, count in sorted(counts.items()))


def given(detail: str, places: Table, gres: str) -> set[int] | str:
    """Find the devices that a job has on a node by what Slurm says of it: `gpu:a:2(IDX:0-1)`.

    Without indices it is known only if the job has all devices of a kind; otherwise the result says why not.
    """
    try:
        found, on_node = parse_gres(detail), parse_gres(gres.replace(":(null)", ""))
    except TresError as error:
        return error.what
    has = _counts(on_node)
    positions: set[int] = set()
    for it in found:
        place, _, numbers = it.place.partition(":")
        everything = _indices_of(_kind(it), on_node)
        if place == "IDX" and numbers:
            chosen = _numbers(numbers)
        elif (int(numbers) if place == "CNT" and numbers.isdecimal() else it.count) == has[_kind(it)]:
            chosen = everything
        else:
            return f"Slurm does not say which devices of {_kind(it)} the job has: they need File= in its gres.conf"
        row = places.get(it.name, ())
        positions |= {at for number in chosen if number < len(row) and (at := row[number]) is not None}
    return positions


def _counts(found: Iterable[Gres]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for it in found:
        counts[_kind(it)] += it.count
    return counts


def _kind(gres: Gres) -> str:
    return f"{gres.name}:{gres.type}" if gres.type else gres.name


def _indices_of(kind: str, on_node: Iterable[Gres]) -> list[int]:
    """All indices of a GRES with its type, or of all types of a name."""
    found: list[int] = []
    at: Counter[str] = Counter()
    for it in on_node:
        if kind in {_kind(it), it.name}:
            found += range(at[it.name], at[it.name] + it.count)
        at[it.name] += it.count
    return found


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            continue
        found += range(int(first), int(last or first) + 1)
    return found


def _id(text: str, node: str) -> DeviceId:
    driver, _, rest = text.partition("/")
    pool, _, name = rest.rpartition("/")
    return DeviceId(driver, pool or node, name)

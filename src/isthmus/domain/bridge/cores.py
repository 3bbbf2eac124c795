"""Which CPUs a job has, from the cores that Slurm says it has.

    core_bitmap "0x0f"  ──►  cores 0 to 3 of the node, counted through its sockets  ──►  CPUs of the driver

A node of ours has a core for each CPU, in the order of `NodeDevices`. A node with a slurmd has cores as its machine
has them, and all CPUs of a core are the job's.
"""

from itertools import groupby

from isthmus.domain.bridge import devicefacts
from isthmus.domain.bridge.devices import CPU, NodeDevices


def cores_in(bitmap: str) -> frozenset[int]:
    """Read a bitmap: hexadecimal, the first core is the last bit."""
    number = int(bitmap.removeprefix("0x") or "0", 16)
    return frozenset(at for at in range(number.bit_length()) if number >> at & 1)


def given(devices: NodeDevices, cores: frozenset[int], *, total: int, ours: bool) -> set[int] | str:
    """Find the CPUs that a job has, by their positions, or say why they cannot be told.

    `total` is how many cores Slurm counts on the node. Groups of CPUs are not told apart: their driver chooses.
    """
    found = [at for at, it in enumerate(devices.devices) if it.gres == CPU and not it.shared]
    groups = {at for at, it in enumerate(devices.devices) if it.gres == CPU and it.shared}
    if not found:
        return groups
    if (ours and total <= len(found)) or total == len(found):
        places = [[at] for at in found]
    else:
        places = [list(cpus) for _, cpus in groupby(found, key=lambda at: _core_of(devices, at))]
        if total != len(places):
            return f"Slurm counts {total} cores where the driver has {len(found)} CPUs of {len(places)} cores"
    return groups | {at for number, cpus in enumerate(places) if number in cores for at in cpus}


def _core_of(devices: NodeDevices, position: int) -> tuple[int, int]:
    it = devices.devices[position]
    socket, core = (devicefacts.integer(it.id.driver, it.device, name) for name in ("socketID", "coreID"))
    return socket, core

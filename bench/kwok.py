"""Kubelets for mere objects: kwok plays the nodes that `node` makes, and pods on them run and end in the API alone.

    with ControlPlaneBed() as bed, kwok.playing(bed):
        bed.kubectl("apply", "--filename=-", stdin=json.dumps(kwok.node("n1", pods=1000)))

`kwok.yaml` says what happens to them. Now and then a node says that it lives, but it holds no lease: that would
cost the API server a write per node every few seconds. Nobody schedules: a pod must be bound, or name its node.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bed.addresses import loopback_address
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.programs import program

_LABEL = "isthmus.local/played"
_STAGES = Path(__file__).with_suffix(".yaml")
_GRACE = 10


def node(name: str, *, pods: int, cpus: int = 1_000) -> dict[str, Any]:
    """Make a node that is played."""
    room = {"cpu": str(cpus), "memory": "4Ti", "pods": str(pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {_LABEL: "yes", "kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room},
    }


@contextmanager
def playing(bed: ControlPlaneBed) -> Iterator[subprocess.Popen[bytes]]:
    """Let kwok play as long as the `with` block lasts; it is built now if the cache lacks it."""
    with loopback_address() as address, (bed.logs / "kwok.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", program("kwok")),
                f"--config={_STAGES}",
                f"--kubeconfig={bed.kubeconfig}",
                f"--manage-nodes-with-label-selector={_LABEL}=yes",
                "--manage-all-nodes=false",
                "--node-lease-duration-seconds=0",
                "--cidr=198.19.0.0/16",
                f"--server-address={address}:10247",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

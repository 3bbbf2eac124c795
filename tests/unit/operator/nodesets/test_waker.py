"""Which changes of pods make a NodeSet look again: what its status tells has to be among them."""

from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.manifests.common import Settings
from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.model.meta import Key
from isthmus.model.pod import Pod
from isthmus.operator.nodesets.waker import Waker
from isthmus.operator.world import World


class Bed:
    """A cache of pods, and who was woken by what came into it."""

    def __init__(self) -> None:
        self.world = World(Client(Config(server="http://127.0.0.1:1", credentials=Fixed())), Settings())
        self.woken: list[Key] = []
        Waker(self.world, self._add)

    def _add(self, key: Key, *, after: float = 0.0) -> None:
        del after
        self.woken.append(key)

    def change(self, **status: Any) -> bool:
        """Show the pod so; tell whether its NodeSet was woken."""
        self.woken.clear()
        owner = {"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": "w", "uid": "n"}
        meta = {
            "namespace": "hpc",
            "name": "w-0",
            "uid": "p",
            "ownerReferences": [{**owner, "controller": True}],
        }
        held = [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]
        told = {"phase": "Pending", "conditions": held, **status}
        self.world.pods.put(msgspec.convert({"metadata": meta, "status": told}, Pod))
        return self.woken == [Key("hpc", "w")]


def slurmd(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "slurmd", **state}]


STARTING = slurmd(state={"waiting": {"reason": "ContainerCreating"}})
NO_IMAGE = slurmd(state={"waiting": {"reason": "ErrImagePull", "message": "not found"}})
CRASHED = slurmd(state={}, lastState={"terminated": {"exitCode": 1, "message": "fatal: no key"}})


@pytest.mark.parametrize("trouble", [NO_IMAGE, CRASHED], ids=["image", "crash"])
@pytest.mark.parametrize("which", ["containerStatuses", "initContainerStatuses"])
def test_a_container_that_cannot_start_is_told_at_once(which: str, trouble: list[dict[str, Any]]) -> None:
    bed = Bed()
    assert bed.change(**{which: STARTING})
    # Neither phase nor conditions change with it.
    assert bed.change(**{which: trouble})
    assert not bed.change(**{which: trouble}, podIP="10.0.0.1")
    assert bed.change(**{which: STARTING})


def test_containers_that_merely_start_one_after_the_other_wake_nobody() -> None:
    bed = Bed()
    bed.change(initContainerStatuses=STARTING)
    assert not bed.change(initContainerStatuses=slurmd(state={"terminated": {"exitCode": 0}}))
    assert not bed.change(containerStatuses=STARTING)

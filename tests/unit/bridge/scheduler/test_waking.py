"""Which groups a change wakes: those that it may matter to, however many others wait."""

from isthmus import names
from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler.scheduler import Scheduler
from isthmus.domain.bridge.groups import GroupKey, group_of
from isthmus.domain.bridge.jobspec import Defaults
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import ClaimSource, Pod, PodSpec, Volume
from isthmus.model.storage import Claim
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.client import Client


def using(name: str, claim: str) -> Pod:
    volume = Volume("data", persistent_volume_claim=ClaimSource(claim))
    return Pod(ObjectMeta(name, "ns", name), PodSpec(scheduler_name=names.SCHEDULER_NAME, volumes=(volume,)))


def test_a_volume_claim_wakes_the_pods_that_use_it_and_no_others() -> None:
    world = World(None, Client(None), cluster="c")  # type: ignore[arg-type] # caches need no client
    recorder = Recorder(None, controller="test", instance="test")  # type: ignore[arg-type] # nothing is sent
    scheduler = Scheduler(world, Defaults(), recorder=recorder, metrics=Metrics())
    queue = scheduler.controller.queue
    pods = [using("a", "shared"), using("b", "shared"), *(using(f"other-{it}", "other") for it in range(50))]
    for pod in pods:
        world.pods.put(pod)
        scheduler._wait_from_now(group_of(pod))
    while (group := queue.take()) is not None:
        queue.done(group)
    world.claims.put(Claim(ObjectMeta("shared", "ns", "c")))
    woken: set[GroupKey] = set()
    while (group := queue.take()) is not None:
        woken.add(group)
    assert woken == {group_of(pod) for pod in pods[:2]}

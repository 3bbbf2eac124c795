"""Elastic workers: none while nobody needs them, those of a job when it is submitted, none again after it."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from isthmus.domain.languages.hostlist import expand
from isthmus.domain.operator.slurmfiles.power import RECORD
from tests.bed.operator_ground import OperatorGround
from tests.e2e.command import isthmus
from tests.e2e.operator_parts import KEYS, OF_SLURM, SMALL, keys, part
from tests.e2e.site import Site

NAMESPACE = "elastic-test"
WORKERS = "nodeset.slinky.slurm.net/w"
STATE = "nodesetpowerstate.slurm.nebius.ai/w"
SIZE = 4


@pytest.fixture(scope="module")
def site(operator_ground: OperatorGround) -> Iterator[Site]:
    with operator_ground.namespace(NAMESPACE) as namespace:
        made = Site(operator_ground, namespace)
        # Room for many small jobs on each node, whatever the machine has.
        elastic = {"autoscale": {"idleTime": "5s"}, "slurmd": {"resources": SMALL}, "extraConf": "CPUs=25"}
        made.apply(
            *keys(),
            part("Controller", "slurm", **KEYS, extraConf="SlurmdParameters=config_overrides"),
            part("RestApi", "slurm", **OF_SLURM),
            part("NodeSet", "w", **OF_SLURM, **elastic, replicas=SIZE),
        )
        made.ready("controller/slurm", "restapi/slurm", WORKERS)
        yield made
        made.kubectl("delete", WORKERS, "--ignore-not-found")


def pods(site: Site) -> set[str]:
    return set(site.pods("app.kubernetes.io/name=slurmd"))


def all_off(site: Site) -> None:
    """Wait until Slurm has all nodes, and all of them are off."""
    off = {f"w-{it}": "idle~" for it in range(SIZE)}
    site.eventually(site.states, "all nodes to be off", holds=lambda it: it == off)


def test_three_nodes_come_for_a_gang_and_go_after_it(site: Site) -> None:
    all_off(site)
    assert pods(site) == set()
    submitted = time.time()
    # It lasts until it is told to end, so its pods are there for as long as they are looked at.
    job = site.submit("srun touch /tmp/began; until [ -e /tmp/end ]; do sleep 0.2; done", "--nodes=3")
    began = site.eventually(
        lambda: float(site.exec("w-0", "stat", "--format=%Y", "/tmp/began")),  # noqa: S108 - in the pod
        "the job to begin on its first node",
    )
    print(f"first process {began - submitted:.1f} s after submission")  # noqa: T201 - shown with -s
    assert pods(site) == {"w-0", "w-1", "w-2"}
    site.exec("w-0", "touch", "/tmp/end")  # noqa: S108 - in the pod
    told = site.ended(job)
    assert told["ExitCode"] == "0:0", told
    # Five idle seconds later they go, and nothing keeps Slurm from starting them again.
    site.eventually(lambda: pods(site), "no worker to be left", holds=lambda it: not it)
    all_off(site)
    active = site.eventually(
        lambda: site.get(STATE)["spec"].get("activeNodes", []), "no ordinal to be active", holds=lambda it: not it
    )
    assert active == []
    site.ready(WORKERS)


def test_an_array_of_200_begins_without_a_node(site: Site) -> None:
    all_off(site)
    before = starts(site)
    job = site.submit("true", "--array=1-200")

    def states() -> Counter[str]:
        return Counter(re.findall(r" JobState=(\S+)", site.run("scontrol", "--oneliner", "show", "job", job)))

    site.eventually(states, "all to end well", holds=lambda it: it == {"COMPLETED": 200})
    all_off(site)
    # Each node came for it, once.
    assert starts(site) - before == {f"w-{it}": 1 for it in range(SIZE)}


def test_a_gang_larger_than_the_policy_starts_nothing_and_is_explained(site: Site) -> None:
    all_off(site)
    site.patch(WORKERS, {"spec": {"autoscale": {"max": 2}}})
    held = ["w-2", "w-3"]
    site.eventually(
        site.states, "two to be held back", holds=lambda it: [it[name] for name in held] == ["drained~"] * 2
    )
    job = site.submit("true", "--nodes=3")
    limit = f"NodeSets allow no more than 2 nodes ({NAMESPACE}/w: autoscale.max is 2)"
    told = site.eventually(lambda: explained(site, job), "the limits to stand beside the job", holds=lambda it: it)
    assert told.startswith(f"job {job} of root: 3 nodes, PENDING, ")
    assert told.endswith(f": {limit}")
    assert pods(site) == set()
    site.patch(WORKERS, {"spec": {"autoscale": {"max": None}}})
    assert site.ended(job)["ExitCode"] == "0:0"


def explained(site: Site, job: str) -> str:
    """What `isthmus elastic` says of a job; nothing if Slurm has not looked at it yet."""
    shown = isthmus("elastic", f"--namespace={NAMESPACE}", KUBECONFIG=site.ground.kubeconfig)
    assert shown.returncode == 0, shown
    return next((it.strip() for it in shown.stdout.splitlines() if f"job {job} " in it), "")


def starts(site: Site) -> Counter[str]:
    """How often Slurm has started each node."""
    told = [json.loads(it) for it in site.run("cat", RECORD).splitlines()]
    return Counter(node for it in told if it["verb"] == "resume" for node in expand(it["nodes"]))

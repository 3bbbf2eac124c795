"""What a change of a cluster would do, from the cluster as it is, its pods and Slurm's nodes and jobs."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.manifests import worker as manifests
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.preview import Clusters, Effect, Live, NodeJobs, clusters_of, effects
from isthmus.model.meta import Condition
from isthmus.model.pod import Pod
from isthmus.model.slinky import CONTROLLERS, NODESETS, NodeSet
from isthmus.model.slurm import Job, Number
from isthmus.model.soperator import NEBIUS_NODESETS, SLURM_CLUSTERS, SlurmCluster
from tests.unit.domain.operator.nodeset.views import NOW, pod, slurm_node
from tests.unit.domain.operator.nodeset.views import nodeset as nodeset_of
from tests.unit.domain.operator.test_clusterparts import nodeset

SETTINGS = Settings(cgroup="none")
PLAIN: dict[str, Any] = {"slurmNodes": {"worker": {"size": 3, "resources": {"cpu": "2", "memory": "1Gi"}}}}


def cluster(**spec: Any) -> SlurmCluster:
    metadata = {"name": "demo", "namespace": "hpc", "uid": "u"}
    return msgspec.convert({"metadata": metadata, "spec": PLAIN | spec, "status": {"namePrefix": ""}}, SlurmCluster)


def clusters_with(it: SlurmCluster) -> Clusters:
    return clusters_of({SLURM_CLUSTERS: {"demo": it}}, settings=SETTINGS)


def worker(**fields: Any) -> dict[str, Any]:
    return {"slurmNodes": {"worker": {**PLAIN["slurmNodes"]["worker"], **fields}}}


def job(number: int, user: str, nodes: str, *, minutes: int) -> Job:
    times: Any = {"start_time": Number.of(1000.0), "time_limit": Number.of(minutes)}
    return Job(number, ("RUNNING",), user_name=user, nodes=nodes, **times)


JOBS = (
    Job(
        7,
        ("RUNNING",),
        user_name="ann",
        nodes="worker-[1-2]",
        start_time=Number.of(1000.0),
        time_limit=Number.of(10),
    ),
    Job(8, ("RUNNING",), user_name="bob", nodes="worker-1", start_time=Number.of(1000.0), time_limit=Number.of(30)),
    Job(9, ("PENDING",), user_name="bob"),
)
NODES = {
    "worker-0": slurm_node("worker-0"),
    "worker-1": slurm_node("worker-1", "MIXED"),
    "worker-2": slurm_node("worker-2", "MIXED"),
}


def worker_pod(number: int) -> Pod:
    seen = pod(number).pod
    labels = {**seen.metadata.labels, **manifests.labels(nodeset_of(), "demo")}
    status = msgspec.structs.replace(seen.status, conditions=(Condition("Ready", "True"),))
    metadata = msgspec.structs.replace(seen.metadata, labels=labels)
    return msgspec.structs.replace(seen, metadata=metadata, status=status)


def live(*, nodes: Mapping[str, Any] | None = NODES) -> Live:
    return Live(pods=tuple(map(worker_pod, range(3))), nodes=nodes, jobs=JOBS if nodes else (), now=NOW)


def change(spec: dict[str, Any], *, at: Live | None = None) -> list[Effect]:
    before, after = (clusters_with(it).by_name["demo"] for it in (cluster(), cluster(**spec)))
    return list(effects(before, after, at or live()))


def only(spec: dict[str, Any], **more: Any) -> Effect:
    (found,) = change(spec, **more)
    return found


def test_nothing_follows_from_no_change() -> None:
    assert change({}) == []


def test_fewer_workers_are_those_that_cost_least_and_their_jobs_are_named() -> None:
    one = only(worker(size=2))
    assert one.mark == "drain"
    assert one.what == "workers worker: 3 → 2; worker-0 is removed once it has no jobs"
    assert one.nodes == (NodeJobs("worker-0"),)
    two = only(worker(size=1))
    assert [(it.name, it.jobs) for it in two.nodes] == [("worker-0", ()), ("worker-2", (7,))]
    assert two.nodes[1] == NodeJobs("worker-2", (7,), ("ann",), 1600.0)


def test_who_goes_is_not_guessed_while_slurm_is_away() -> None:
    away = only(worker(size=2), at=live(nodes=None))
    assert away.what == "workers worker: 3 → 2; which ones are removed is decided once Slurm answers"


def test_more_workers_disturb_nobody() -> None:
    assert [(it.mark, it.what) for it in change(worker(size=5))] == [("more", "workers worker: 3 → 5")]


def test_workers_of_another_size_are_made_anew_one_after_the_other() -> None:
    found = change(worker(resources={"cpu": "1", "memory": "1Gi"}))
    (drain,) = [it for it in found if it.mark == "drain"]
    assert drain.what == "3 workers of worker are recreated, at most 1 at a time, each once it has no jobs"
    assert [it.jobs for it in drain.nodes] == [(), (7, 8), (7,)]
    assert drain.nodes[1].users == ("ann", "bob")


def test_settings_are_read_without_a_restart() -> None:
    rest, one = change({"customSlurmConfig": "MaxArraySize=2000"})
    assert rest.what == "slurmrestd restarts: clients retry"
    assert (one.mark, one.lines) == ("config", ("+MaxArraySize=2000",))
    assert one.what.startswith("slurm.conf changes; slurmctld and all nodes read it without a restart")


def test_a_new_image_restarts_its_daemon_alone() -> None:
    changed = {"controller": {"slurmctld": {"image": "example/slurm:9"}}, **PLAIN["slurmNodes"]}
    found = only({"slurmNodes": changed})
    assert (found.mark, found.what.partition(":")[0]) == ("restart", "slurmctld restarts")


def test_accounting_that_is_added_is_no_restart_of_jobs() -> None:
    found = change({"slurmNodes": {"accounting": {"enabled": True}, **PLAIN["slurmNodes"]}})
    assert {it.mark for it in found} <= {"more", "config", "restart"}
    assert any("accounting are added" in it.what for it in found)
    assert not [it for it in found if it.mark == "drain"]


def test_a_cluster_that_is_not_there_yet_is_made() -> None:
    (found,) = effects(None, clusters_with(cluster()).by_name["demo"], live())
    assert found.what.startswith("cluster demo is created: slurmctld")
    assert "3 workers of NodeSet worker" in found.what


def test_what_cannot_be_carried_out_is_told() -> None:
    wrong = nodeset("worker", replicas=1)
    assert clusters_with(cluster()).problems == ()
    both = clusters_of({SLURM_CLUSTERS: {"demo": cluster()}, NEBIUS_NODESETS: {"worker": wrong}}, settings=SETTINGS)
    assert "already have this name" in both.problems[0]


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({"type": "OnDelete"}, "only when they are deleted"),
        ({"type": "ScheduledUpdate", "scheduledUpdate": {"startTime": "2026-12-01T02:00:00Z"}}, "2026-12-01T02:00"),
        ({"rollingUpdate": {"maxUnavailable": 2}}, "at most 2 at a time"),
    ],
)
def test_the_strategy_of_a_nodeset_says_when(strategy: dict[str, Any], said: str) -> None:
    def of(**spec: Any) -> Clusters:
        manifest = {"metadata": {"name": "worker", "namespace": "hpc", "uid": "w"}, "spec": {"replicas": 3, **spec}}
        controllers = clusters_with(cluster()).by_name["demo"].controller
        objects = {NODESETS: {"worker": msgspec.convert(manifest, NodeSet)}}
        return clusters_of({**objects, CONTROLLERS: {"demo": controllers}}, settings=SETTINGS)

    before, after = of().by_name["demo"], of(updateStrategy=strategy, slurmd={"image": "x"}).by_name["demo"]
    (found,) = [it for it in effects(before, after, live()) if "recreated" in it.what]
    assert said in found.what

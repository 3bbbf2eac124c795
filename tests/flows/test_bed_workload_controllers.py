"""The controllers of JobSet and LeaderWorkerSet really work on a control plane without nodes."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.bed.api import Api
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.waiting import eventually
from tests.bed.workload_controllers import WorkloadControllers, wait_until_ready

_POD = {"containers": [{"name": "main", "image": "none"}]}


@pytest.fixture
def api(workload_controllers: ControlPlaneBed) -> Iterator[Api]:
    with closing(Api(workload_controllers.kubeconfig)) as api:
        yield api


def pods(api: Api, selector: str) -> list[Any]:
    listed: list[Any] = api.get("pods", "default", selector=selector)["items"]
    return listed


def apply(
    bed: ControlPlaneBed, version: str, kind: str, name: str, spec: Mapping[str, object]
) -> Callable[[], str]:
    document = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    bed.kubectl("apply", "--filename=-", stdin=json.dumps(document))
    group, _, number = version.partition("/")
    # In full: Kubernetes has a PodGroup of its own, too.
    return lambda: bed.kubectl("delete", f"{kind}.{number}.{group}", name)


def test_a_jobset_becomes_indexed_pods_that_know_it(workload_controllers: ControlPlaneBed, api: Api) -> None:
    bed, mine = workload_controllers, "jobset.sigs.k8s.io/jobset-name=tried"
    job = {"parallelism": 2, "completions": 2, "template": {"spec": {**_POD, "restartPolicy": "Never"}}}
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": job}}]}
    delete = apply(bed, "jobset.x-k8s.io/v1alpha2", "JobSet", "tried", spec)
    eventually(lambda: len(pods(api, mine)) == 4, "2 jobs of 2 pods")
    delete()
    eventually(lambda: not pods(api, mine), "the pods to go with their JobSet")


def test_a_leaderworkerset_becomes_groups_of_leader_and_worker(
    workload_controllers: ControlPlaneBed, api: Api
) -> None:
    bed, mine = workload_controllers, "leaderworkerset.sigs.k8s.io/name=tried"
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": _POD}}}
    delete = apply(bed, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "tried", spec)
    eventually(lambda: len(pods(api, mine)) == 4, "2 groups of 2 pods")
    labels = [pod["metadata"]["labels"] for pod in pods(api, mine)]
    places = {(each["leaderworkerset.sigs.k8s.io/group-index"], _index(each)) for each in labels}
    assert places == {("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")}
    assert len({each["leaderworkerset.sigs.k8s.io/group-key"] for each in labels}) == 2
    delete()
    eventually(lambda: not pods(api, mine), "the pods to go with their LeaderWorkerSet")


def _index(labels: dict[str, str]) -> str:
    return labels["leaderworkerset.sigs.k8s.io/worker-index"]


def test_the_podgroup_kind_is_served(workload_controllers: ControlPlaneBed) -> None:
    delete = apply(workload_controllers, "scheduling.x-k8s.io/v1alpha1", "PodGroup", "tried", {"minMember": 2})
    assert (
        workload_controllers.kubectl(
            "get", "podgroups.scheduling.x-k8s.io", "tried", "-o", "jsonpath={.spec.minMember}"
        )
        == "2"
    )
    delete()


@pytest.mark.usefixtures("control_plane")
def test_control_planes_may_run_side_by_side_with_more_watches_than_linux_allows() -> None:
    """With the 128 that it allows, the ninth of them has no controllers: "too many open files"."""
    assert int(Path("/proc/sys/fs/inotify/max_user_instances").read_text()) >= 1024


def test_controllers_take_their_webhooks_with_them(own_control_plane: ControlPlaneBed) -> None:
    with WorkloadControllers(own_control_plane, ["jobset"]):
        pass
    spec = {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": {"spec": _POD}}}}]}

    def is_taken() -> bool:
        try:
            apply(own_control_plane, "jobset.x-k8s.io/v1alpha2", "JobSet", "unheeded", spec)
        except subprocess.CalledProcessError:
            return False
        return True

    eventually(is_taken, "the API server to notice that there are no webhooks any more")


def test_a_controller_that_ends_instead_of_serving_is_noticed_at_once(tmp_path: Path) -> None:
    log = tmp_path / "controller.log"
    log.write_text("too many open files\n")
    ended = pytest.raises(RuntimeError, match=r"with 1.*\ntoo many open files")
    with subprocess.Popen(["false"]) as process, ended:
        wait_until_ready("http://127.0.0.1:1/readyz", process, log)

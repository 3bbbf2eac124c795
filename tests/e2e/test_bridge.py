"""The bridge as its users meet it: the chart on a real cluster, real pods on the nodes that Slurm gives.

The workloads are those of `examples/bridge`: more than three workers can take, so that Slurm has a queue, and each
test waits for its own.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse

import msgspec
import pytest

from isthmus import names
from isthmus.domain.kube.podshape import requests_of
from isthmus.model.pod import Pod as ApiPod
from tests.bed.bridge_ground import PARTITION, BridgeGround
from tests.bed.commands import CommandError
from tests.bed.waiting import eventually
from tests.e2e.bridge import EXAMPLES, Bridge, Pod, installed, job_id, soon

NAMESPACE = "slurm-bridge"

# What to wait for, how many pods there are then, and how many Slurm jobs.
FINITE = {
    "pod": ("pod/hello", "jsonpath={.status.phase}=Succeeded", 1, 1),
    "job": ("job/sweep", "condition=Complete", 3, 3),
    "jobset": ("jobset/train", "condition=Completed", 2, 1),
    "podgroup": ("job/ring", "condition=Complete", 2, 1),
    "workload": ("job/simulation", "condition=Complete", 2, 1),
}
LASTING = {
    "deployment": ("deployment/web", "jsonpath={.status.readyReplicas}=2", 2, 2),
    "statefulset": ("statefulset/store", "jsonpath={.status.readyReplicas}=2", 2, 2),
    "leaderworkerset": ("lws/serve", "condition=Available", 4, 2),
}
KINDS = {**FINITE, **LASTING}


@pytest.fixture(scope="module")
def bridge(bridge_ground: BridgeGround) -> Iterator[Bridge]:
    """The bridge, with all workers as external nodes."""
    workers = bridge_ground.cluster.workers
    bridge_ground.kubectl("label", "node", *workers, f"{names.EXTERNAL_NODE_LABEL}=")
    helper = ("completer.enabled=true", f"completer.slurmctld={{slurmctld.{bridge_ground.namespace}}}")
    with installed(bridge_ground, NAMESPACE, *helper, "web.enabled=true") as bridge:
        eventually(
            bridge.external_nodes, "the workers to be nodes of Slurm", holds=lambda it: len(it) == len(workers)
        )
        yield bridge


@pytest.fixture(scope="module")
def workloads(bridge: Bridge) -> Bridge:
    """All examples. Those that end begin first: the JobSet wants two whole nodes, of which those that last would
    leave it none, and Slurm lets them begin before it when it waits for long."""

    def jobs(state: str) -> set[str]:
        return set(bridge.queue(f"--states={state}", "--format=%i"))

    before = jobs("all")
    _apply(bridge, FINITE)
    expected = sum(jobs for *_, jobs in FINITE.values())
    eventually(lambda: jobs("all") - before, f"{expected} jobs", holds=lambda it: len(it) >= expected)
    eventually(lambda: jobs("PENDING"), "all of them to begin", holds=lambda it: not it)
    _apply(bridge, LASTING)
    return bridge


def _apply(bridge: Bridge, kinds: Iterable[str]) -> None:
    bridge.kubectl("apply", *(f"--filename={EXAMPLES / kind}.yaml" for kind in kinds))


@pytest.fixture
def viewer(bridge: Bridge) -> Iterator[str]:
    """The token of somebody who may look at everything on the page."""
    bridge.kubectl("create", "serviceaccount", "viewer")
    who = f"--serviceaccount={NAMESPACE}:viewer"
    bridge.kubectl("create", "clusterrolebinding", "viewer", "--clusterrole=isthmus-web-viewer", who)
    yield bridge.kubectl("create", "token", "viewer").strip()
    bridge.kubectl("delete", "clusterrolebinding/viewer", "serviceaccount/viewer")


@pytest.fixture
def quiet(bridge: Bridge) -> Bridge:
    """The bridge without anything to do; whoever comes next, or `installed`, clears up after the test."""
    bridge.clear()
    return bridge


def test_workers_are_nodes_of_slurm_as_large_as_what_others_leave(bridge: Bridge) -> None:
    """The bridge's own pods, Slurm's daemons and DNS hold something of each."""
    for name in bridge.workers:
        has = bridge.ground.cluster.get(f"node/{name}")["status"]["allocatable"]
        held = _held(bridge, name)
        # Made anew as long as pods come, the bridge's own among them.
        shown = soon(
            lambda: bridge.external_nodes().get(name, {}),  # noqa: B023 - now
            f"{name} to have {has['cpu']} CPUs less {held['cpu']} thousandths",
            holds=lambda it: it.get("cpus") == (int(has["cpu"]) * 1000 - held["cpu"]) // 1000,  # noqa: B023 - now
        )
        left = (int(has["memory"].removesuffix("Ki")) - held["memory"] // 1024) // 1024
        assert left - left // 50 <= shown["real_memory"] <= left
        assert "EXTERNAL" in shown["state"]
    assert any(_held(bridge, name)["cpu"] for name in bridge.workers), "there is nothing but Slurm's pods"
    # Also beside the nodes on which slurmd runs, Slurm has no CPU twice.
    for name in ("slurmd-0", "slurmd-1"):
        (shown,) = json.loads(bridge.slurm("scontrol", "show", "node", name, "--json"))["nodes"]
        machine = bridge.ground.kubernetes_node(name)
        has = int(bridge.ground.cluster.get(f"node/{machine}")["status"]["allocatable"]["cpu"])
        assert shown["cpus"] + bridge.external_nodes()[machine]["cpus"] <= has


def _held(bridge: Bridge, node: str) -> Counter[str]:
    """What the pods on a node request that are there now; none of them is Slurm's."""
    pods = msgspec.convert(
        json.loads(bridge.ground.kubectl("get", "pods", "--all-namespaces", "-o", "json"))["items"], list[ApiPod]
    )
    found: Counter[str] = Counter()
    for pod in pods:
        if pod.spec.node_name == node and not pod.finished:
            found.update(requests_of(pod))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_slurm_places(workloads: Bridge, kind: str) -> None:
    target, condition, size, jobs = KINDS[kind]
    workloads.kubectl("wait", f"--for={condition}", target, "--timeout=240s")
    eventually(
        lambda: _placed(workloads, target),
        f"{size} pods of {target} to have a node",
        holds=lambda it: len(it) == size,
    )
    members = [pod for pod in workloads.pods() if _belongs(pod, target.partition("/")[2])]
    assert len(members) == size
    assert len({job_id(pod) for pod in members}) == jobs
    for pod in members:
        node, annotations = pod["spec"]["nodeName"], pod["metadata"]["annotations"]
        assert annotations[names.POD_JOB_ANNOTATION] == job_id(pod)
        assert annotations[names.POD_NODE_ANNOTATION] == annotations[names.POD_SLURM_NODE_ANNOTATION] == node
        # slurmdbd hears of a job later than its pods do.
        soon(
            lambda: _nodes(workloads, pod),  # noqa: B023 - now
            f"job {job_id(pod)} to be accounted for on {node}",
            holds=lambda it: node in it,  # noqa: B023 - now
        )
        assert workloads.account(job_id(pod))["partition"] == PARTITION
    if kind in FINITE:
        soon(
            lambda: [workloads.account(job_id(pod)) for pod in members],
            "accounting to tell of success",
            holds=lambda it: all(_ended_well(job) for job in it),
        )
    else:
        running = {line.strip() for line in workloads.queue("--states=RUNNING", "--Format=JobID")}
        assert {job_id(pod) for pod in members} <= running
    workloads.kubectl("delete", f"--filename={EXAMPLES / kind}.yaml", "--wait=false")


def _belongs(pod: Pod, name: str) -> bool:
    return f"{pod['metadata']['name']}-".startswith(f"{name}-")


def _placed(bridge: Bridge, target: str) -> list[Pod]:
    """The pods of a workload that have a node: some get theirs after the workload says that it is there."""
    name = target.partition("/")[2]
    return [pod for pod in bridge.pods() if _belongs(pod, name) and "nodeName" in pod["spec"]]


def _nodes(bridge: Bridge, pod: Pod) -> list[str]:
    """The nodes of a pod's job, as accounting has them."""
    told = bridge.account(job_id(pod))["nodelist"]
    return bridge.slurm("scontrol", "show", "hostnames", told).split() if told else []


def _ended_well(job: dict[str, str]) -> bool:
    return (job["state"], job["exitcode"]) == ("COMPLETED", "0:0") and "Succeeded" in job["comment"]


def test_a_podgroup_that_was_made_anew_is_another_gang(quiet: Bridge) -> None:
    example = f"--filename={EXAMPLES / 'podgroup'}.yaml"
    for _ in range(2):
        quiet.kubectl("apply", example)
        uid = quiet.kubectl("get", "podgroups.scheduling.x-k8s.io", "ring", "-o", "jsonpath={.metadata.uid}")
        quiet.kubectl("wait", "--for=condition=Complete", "job/ring", "--timeout=180s")
        (job,) = {job_id(pod) for pod in quiet.pods()}
        (shown,) = json.loads(quiet.slurm("scontrol", "show", "job", job, "--json"))["jobs"]
        assert json.loads(shown["admin_comment"])["uid"] == uid
        quiet.kubectl("delete", example, "--timeout=180s")
        eventually(quiet.pods, "the pods to follow their Job", holds=lambda it: not it)


def test_pods_wait_for_native_jobs_and_native_jobs_for_pods(quiet: Bridge) -> None:
    native = quiet.slurm("sbatch", "--parsable", "--wrap=sleep 300").strip()
    quiet.run("after", command="true", dependency=f"afterany:{native}")
    quiet.waits("after", "Dependency")
    assert "… queue" in quiet.isthmus("explain", "pod/after", "--namespace", NAMESPACE)
    quiet.slurm("scancel", native)
    quiet.running("after", phase="Succeeded")
    quiet.run("before")
    first = job_id(quiet.running("before"))
    second = quiet.slurm("sbatch", "--parsable", f"--dependency=afterany:{first}", "--wrap=true").strip()
    quiet.kubectl("delete", "pod", "before")
    quiet.accounted(second, "COMPLETED")


def test_a_pod_waits_while_the_nodes_are_full_and_says_so(quiet: Bridge) -> None:
    whole = [f"whole-{number}" for number, _ in enumerate(quiet.workers)]
    for name in whole:
        quiet.run(name, exclusive="true")
    assert {quiet.running(name)["spec"]["nodeName"] for name in whole} == set(quiet.workers)
    quiet.run("late")
    quiet.waits("late", "Resources")
    status = quiet.isthmus("bridge", "status")
    assert f"{len(whole)} have a node, 1 wait" in status
    assert f"isthmus explain pod/late -n {NAMESPACE}" in status
    assert "release 26.05" in status
    quiet.kubectl("delete", "pod", whole[1])
    quiet.running("late")
    shown = quiet.isthmus("explain", "pod/late", "--namespace", NAMESPACE)
    assert "✓ running" in shown
    assert "…" not in shown


def test_scancel_evicts_the_pod_and_says_why(quiet: Bridge) -> None:
    quiet.run("cancelled")
    job = job_id(quiet.running("cancelled"))
    quiet.slurm("scancel", job)
    quiet.gone("cancelled")
    soon(
        lambda: [it["message"] for it in quiet.objects("events") if it["involvedObject"]["name"] == "cancelled"],
        "an Event that says why",
        holds=lambda it: any(f"Slurm job {job} was cancelled" in message for message in it),
    )


def test_a_deleted_and_a_failed_pod_free_their_jobs_and_accounting_tells(quiet: Bridge) -> None:
    quiet.run("deleted")
    quiet.run("failed", command="false")
    deleted = job_id(quiet.running("deleted"))
    failed = job_id(quiet.running("failed", phase="Failed"))
    quiet.kubectl("delete", "pod", "deleted")
    soon(quiet.queue, "both jobs to end", holds=lambda it: not it)
    for job, outcome in ((deleted, "deleted: deleted"), (failed, "failed: Failed")):
        soon(
            lambda: quiet.account(job)["comment"],  # noqa: B023 - now
            f"the outcome {outcome}",
            holds=lambda it: f"{NAMESPACE}/{outcome}" in it,  # noqa: B023 - now
        )
    quiet.accounted(deleted, "CANCELLED")
    quiet.accounted(failed, "FAILED")
    assert quiet.account(failed)["exitcode"] == "1:0"


def test_a_cordoned_node_is_drained_and_a_drained_one_cordoned(quiet: Bridge) -> None:
    node, other, *_ = quiet.workers

    def state(name: str) -> str:
        return quiet.slurm("sinfo", "--noheader", f"--nodes={name}", "--format=%T %E").splitlines()[0]

    def unschedulable(name: str) -> bool:
        return bool(quiet.ground.cluster.get(f"node/{name}")["spec"].get("unschedulable"))

    quiet.kubectl("cordon", node)
    quiet.slurm("scontrol", "update", f"nodename={other}", "state=drain", "reason=new disks")
    soon(
        lambda: state(node),
        "the cordoned node to be drained",
        holds=lambda it: "drained" in it and "slurm-bridge" in it,
    )
    soon(lambda: unschedulable(other), "the drained node to be cordoned")
    quiet.run("elsewhere")
    assert quiet.running("elsewhere")["spec"]["nodeName"] not in {node, other}
    quiet.kubectl("uncordon", node)
    quiet.slurm("scontrol", "update", f"nodename={other}", "state=resume")
    soon(lambda: state(node), "the first node to be used again", holds=lambda it: it.startswith("idle"))
    soon(lambda: unschedulable(other), "the second node to be used again", holds=lambda it: not it)


def test_the_page_says_which_job_a_pod_has_and_shows_its_log(quiet: Bridge, viewer: str) -> None:
    quiet.run("seen", command="sh -c 'echo said; exec sleep infinity'")
    job = job_id(quiet.running("seen"))
    there = f"--namespace={quiet.ground.namespace}"
    address = quiet.ground.kubectl("get", "service", "slurm-bridge-web", there, "-o", "jsonpath={.spec.clusterIP}")
    log, why = f"/api/log/pod/{NAMESPACE}/seen", f"/api/why/pod/{NAMESPACE}/seen"

    @contextmanager
    def ask(path: str, *, body: str | None = None, cookie: str = "") -> Iterator[HTTPResponse]:
        headers = {"Cookie": cookie, "Content-Type": "application/json"}
        with closing(HTTPConnection(address, timeout=30)) as page:
            page.request("POST" if body else "GET", path, body, headers)
            with page.getresponse() as answer:
                yield answer

    def reasons() -> str:
        with ask(why, cookie=cookie) as answer:
            return answer.read().decode()

    with ask(log) as refused:
        assert refused.status == HTTPStatus.UNAUTHORIZED
    with ask("/api/login", body=json.dumps({"token": viewer})) as entered:
        cookie = entered.headers["Set-Cookie"].partition(";")[0]
    soon(reasons, f"the page to know of job {job}", holds=lambda it: job in it)
    with ask(log, cookie=cookie) as shown:
        assert shown.readline() == b"said\n"


def test_bad_annotations_are_refused_when_they_are_applied(bridge: Bridge) -> None:
    with pytest.raises(CommandError) as told:
        bridge.run("bad", timelimit="soon")
    assert "slurmjob.slinky.slurm.net/timelimit is 'soon', expected minutes above 0" in str(told.value)


@pytest.mark.parametrize("lease", [names.SCHEDULER_NAME, names.CONTROLLERS_LEASE], ids=["scheduler", "controllers"])
def test_a_standby_takes_over(quiet: Bridge, lease: str) -> None:
    there = f"--namespace={quiet.ground.namespace}"

    def leader() -> str:
        found = quiet.ground.cluster.get(f"lease/{lease}", quiet.ground.namespace)["spec"].get("holderIdentity", "")
        return str(found).partition("_")[0]

    quiet.run("before")
    job = job_id(quiet.running("before"))
    gone = eventually(leader, "somebody to lead")
    quiet.ground.kubectl("delete", "pod", there, gone, "--grace-period=0", "--force")
    quiet.run("after")
    quiet.kubectl("delete", "pod", "before", "--wait=false")
    after = job_id(quiet.running("after"))
    quiet.accounted(job, "CANCELLED")
    eventually(leader, "the standby to lead", holds=lambda it: it not in {"", gone})
    assert quiet.queue("--states=PENDING,RUNNING", "--format=%i") == [after]

"""slurmctld in pods: configuration, keys, crashes and standbys, under running jobs; on every version.

One thing holds in every test: a job that was running or queued is still there, and ends by itself.
"""

import os
import secrets as dice
import statistics
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import pytest

from tests.bed.operator_ground import OperatorGround
from tests.bed.waiting import PATIENCE
from tests.e2e.operator_parts import KEYS, OF_SLURM, SMALL, keys, part, secret
from tests.e2e.site import Site

STANDBY = "slurm-controller-1"
CONTROLLER = "controller/slurm"

EXTRA = "AuthInfo=cred_expire=10"
"""Else an old key is accepted for two minutes after its last use: as long as credentials of jobs live."""

VERSIONS = os.environ.get("ISTHMUS_SLURM_VERSIONS", "26.05").split(",")
"""Of Slurm. `make soak` takes both; the flows try the same scripts on both each time."""


AWAY_SECONDS = int(os.environ.get("ISTHMUS_AWAY_SECONDS", "0"))
"""For how long the first slurmctld is kept away. `make soak` takes five minutes."""


def state(site: Site, job: str) -> str:
    return site.job(job)["JobState"]


def states_of(site: Site, *jobs: str, where: str = "") -> list[str]:
    """The states of jobs by one question."""
    told = site.run("squeue", "-h", "-tall", "-j", ",".join(jobs), "-o%i %T", where=where).split()
    found = dict(zip(told[::2], told[1::2], strict=True))
    return [found.get(job, "") for job in jobs]


def works_again(site: Site, *, where: str = "") -> str:
    """Wait until commands work, of which nothing is known but that they did not; a job that was taken then."""
    words = ("sbatch", "--parsable", "--hold", "--wrap=true")
    # Slurm by itself waits two minutes for a standby.
    return site.eventually(lambda: site.run(*words, where=where), "commands to work again", within=60).strip()


def saved(site: Site) -> None:
    """Wait for slurmctld to write down its jobs, which it does some seconds after it took the latest."""
    latest = f"latest-{dice.token_hex(8)}"
    site.submit("true", "--hold", f"--job-name={latest}")
    written = ("grep", "--count", latest, "/var/spool/slurmctld/job_state")
    site.eventually(lambda: site.run(*written), "jobs to be saved")


def applied(site: Site, generation: int = 0) -> None:
    """Wait until every daemon runs with the configuration of this generation or a later one."""
    site.eventually(
        lambda: site.condition(CONTROLLER, "ConfigApplied"),
        "every daemon to run with the configuration",
        holds=lambda it: it["status"] == "True" and int(it.get("observedGeneration", 0)) >= generation,
    )


def configure(site: Site, extra: str) -> int:
    """Change slurm.conf; the generation of that."""
    site.patch(CONTROLLER, {"spec": {"extraConf": f"{EXTRA}\n{extra}"}})
    return int(site.get(CONTROLLER)["metadata"]["generation"])


def setting(site: Site, key: str) -> str:
    shown = site.run("scontrol", "show", "config").splitlines()
    return next(line.partition("=")[2].strip() for line in shown if line.split("=")[0].strip() == key)


def told(site: Site, reason: str, *, within: float = PATIENCE) -> None:
    """Wait for an Event with this reason."""
    site.eventually(
        lambda: [it["reason"] for it in site.get("events")["items"]],
        f"an Event {reason}",
        holds=lambda it: reason in it,
        within=within,
    )


def runs_jobs(site: Site, *, where: str = "") -> None:
    assert site.run("srun", "--mem=10", "hostname", where=where).strip() in {"w-0", "w-1"}


def build(ground: OperatorGround, namespace: str, *, version: str, **spec: Any) -> Site:
    """Make a cluster of two workers, and wait until its nodes are there."""
    image = {"image": f"isthmus.local/slurm:{version}"}
    site = Site(ground, namespace)
    site.apply(
        *keys(),
        part("Controller", "slurm", **KEYS, slurmctld=image, extraConf=EXTRA, **spec),
        part("RestApi", "slurm", **OF_SLURM, slurmrestd=image),
        part("NodeSet", "w", **OF_SLURM, replicas=2, slurmd=image | {"resources": SMALL}, oversubscribeNode=True),
    )
    site.ready(CONTROLLER, "nodeset.slinky.slurm.net/w")
    applied(site)
    return site


@pytest.fixture(scope="module", params=VERSIONS)
def site(request: pytest.FixtureRequest, operator_ground: OperatorGround) -> Iterator[Site]:
    with operator_ground.namespace(f"controller-{request.param.replace('.', '')}") as namespace:
        yield build(operator_ground, namespace, version=request.param)


def test_a_changed_setting_reaches_every_node_and_restarts_no_pod(site: Site) -> None:
    job = site.submit("sleep 600", "--mem=10")
    site.until(job, "RUNNING")
    before = site.uid(site.slurmctld)
    applied(site, configure(site, "KillWait=37"))
    assert setting(site, "KillWait") == "37 sec"
    for node in ("w-0", "w-1"):
        assert "KillWait=37" in site.exec(node, "cat", "/run/slurm/conf/slurm.conf")
    assert site.uid(site.slurmctld) == before
    assert state(site, job) == "RUNNING"
    site.run("scancel", job)


def test_a_bad_setting_is_told_with_its_reason_and_the_cluster_goes_on(site: Site) -> None:
    job = site.submit("sleep 600", "--mem=10")
    site.until(job, "RUNNING")
    configure(site, "PartitionName=bad Nodes=nowhere")
    refused = site.eventually(
        lambda: site.condition(CONTROLLER, "ConfigApplied"),
        "the refusal",
        holds=lambda it: it["reason"] == "Rejected",
    )
    assert "Invalid node names in partition bad" in refused["message"]
    assert site.condition(CONTROLLER, "Ready")["status"] == "False"
    told(site, "ConfigRejected")
    assert state(site, job) == "RUNNING"
    runs_jobs(site)
    applied(site, configure(site, "KillWait=38"))
    site.ready(CONTROLLER)
    assert setting(site, "KillWait") == "38 sec"
    site.run("scancel", job)


def test_a_killed_slurmctld_is_back_within_seconds_with_all_jobs(site: Site) -> None:
    running, queued = site.submit("sleep 600", "--mem=10"), site.submit("sleep 600", "--hold")
    site.until(running, "RUNNING")
    saved(site)
    site.run("pkill", "-KILL", "-x", "slurmctld(-wlm)?")
    works_again(site)
    assert (state(site, running), state(site, queued)) == ("RUNNING", "PENDING")
    site.run("scancel", "--user=root")


def test_a_deleted_pod_comes_back_with_all_jobs(site: Site) -> None:
    running = site.submit("sleep 600", "--mem=10")
    site.until(running, "RUNNING")
    latest = site.submit("sleep 600", "--hold")
    before = site.uid(site.slurmctld)
    site.kubectl("delete", "pod", site.slurmctld)
    site.eventually(lambda: site.run("scontrol", "ping"), "slurmctld to be back")
    assert site.uid(site.slurmctld) != before
    assert (state(site, running), state(site, latest)) == ("RUNNING", "PENDING")
    runs_jobs(site)  # nodes find it under its new address, and it finds them
    site.run("scancel", "--user=root")


@pytest.mark.timeout(1200)
def test_a_key_is_changed_under_a_running_job(site: Site) -> None:
    script = "while [ ! -e /tmp/finish ]; do sleep 0.2; done; srun true; exit 3"
    job = site.submit(script, "--mem=10", "--nodelist=w-0")
    site.until(job, "RUNNING")
    site.apply(secret("slurm-key", slurm_key=dice.token_bytes(512)))
    for step in ("KeyAnnounced", "KeySwitched", "KeyRetired"):
        told(site, step, within=240)
        assert state(site, job) == "RUNNING"
        runs_jobs(site)
    applied(site)  # every daemon uses the new key alone
    site.eventually(
        site.states, "every node to respond", holds=lambda it: not any("*" in one for one in it.values())
    )
    site.exec("w-0", "touch", "/tmp/finish")  # noqa: S108 - in the pod
    ended = site.ended(job)
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", "3:0")


def test_a_changed_key_of_tokens_is_taken_without_a_restart(site: Site) -> None:
    def revision() -> str:
        return str(site.get(CONTROLLER)["status"]["configHash"])

    before, keys_before = site.uid(site.slurmctld), revision()
    site.apply(secret("jwt-key", jwt_key=dice.token_bytes(32)))
    # It names files and keys that every daemon runs with.
    site.eventually(revision, "every daemon to have the new key", holds=lambda it: it != keys_before)
    site.eventually(
        lambda: site.condition(CONTROLLER, "SlurmReachable"),
        "Slurm to be reached with the new key",
        holds=lambda it: it["status"] == "True",
    )
    applied(site)
    assert site.uid(site.slurmctld) == before


# A standby

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: state}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: shared
  resources: {requests: {storage: 1Gi}}
"""


@pytest.fixture(scope="module", params=VERSIONS)
def pair(request: pytest.FixtureRequest, operator_ground: OperatorGround) -> Iterator[Site]:
    with operator_ground.namespace(f"standby-{request.param.replace('.', '')}") as namespace:
        operator_ground.apply(CLAIM, namespace)
        yield build(
            operator_ground,
            namespace,
            version=request.param,
            ha={"enabled": True},
            persistence={"enabled": True, "existingClaim": "state"},
        )


def active(site: Site, pod: str) -> None:
    """Wait until the status names who is in charge."""
    site.eventually(
        lambda: site.get(CONTROLLER)["status"].get("active"),
        f"the status to name {pod}",
        holds=lambda it: it == pod,
    )


AFTER_TAKE_OVER_S: Final = 10.0
"""Within so many seconds after a standby is in charge, everything works."""


def in_charge(site: Site, pod: str, *, after: float) -> float:
    """Wait until a slurmctld says that it is in charge; when that was."""

    def look() -> list[float]:
        log = site.kubectl("logs", pod, "--container=slurmctld", "--timestamps").splitlines()
        told = (line.partition(" ")[0] for line in log if "Running as primary controller" in line)
        return [it for it in (datetime.fromisoformat(when).timestamp() for when in told) if it > after]

    return site.eventually(look, f"{pod} to be in charge", within=60)[0]


_PACE = r"""
measure() {
    local begun=${EPOCHREALTIME/./}
    "$@" > /dev/null || exit
    echo "$1 $((${EPOCHREALTIME/./} - begun))"
}
for _ in {1..5}; do
    measure squeue
    measure sbatch --hold --output=/dev/null --chdir=/tmp --wrap=true
    measure srun --mem=10 true
done
"""


def pace(site: Site) -> dict[str, float]:
    """How many seconds commands take on a worker, in the middle of five."""
    taken: dict[str, list[float]] = {}
    for line in site.exec("w-0", "bash", "-c", _PACE).splitlines():
        command, microseconds = line.split()
        taken.setdefault(command, []).append(int(microseconds) / 1e6)
    return {command: statistics.median(it) for command, it in taken.items()}


_WAITS = r"""
timeout 60 srun --hold --mem=10 hostname &
until id=$(squeue -h -t PD -n hostname -o %i) && [[ -n $id ]]; do sleep 0.1; done
scontrol release "$id"
wait $!
"""
"""Of an srun that has to wait for its nodes, and is told of them later."""


@pytest.mark.timeout(300 + 2 * AWAY_SECONDS)
def test_a_standby_takes_over_with_all_jobs_and_gives_back(pair: Site) -> None:
    ground = pair.ground
    running, queued = pair.submit("sleep 600", "--mem=10"), pair.submit("sleep 600", "--hold")
    pair.until(running, "RUNNING")
    usual = pace(pair)
    saved(pair)
    stays = pair.node_of(STANDBY)
    others = [node for node in ground.cluster.workers if node != stays]
    # Not by a cordon, for which workers are drained.
    for node in others:
        ground.kubectl("taint", "node", node, "tried=away:NoSchedule")
    try:
        # It has no node to come back to, so the other has to take over.
        begun = time.time()
        pair.kubectl("delete", "pod", pair.slurmctld, "--force", "--grace-period=0")
        since = in_charge(pair, STANDBY, after=begun)
        late = works_again(pair, where="w-0")
        runs_jobs(pair, where="w-0")
        assert states_of(pair, running, queued, late, where="w-0") == ["RUNNING", "PENDING", "PENDING"]
        active(pair, STANDBY)  # which the operator hears from slurmrestd
        assert pair.condition(CONTROLLER, "SlurmReachable")["status"] == "True"
        assert time.time() - since <= AFTER_TAKE_OVER_S
        away_until = time.monotonic() + AWAY_SECONDS
        while True:
            # However often others ask: see `refusing` in the manifests of slurmctld.
            pair.eventually(
                lambda: pace(pair),
                f"commands to take no more than half as long again as {usual}",
                holds=lambda now: all(now[it] <= 1.5 * usual[it] for it in usual),
            )
            assert pair.condition(CONTROLLER, "SlurmReachable")["status"] == "True"
            if time.monotonic() >= away_until:
                break
    finally:
        for node in others:
            ground.kubectl("taint", "node", node, "tried:NoSchedule-")
    pair.eventually(lambda: pair.run("scontrol", "ping"), "the first to be back")
    active(pair, pair.slurmctld)
    pair.ready(CONTROLLER)
    assert states_of(pair, running, queued, late) == ["RUNNING", "PENDING", "PENDING"]
    for where in (pair.slurmctld, STANDBY):
        assert pair.run("bash", "-c", _WAITS, where=where).strip() in {"w-0", "w-1"}
    pair.run("scancel", "--user=root")
    log = pair.kubectl("logs", STANDBY, "--container=slurmctld")
    assert log
    assert "Old state possible" not in log

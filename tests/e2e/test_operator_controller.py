"""slurmctld in pods: configuration, keys, crashes and standbys, under running jobs; on every version.

One thing holds in every test: a job that was running or queued is still there, and ends by itself.
"""

import os
import secrets as dice
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.bed.operator_ground import OperatorGround
from tests.e2e.operator_parts import KEYS, OF_SLURM, SMALL, apply, keys, part, patch, secret, uid

SLURMCTLD = "slurm-controller-0"
STANDBY = "slurm-controller-1"
CONTROLLER = "controller/slurm"

EXTRA = "AuthInfo=cred_expire=10"
"""Else an old key is accepted for two minutes after its last use: as long as credentials of jobs live."""

VERSIONS = os.environ.get("ISTHMUS_SLURM_VERSIONS", "26.05").split(",")
"""Of Slurm. `make soak` takes both; the flows try the same scripts on both each time."""


@dataclass(frozen=True)
class Site:
    """A cluster of two workers."""

    ground: OperatorGround
    namespace: str

    def run(self, *words: str, where: str = SLURMCTLD) -> str:
        """Run a command of Slurm in a pod."""
        return self.ground.exec(where, *words, namespace=self.namespace)

    def answers(self, *words: str, where: str = SLURMCTLD) -> bool:
        """Whether a command works at this moment."""
        command = ("exec", f"--namespace={self.namespace}", where, "--", *words)
        return self.ground.attempt(*command).returncode == 0

    def submit(self, script: str, *options: str) -> str:
        command = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", *options, f"--wrap={script}")
        return self.run(*command).strip()

    def state(self, job: str, *, where: str = SLURMCTLD) -> str:
        return self.run("squeue", "-h", "-tall", "-j", job, "-o%T", where=where).strip()

    def until(self, job: str, wanted: str) -> None:
        self.ground.eventually(lambda: self.state(job) == wanted, f"job {job} to be {wanted}")

    def saved(self) -> None:
        """Wait for slurmctld to write down its jobs, which it does some seconds after it took the latest."""
        latest = f"latest-{dice.token_hex(8)}"
        self.submit("true", "--hold", f"--job-name={latest}")
        written = ("grep", "--quiet", latest, "/var/spool/slurmctld/job_state")
        self.ground.eventually(lambda: self.answers(*written), "jobs to be saved")

    def condition(self, type_: str) -> dict[str, Any]:
        conditions = self.ground.get(CONTROLLER, self.namespace)["status"].get("conditions", [])
        return next((it for it in conditions if it["type"] == type_), {})

    def applied(self, generation: int = 0) -> bool:
        """Whether every daemon runs with the configuration of this generation or a later one."""
        held = self.condition("ConfigApplied")
        return held.get("status") == "True" and held.get("observedGeneration", 0) >= generation

    def configure(self, extra: str) -> int:
        patch(self.ground, self.namespace, CONTROLLER, {"spec": {"extraConf": f"{EXTRA}\n{extra}"}})
        return int(self.ground.get(CONTROLLER, self.namespace)["metadata"]["generation"])

    def setting(self, key: str) -> str:
        shown = self.run("scontrol", "show", "config").splitlines()
        return next(line.partition("=")[2].strip() for line in shown if line.split("=")[0].strip() == key)

    def events(self) -> str:
        return self.ground.kubectl("get", "events", f"--namespace={self.namespace}", "--output=wide")


def build(ground: OperatorGround, namespace: str, *, version: str, **spec: Any) -> Site:
    """Make a cluster, and wait until its nodes are there."""
    image = {"image": f"isthmus.local/slurm:{version}"}
    apply(
        ground,
        namespace,
        *keys(),
        part("Controller", "slurm", **KEYS, slurmctld=image, extraConf=EXTRA, **spec),
        part("RestApi", "slurm", **OF_SLURM, slurmrestd=image),
        part("NodeSet", "w", **OF_SLURM, replicas=2, slurmd=image | {"resources": SMALL}, oversubscribeNode=True),
    )
    ground.ready(CONTROLLER, namespace)
    ground.ready("nodeset.slinky.slurm.net/w", namespace)
    site = Site(ground, namespace)
    ground.eventually(site.applied, "every daemon to run with the configuration")
    return site


@pytest.fixture(scope="module", params=VERSIONS)
def site(request: pytest.FixtureRequest, operator_ground: OperatorGround) -> Iterator[Site]:
    with operator_ground.namespace(f"controller-{request.param.replace('.', '')}") as namespace:
        yield build(operator_ground, namespace, version=request.param)


def test_a_changed_setting_reaches_every_node_and_restarts_no_pod(site: Site) -> None:
    job = site.submit("sleep 600", "--mem=10")
    site.until(job, "RUNNING")
    before = uid(site.ground, site.namespace, SLURMCTLD)
    generation = site.configure("KillWait=37")
    site.ground.eventually(lambda: site.applied(generation), "the setting to be taken")
    assert site.setting("KillWait") == "37 sec"
    for node in ("w-0", "w-1"):
        assert "KillWait=37" in site.run("cat", "/run/slurm/conf/slurm.conf", where=node)
    assert uid(site.ground, site.namespace, SLURMCTLD) == before
    assert site.state(job) == "RUNNING"
    site.run("scancel", job)


def test_a_bad_setting_is_told_with_its_reason_and_the_cluster_goes_on(site: Site) -> None:
    job = site.submit("sleep 600", "--mem=10")
    site.until(job, "RUNNING")
    site.configure("PartitionName=bad Nodes=nowhere")
    site.ground.eventually(lambda: site.condition("ConfigApplied").get("reason") == "Rejected", "the refusal")
    assert "Invalid node names in partition bad" in site.condition("ConfigApplied")["message"]
    assert site.condition("Ready")["status"] == "False"
    site.ground.eventually(lambda: "ConfigRejected" in site.events(), "an Event of it")
    assert site.state(job) == "RUNNING"
    assert site.run("srun", "--mem=10", "hostname").strip() in {"w-0", "w-1"}
    generation = site.configure("KillWait=38")
    site.ground.eventually(lambda: site.applied(generation), "the corrected setting to be taken")
    site.ground.ready(CONTROLLER, site.namespace)
    assert site.setting("KillWait") == "38 sec"
    site.run("scancel", job)


def test_a_killed_slurmctld_is_back_within_seconds_with_all_jobs(site: Site) -> None:
    running, queued = site.submit("sleep 600", "--mem=10"), site.submit("sleep 600", "--hold")
    site.until(running, "RUNNING")
    site.saved()
    site.run("pkill", "-KILL", "-x", "slurmctld(-wlm)?")
    site.ground.eventually(
        lambda: site.answers("sbatch", "--hold", "--wrap=true"), "commands to work again", within=60
    )
    assert (site.state(running), site.state(queued)) == ("RUNNING", "PENDING")
    site.run("scancel", "--user=root")


def test_a_deleted_pod_comes_back_with_all_jobs(site: Site) -> None:
    running = site.submit("sleep 600", "--mem=10")
    site.until(running, "RUNNING")
    latest = site.submit("sleep 600", "--hold")
    before = uid(site.ground, site.namespace, SLURMCTLD)
    site.ground.kubectl("delete", "pod", SLURMCTLD, f"--namespace={site.namespace}")
    site.ground.eventually(lambda: site.answers("scontrol", "ping"), "slurmctld to be back")
    assert uid(site.ground, site.namespace, SLURMCTLD) != before
    assert (site.state(running), site.state(latest)) == ("RUNNING", "PENDING")
    # Nodes find it under its new address, and it finds them.
    assert site.run("srun", "--mem=10", "hostname").strip() in {"w-0", "w-1"}
    site.run("scancel", "--user=root")


@pytest.mark.timeout(1200)
def test_a_key_is_changed_under_a_running_job(site: Site) -> None:
    script = "while [ ! -e /tmp/finish ]; do sleep 0.2; done; srun true; exit 3"
    job = site.submit(script, "--mem=10", "--nodelist=w-0")
    site.until(job, "RUNNING")
    apply(site.ground, site.namespace, secret("slurm-key", slurm_key=dice.token_bytes(512)))
    for step in ("KeyAnnounced", "KeySwitched", "KeyRetired"):
        site.ground.eventually(lambda wanted=step: wanted in site.events(), step, within=240)  # type: ignore[misc]
        assert site.state(job) == "RUNNING"
        assert site.run("srun", "--mem=10", "hostname").strip() in {"w-0", "w-1"}
    site.ground.eventually(site.applied, "every daemon to use the new key alone")
    site.ground.eventually(lambda: "*" not in site.run("sinfo", "-hN", "-o%T"), "every node to respond")
    site.ground.exec("w-0", "touch", "/tmp/finish", namespace=site.namespace)  # noqa: S108 - in the pod
    site.until(job, "FAILED")
    assert "ExitCode=3:0" in site.run("scontrol", "show", "job", job)


def test_a_changed_key_of_tokens_is_taken_without_a_restart(site: Site) -> None:
    def revision() -> str:
        return str(site.ground.get(CONTROLLER, site.namespace)["status"]["configHash"])

    before, keys_before = uid(site.ground, site.namespace, SLURMCTLD), revision()
    apply(site.ground, site.namespace, secret("jwt-key", jwt_key=dice.token_bytes(32)))
    # It names files and keys that every daemon runs with.
    site.ground.eventually(lambda: revision() != keys_before, "every daemon to have the new key")
    site.ground.eventually(
        lambda: site.condition("SlurmReachable").get("status") == "True" and site.applied(),
        "Slurm to be reached with the new key",
    )
    assert uid(site.ground, site.namespace, SLURMCTLD) == before


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


def test_a_standby_takes_over_with_all_jobs_and_gives_back(pair: Site) -> None:
    ground = pair.ground
    running, queued = pair.submit("sleep 600", "--mem=10"), pair.submit("sleep 600", "--hold")
    pair.until(running, "RUNNING")
    pair.saved()
    stays = ground.get(f"pod/{STANDBY}", pair.namespace)["spec"]["nodeName"]
    others = [node for node in ground.cluster.workers if node != stays]
    for node in others:
        ground.kubectl("cordon", node)
    try:
        # It has no node to come back to, so the other has to take over.
        ground.kubectl("delete", "pod", SLURMCTLD, f"--namespace={pair.namespace}", "--force", "--grace-period=0")
        ground.eventually(
            lambda: pair.answers("sbatch", "--hold", "--wrap=true", where=STANDBY),
            "commands to work again",
            within=60,  # Slurm by itself waits two minutes
        )
        assert pair.state(running, where=STANDBY) == "RUNNING"
        assert pair.state(queued, where=STANDBY) == "PENDING"
        ground.eventually(
            lambda: ground.get(CONTROLLER, pair.namespace)["status"]["active"] == STANDBY,
            "the status to name the standby",
        )
        late = pair.run("sbatch", "--parsable", "--hold", "--wrap=true", where=STANDBY).strip()
    finally:
        for node in others:
            ground.kubectl("uncordon", node)
    ground.eventually(lambda: pair.answers("scontrol", "ping"), "the first to be back")
    ground.eventually(
        lambda: ground.get(CONTROLLER, pair.namespace)["status"]["active"] == SLURMCTLD,
        "the status to name the first",
    )
    ground.ready(CONTROLLER, pair.namespace)
    assert (pair.state(running), pair.state(queued), pair.state(late)) == ("RUNNING", "PENDING", "PENDING")
    assert pair.run("srun", "--mem=10", "hostname").strip() in {"w-0", "w-1"}
    log = ground.kubectl("logs", f"--namespace={pair.namespace}", STANDBY, "--container=slurmctld")
    assert "Old state possible" not in log

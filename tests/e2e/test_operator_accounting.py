"""Accounting, REST and tokens end to end: real slurmdbd, MariaDB and slurmrestd in pods."""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.bed.operator_ground import OperatorGround
from tests.e2e.operator_parts import KEYS, OF_SLURM, SMALL, apply, keys, part, patch, uid

NAMESPACE = "accounting-test"
CONTROLLER = "slurm-controller-0"

_ASK = r"""
exec 3<> "/dev/tcp/$1/$2"
printf 'GET %s HTTP/1.0\r\nX-SLURM-USER-TOKEN: %s\r\n\r\n' "$3" "$(cat)" >&3
head -n 1 <&3
"""


@dataclass(frozen=True)
class Site:
    """A cluster with one worker that keeps accounts."""

    ground: OperatorGround

    def run(self, *words: str) -> str:
        """Run a command of Slurm beside slurmctld."""
        return self.ground.exec(CONTROLLER, *words, namespace=NAMESPACE)

    def job(self) -> str:
        """Run a job to its end, as far as slurmctld knows."""
        job = self.run("sbatch", "--parsable", "--output=/dev/null", "--wrap=true").strip()
        self.ground.eventually(
            lambda: "JobState=COMPLETED" in self.run("scontrol", "show", "job", job), f"job {job} to end"
        )
        return job

    def accounted(self) -> dict[str, str]:
        """Every job in the accounts."""
        attempt = self.ground.attempt(
            *(
                "exec",
                CONTROLLER,
                f"--namespace={NAMESPACE}",
                "--",
                "sacct",
                "-anXP",
                "-S",
                "now-1days",
                "-o",
                "jobid,state",
            )
        )
        return dict(line.split("|") for line in attempt.stdout.split())

    def restarted(self, pod: str, before: str) -> bool:
        """Whether there is another pod of that name."""
        found = self.ground.attempt("get", "pod", pod, f"--namespace={NAMESPACE}", "-o", "jsonpath={.metadata.uid}")
        return found.stdout not in {"", before}

    def ask(self, path: str, token: str) -> str:
        """Ask slurmrestd by its Service; the first line of its answer."""
        words = ("exec", "-i", CONTROLLER, f"--namespace={NAMESPACE}", "--", "bash", "-c", _ASK, "ask")
        return self.ground.kubectl(*words, "slurm-restapi", "8080", path, stdin=token)


@pytest.fixture(scope="module")
def site(operator_ground: OperatorGround) -> Iterator[Site]:
    with operator_ground.namespace(NAMESPACE):
        users = [{"name": "alice", "uid": 2001}, {"name": "bob", "uid": 2002}]
        apply(
            operator_ground,
            NAMESPACE,
            *keys(),
            part("Accounting", "slurm", **KEYS),
            part("Controller", "slurm", **KEYS, users=users, accountingRef={"name": "slurm"}, clusterName="books"),
            part("RestApi", "slurm", **OF_SLURM, service={"port": 8080}),
            part("NodeSet", "worker", **OF_SLURM, replicas=1, slurmd={"resources": SMALL}),
            part("Token", "robot", username="slurm", jwtKeyRef=KEYS["jwtKeyRef"], lifetime="1h"),
        )
        for what in ("accounting/slurm", "controller/slurm", "restapi/slurm", "nodeset.slinky.slurm.net/worker"):
            operator_ground.ready(what, NAMESPACE)
        token = ("secret/robot-jwt-slurm", f"--namespace={NAMESPACE}")
        operator_ground.kubectl("wait", *token, "--for=create", "--timeout=180s")
        yield Site(operator_ground)
        operator_ground.kubectl("delete", "nodeset.slinky.slurm.net/worker", f"--namespace={NAMESPACE}")


def test_the_commands_of_accounting_work(site: Site) -> None:
    job = site.job()
    site.ground.eventually(lambda: site.accounted().get(job) == "COMPLETED", "the job in the accounts")
    assert site.run("sacctmgr", "-nP", "show", "cluster", "format=cluster").strip() == "books"
    assert "Cluster Utilization" in site.run("sreport", "cluster", "utilization")


def test_users_of_the_cluster_have_an_account(site: Site) -> None:
    def known() -> set[str]:
        printed = site.run("sacctmgr", "-nP", "show", "association", "account=users", "format=user")
        return set(printed.split())

    site.ground.eventually(lambda: known() == {"alice", "bob"}, "both users in the accounts")


def test_no_record_is_lost_when_slurmdbd_and_its_database_die(site: Site) -> None:
    for pod in ("slurm-accounting-0", "slurm-mariadb-0"):
        before = uid(site.ground, NAMESPACE, pod)
        site.ground.kubectl("delete", "pod", pod, f"--namespace={NAMESPACE}", "--grace-period=0", "--force")
        job = site.job()
        site.ground.eventually(lambda: site.restarted(pod, before), f"{pod} to be replaced")  # noqa: B023 - now
        site.ground.eventually(
            lambda: site.accounted().get(job) == "COMPLETED",  # noqa: B023 - now
            f"job {job} in the accounts after {pod} died",
        )
    site.ground.ready("accounting/slurm", NAMESPACE)


def test_a_changed_password_is_followed_and_nothing_is_lost(site: Site) -> None:
    job = site.job()
    site.ground.eventually(lambda: site.accounted().get(job) == "COMPLETED", "the job in the accounts")
    before = uid(site.ground, NAMESPACE, "slurm-mariadb-0")
    password = b64encode(b"a-new-password").decode()
    patch(site.ground, NAMESPACE, "secret/slurm-mariadb", {"data": {"password": password}})
    site.ground.eventually(lambda: site.restarted("slurm-mariadb-0", before), "the database to be started anew")
    site.ground.ready("accounting/slurm", NAMESPACE)
    later = site.job()
    site.ground.eventually(lambda: {job, later} <= site.accounted().keys(), "old and new jobs in the accounts")


def test_the_password_is_in_no_argument_or_variable(site: Site) -> None:
    secret = site.ground.get("secret/slurm-mariadb", NAMESPACE)["data"]["password"]
    password = b64decode(secret).decode()
    script = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2> /dev/null | tr '\\0' '\\n'"
    for pod in ("slurm-accounting-0", "slurm-mariadb-0"):
        assert password not in site.ground.exec(pod, "bash", "-c", script, namespace=NAMESPACE)
        assert password not in site.ground.kubectl("logs", pod, f"--namespace={NAMESPACE}")


def test_w11_the_operator_finds_slurmrestd_at_another_port(site: Site) -> None:
    def reachable() -> str:
        held = site.ground.get("controller/slurm", NAMESPACE)["status"]["conditions"]
        return str({it["type"]: it["status"] for it in held}.get("SlurmReachable"))

    site.ground.eventually(lambda: reachable() == "True", "the operator to be in touch with Slurm")


def test_slurmrestd_takes_the_token_of_a_secret_and_none_else(site: Site) -> None:
    secret = site.ground.get("secret/robot-jwt-slurm", NAMESPACE)["data"]["SLURM_JWT"]
    token = b64decode(secret).decode()
    assert " 200 " in site.ask("/slurm/v0.0.42/nodes/", token)
    assert " 200 " in site.ask("/slurmdb/v0.0.42/clusters/", token)
    assert " 200 " not in site.ask("/slurm/v0.0.42/nodes/", token[:-4] + "AAAA")


def test_bad_settings_are_named_and_the_cluster_goes_on(site: Site) -> None:
    before = uid(site.ground, NAMESPACE, "slurm-accounting-0")
    patch(site.ground, NAMESPACE, "accounting/slurm", {"spec": {"extraConf": "StorageHost=elsewhere"}})

    def told() -> str:
        held = site.ground.get("accounting/slurm", NAMESPACE)["status"]["conditions"]
        return str(next((it["message"] for it in held if it["type"] == "Degraded"), ""))

    site.ground.eventually(lambda: "storagehost" in told(), "the Accounting to say what is wrong")
    assert uid(site.ground, NAMESPACE, "slurm-accounting-0") == before
    patch(site.ground, NAMESPACE, "accounting/slurm", {"spec": {"extraConf": None}})
    site.ground.ready("accounting/slurm", NAMESPACE)

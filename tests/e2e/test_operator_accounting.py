"""Accounting, REST and tokens end to end: real slurmdbd, MariaDB and slurmrestd in pods."""

from base64 import b64decode, b64encode
from collections.abc import Iterator

import pytest

from tests.bed.operator_ground import OperatorGround
from tests.e2e.operator_parts import KEYS, OF_SLURM, SMALL, keys, part
from tests.e2e.site import Site

NAMESPACE = "accounting-test"

_ASK = r"""
exec 3<> "/dev/tcp/$1/$2"
printf '%s HTTP/1.%s\r\nX-SLURM-USER-TOKEN: %s\r\n\r\n' "$3" "$4" "$(cat)" >&3
head -n 1 <&3
"""


def finished(site: Site) -> str:
    """Run a job to its good end, as far as slurmctld knows; its id."""
    job = site.submit("true")
    assert site.ended(job)["JobState"] == "COMPLETED"
    return job


def accounted(site: Site, *jobs: str, what: str = "the jobs in the accounts") -> None:
    """Wait until accounting says of each job that it ended well."""
    words = ("sacct", "-anXP", "-S", "now-1days", "-o", "jobid,state")
    site.eventually(
        lambda: dict(line.split("|") for line in site.run(*words).splitlines()),
        what,
        holds=lambda it: all(it.get(job) == "COMPLETED" for job in jobs),
    )


def ask(site: Site, path: str, token: str) -> str:
    """Ask slurmrestd by its Service; the first line of its answer."""
    words = ("slurm-restapi", "8080", f"GET {path}", "0")
    return site.exec(site.slurmctld, "bash", "-c", _ASK, "ask", *words, stdin=token)


def complete(site: Site, job: str, token: str) -> str:
    """Let a job end with exit code 3, by the helper beside slurmrestd; the first line of its answer."""
    words = ("slurm-completer", "6821", f"POST /jobs/{job}/complete?cluster=c&status={3 << 8}", "1")
    return site.exec(site.slurmctld, "bash", "-c", _ASK, "ask", *words, stdin=token)


@pytest.fixture(scope="module")
def site(operator_ground: OperatorGround) -> Iterator[Site]:
    with operator_ground.namespace(NAMESPACE) as namespace:
        made = Site(operator_ground, namespace)
        users = [{"name": "alice", "uid": 2001}, {"name": "bob", "uid": 2002}]
        made.apply(
            *keys(),
            part("Accounting", "slurm", **KEYS),
            part("Controller", "slurm", **KEYS, users=users, accountingRef={"name": "slurm"}, clusterName="books"),
            part("RestApi", "slurm", **OF_SLURM, service={"port": 8080}),
            part("NodeSet", "worker", **OF_SLURM, replicas=1, slurmd={"resources": SMALL}),
            part("Token", "robot", username="slurm", jwtKeyRef=KEYS["jwtKeyRef"], lifetime="1h"),
        )
        made.ready("accounting/slurm", "controller/slurm", "restapi/slurm", "nodeset.slinky.slurm.net/worker")
        made.kubectl("wait", "secret/robot-jwt-slurm", "--for=create", "--timeout=180s")
        yield made
        made.kubectl("delete", "nodeset.slinky.slurm.net/worker")


def test_the_commands_of_accounting_work(site: Site) -> None:
    accounted(site, finished(site))
    assert site.run("sacctmgr", "-nP", "show", "cluster", "format=cluster").strip() == "books"
    assert "Cluster Utilization" in site.run("sreport", "cluster", "utilization")


def test_users_of_the_cluster_have_an_account(site: Site) -> None:
    def known() -> set[str]:
        printed = site.run("sacctmgr", "-nP", "show", "association", "account=users", "format=user")
        return set(printed.split())

    site.eventually(known, "both users in the accounts", holds=lambda it: it == {"alice", "bob"})


def test_no_record_is_lost_when_slurmdbd_and_its_database_die(site: Site) -> None:
    for pod in ("slurm-accounting-0", "slurm-mariadb-0"):
        before = site.uid(pod)
        site.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
        job = finished(site)
        site.replaced(pod, before)
        accounted(site, job, what=f"job {job} in the accounts after {pod} died")
    site.ready("accounting/slurm")


def test_a_changed_password_is_followed_and_nothing_is_lost(site: Site) -> None:
    job = finished(site)
    accounted(site, job)
    before = site.uid("slurm-mariadb-0")
    site.patch("secret/slurm-mariadb", {"data": {"password": b64encode(b"a-new-password").decode()}})
    site.replaced("slurm-mariadb-0", before)
    site.ready("accounting/slurm")
    accounted(site, job, finished(site), what="old and new jobs in the accounts")


def test_the_password_is_in_no_argument_or_variable(site: Site) -> None:
    password = b64decode(site.get("secret/slurm-mariadb")["data"]["password"]).decode()
    script = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2> /dev/null | tr '\\0' '\\n'"
    for pod, daemon in (("slurm-accounting-0", "slurmdbd"), ("slurm-mariadb-0", "mariadbd")):
        shown = site.exec(pod, "bash", "-c", script)
        assert daemon in shown  # whose arguments are among them
        assert password not in shown
        assert password not in site.kubectl("logs", pod)


def test_w11_the_operator_finds_slurmrestd_at_another_port(site: Site) -> None:
    site.eventually(
        lambda: site.condition("controller/slurm", "SlurmReachable"),
        "the operator to be in touch with Slurm",
        holds=lambda it: it["status"] == "True",
    )


def test_slurmrestd_takes_the_token_of_a_secret_and_none_else(site: Site) -> None:
    token = b64decode(site.get("secret/robot-jwt-slurm")["data"]["SLURM_JWT"]).decode()
    assert " 200 " in ask(site, "/slurm/v0.0.42/nodes/", token)
    assert " 200 " in ask(site, "/slurmdb/v0.0.42/clusters/", token)
    refused = ask(site, "/slurm/v0.0.42/nodes/", token[:-4] + "AAAA")
    assert refused.startswith("HTTP/1.")
    assert " 200 " not in refused


def test_the_token_ends_marked_jobs_with_an_exit_code(site: Site) -> None:
    token = b64decode(site.get("secret/robot-jwt-slurm")["data"]["SLURM_JWT"]).decode()
    job = site.submit("sleep 600")
    site.until(job, "RUNNING")
    assert " 404 " in complete(site, job, token)
    site.run("scontrol", "update", f"JobId={job}", 'AdminComment={"cluster":"c","isthmus":1}')
    assert " 401 " in complete(site, job, token[:-4] + "AAAA")
    assert site.job(job)["JobState"] == "RUNNING"
    assert " 200 " in complete(site, job, token)
    ended = site.ended(job)
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", "3:0")


def test_bad_settings_are_named_and_the_cluster_goes_on(site: Site) -> None:
    before = site.uid("slurm-accounting-0")
    site.patch("accounting/slurm", {"spec": {"extraConf": "StorageHost=elsewhere"}})
    site.eventually(
        lambda: site.condition("accounting/slurm", "Degraded"),
        "the Accounting to say what is wrong",
        holds=lambda it: "storagehost" in it["message"],
    )
    assert site.uid("slurm-accounting-0") == before
    site.patch("accounting/slurm", {"spec": {"extraConf": None}})
    site.eventually(
        lambda: site.condition("accounting/slurm", "Degraded"),
        "the Accounting to find nothing wrong",
        holds=lambda it: it["status"] != "True",
    )
    site.ready("accounting/slurm")

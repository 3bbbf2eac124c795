"""The scripts in slurmctld's pods, with a real slurmctld: bad files, crashes, standbys, keys; no job is lost."""

import json
from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

import pytest

from isthmus.domain.operator import authkeys
from isthmus.domain.operator.authkeys import AuthKey, KeySet
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_box import wait_until
from tests.flows.operator.controller_pods import ControllerPods

pytestmark = pytest.mark.long

Factory = Callable[..., SlurmBed]
LIMIT = 90.0
BAD = "PartitionName=bad Nodes=nowhere\n"


@pytest.fixture
def pods(slurm_version: str, slurm_bed: Factory) -> ControllerPods:
    made = ControllerPods(slurm_bed(slurm_version, nodes=1, accounting=False), settings={"KillWait": "30"})
    made.start("ctl-0")
    made.wait_ready()
    made.bed.restart("slurmd-n1")
    return made


@pytest.fixture
def first_of_two(slurm_version: str, slurm_bed: Factory) -> ControllerPods:
    """The first of two pods of slurmctld, in charge; the second has not been started."""
    bed = slurm_bed(slurm_version, nodes=1, accounting=False)
    made = ControllerPods(bed, ("ctl-0", "ctl-1"), settings={"SlurmctldTimeout": "6"})
    made.start("ctl-0")
    made.wait_ready()
    return made


@pytest.fixture
def pair(first_of_two: ControllerPods) -> ControllerPods:
    """Two pods of slurmctld, the second standing by."""
    made, bed = first_of_two, first_of_two.bed
    made.start("ctl-1")
    bed.restart("slurmd-n1")
    # In its first seconds a standby only waits.
    wait_until(lambda: "running in background mode" in made.log("ctl-1"), what="ctl-1 stands by", within=LIMIT)
    wait_until(lambda: "is UP" in backup(bed), what="ctl-1 answers", within=LIMIT)
    return made


def backup(bed: SlurmBed) -> str:
    return next(line for line in bed.scontrol("ping").splitlines() if "backup" in line)


def submit(bed: SlurmBed, script: str) -> str:
    return bed.command("sbatch", "--parsable", "--mem=10", "-o/dev/null", f"--wrap={script}").strip()


def state(bed: SlurmBed, job: str) -> str:
    return bed.command("squeue", "-h", "-tall", "-j", job, "-o%T").strip()


def until(bed: SlurmBed, job: str, wanted: str, *, within: float = LIMIT) -> None:
    wait_until(lambda: state(bed, job) == wanted, what=f"job {job} is {wanted}", within=within)


def saved(bed: SlurmBed) -> None:
    """Wait for slurmctld to write down its jobs; a crash before that loses the newest."""
    last = f"last-{uuid4().hex}"
    bed.command("sbatch", "--hold", f"--job-name={last}", "-o/dev/null", "--wrap=true")
    file = bed.path("/var/spool/slurmctld/job_state")

    def has_all() -> bool:
        with suppress(FileNotFoundError):  # for a moment, while it is replaced
            return last.encode() in file.read_bytes()
        return False

    wait_until(has_all, what="jobs are saved", within=LIMIT)


def answers(bed: SlurmBed) -> bool:
    return bed._box.run("scontrol", "ping").returncode == 0


# Files


def test_changed_files_are_taken_while_jobs_run(pods: ControllerPods) -> None:
    job = submit(pods.bed, "sleep 600")
    until(pods.bed, job, "RUNNING")
    revision = pods.publish(pods.conf.replace("KillWait=30", "KillWait=31"))
    wait_until(lambda: pods.settled(revision), what="the side-car is done", within=LIMIT)
    assert pods.setting("KillWait") == "31 sec"
    assert state(pods.bed, job) == "RUNNING"


def test_bad_files_are_refused_with_the_reason_and_the_old_ones_stay(pods: ControllerPods) -> None:
    job = submit(pods.bed, "sleep 600")
    until(pods.bed, job, "RUNNING")
    before = pods.slurmctld_processes("ctl-0")
    revision = pods.publish(pods.conf + BAD)
    wait_until(lambda: pods.exit_code("ctl-0", "reconfigure") == 1, what="the side-car gives up", within=LIMIT)
    first, _, why = pods.said("ctl-0").partition("\n")
    assert first.strip() == revision.strip()
    assert "Invalid node names in partition bad" in why
    assert pods.slurmctld_processes("ctl-0") == before
    assert state(pods.bed, job) == "RUNNING"
    pods.bed.command("srun", "--overlap", f"--jobid={job}", "true")


def test_what_was_refused_is_not_tried_again_until_it_changes(pods: ControllerPods) -> None:
    pods.publish(pods.conf + BAD)
    wait_until(lambda: pods.exit_code("ctl-0", "reconfigure") == 1, what="the side-car gives up", within=LIMIT)
    attempts = pods.log("ctl-0").count("Attempting to reconfigure")
    pods.start("ctl-0", "reconfigure")
    wait_until(lambda: pods.has_looked("ctl-0"), what="the side-car has looked at them again", within=LIMIT)
    assert pods.log("ctl-0").count("Attempting to reconfigure") == attempts
    good = pods.publish(pods.conf.removesuffix(BAD).replace("KillWait=30", "KillWait=32"))
    wait_until(lambda: pods.settled(good), what="the side-car is done", within=LIMIT)
    assert pods.setting("KillWait") == "32 sec"


_REFUSING = """
function slurm_job_submit(job, partitions, uid)
    if job.name == "refused" then
        slurm.log_user("not this one")
        return slurm.ERROR
    end
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
"""


def test_a_script_of_users_decides_on_jobs_and_one_that_does_not_parse_is_refused(pods: ControllerPods) -> None:
    conf = f"{pods.conf}JobSubmitPlugins=lua\n"
    revision = pods.publish(conf, files={"job_submit.lua": _REFUSING})
    wait_until(lambda: pods.settled(revision), what="the side-car is done", within=LIMIT)
    with pytest.raises(RuntimeError, match="not this one"):
        pods.bed.command("sbatch", "--job-name=refused", "--wrap=true")
    submit(pods.bed, "true")
    pods.publish(conf, files={"job_submit.lua": "function ("})
    wait_until(lambda: pods.exit_code("ctl-0", "reconfigure") == 1, what="the side-car gives up", within=LIMIT)
    assert "job_submit" in pods.said("ctl-0")
    with pytest.raises(RuntimeError, match="not this one"):
        pods.bed.command("sbatch", "--job-name=refused", "--wrap=true")


_ANSWER_IS_LOST = """#!/bin/sh
/usr/bin/scontrol "$@"
code=$?
if [ "$1" = reconfigure ] && mkdir /tmp/lost; then
    echo 'slurm_reconfigure error: Socket timed out on send/recv operation' >&2
    exit 1
fi
exit $code
"""


def test_an_answer_that_comes_too_late_is_no_refusal(pods: ControllerPods) -> None:
    pods.publish(pods.conf + BAD)
    wait_until(lambda: pods.exit_code("ctl-0", "reconfigure") == 1, what="the side-car gives up", within=LIMIT)
    program = pods.bed.path("/usr/local/bin/scontrol")
    program.write_text(_ANSWER_IS_LOST)
    program.chmod(0o755)
    revision = pods.publish(pods.conf.removesuffix(BAD).replace("KillWait=30", "KillWait=31"))
    pods.start("ctl-0", "reconfigure")  # which finds that program, and no other
    wait_until(lambda: pods.bed.path("/tmp/lost").exists(), what="an answer is lost", within=LIMIT)  # noqa: S108 - in the bed
    wait_until(lambda: pods.settled(revision), what="the side-car has tried again", within=LIMIT)
    assert pods.exit_code("ctl-0", "reconfigure") is None
    assert pods.setting("KillWait") == "31 sec"


def test_a_new_pod_with_bad_files_goes_back_to_those_that_worked(pods: ControllerPods) -> None:
    wait_until(lambda: pods.settled("r1"), what="the first files are remembered", within=LIMIT)
    job = submit(pods.bed, "sleep 600")
    until(pods.bed, job, "RUNNING")
    saved(pods.bed)
    pods.kill_pod("ctl-0")
    pods.publish(pods.conf + BAD)
    pods.start("ctl-0")
    wait_until(lambda: pods.exit_code("ctl-0", "slurmctld") == 1, what="slurmctld does not start", within=LIMIT)
    assert "Invalid node names" in pods.log("ctl-0")
    pods.start("ctl-0", "slurmctld")  # as kubelet does
    wait_until(lambda: answers(pods.bed), what="slurmctld is back", within=LIMIT)
    assert state(pods.bed, job) == "RUNNING"
    wait_until(lambda: pods.exit_code("ctl-0", "reconfigure") == 1, what="the side-car says why", within=LIMIT)
    assert "Invalid node names in partition bad" in pods.said("ctl-0")


_ON_ORDER = """#!/bin/sh
touch /tmp/begun
until [ -e /tmp/go ]; do sleep 0.02; done
exec /usr/sbin/slurmctld "$@"
"""


@pytest.mark.parametrize("slurm_version", ["26.05"])
def test_nobody_brings_bad_files_back_while_slurmctld_starts_with_good_ones(pods: ControllerPods) -> None:
    wait_until(lambda: pods.settled("r1"), what="the first files are remembered", within=LIMIT)
    pods.kill_pod("ctl-0")
    pods.publish(pods.conf + BAD)
    pods.start("ctl-0", "slurmctld")
    wait_until(lambda: pods.exit_code("ctl-0", "slurmctld") == 1, what="slurmctld does not start", within=LIMIT)
    program = pods.bed.path("/usr/local/bin/slurmctld")
    program.write_text(_ON_ORDER)
    program.chmod(0o755)
    pods.start("ctl-0", "slurmctld")
    wait_until(pods.bed.path("/tmp/begun").exists, what="slurmctld goes back", within=LIMIT)  # noqa: S108 - in the bed
    pods.start("ctl-0", "reconfigure")
    wait_until(lambda: pods.has_looked("ctl-0"), what="the side-car has looked at the files", within=LIMIT)
    assert BAD not in pods.bed.path("/pods/ctl-0/etc/slurm.conf").read_text()
    pods.bed.path("/tmp/go").touch()  # noqa: S108 - in the bed
    wait_until(lambda: answers(pods.bed), what="slurmctld is back", within=LIMIT)
    wait_until(lambda: pods.exit_code("ctl-0", "reconfigure") == 1, what="the side-car says why", within=LIMIT)
    assert "Invalid node names in partition bad" in pods.said("ctl-0")


def test_files_that_are_no_longer_given_go_and_scripts_can_be_run(pods: ControllerPods) -> None:
    revision = pods.publish(files={"begin.sh": "#!/bin/sh\nexit 0\n", "helpers.conf": "# nothing\n"})
    wait_until(lambda: pods.settled(revision), what="the side-car is done", within=LIMIT)
    etc = pods.bed.path("/pods/ctl-0/etc")
    assert (etc / "begin.sh").stat().st_mode & 0o777 == 0o755
    assert (etc / "slurm.jwks").stat().st_mode & 0o777 == 0o600
    revision = pods.publish()
    wait_until(lambda: pods.settled(revision), what="the side-car is done", within=LIMIT)
    assert not (etc / "begin.sh").exists()
    assert not (etc / "helpers.conf").exists()


def test_no_key_is_written_to_the_volume_of_the_state(pods: ControllerPods) -> None:
    wait_until(lambda: pods.settled("r1"), what="the first files are remembered", within=LIMIT)
    kept = {it.name for it in pods.bed.path("/var/spool/slurmctld/.config-ctl-0/good").iterdir()}
    assert "slurm.conf" in kept
    assert not {it for it in kept if it.endswith((".key", ".jwks"))}


def test_a_pod_reaches_itself_by_its_own_address(slurm_version: str, slurm_bed: Factory) -> None:
    made = ControllerPods(slurm_bed(slurm_version, nodes=0, accounting=False), settings={})
    hosts = made.bed.path("/etc/hosts")
    before = hosts.read_text().replace(" ", "\t")  # as kubelet writes it
    hosts.write_text(before)
    made.publish(made.conf.replace("SlurmctldHost=ctl-0", "SlurmctldHost=ctl-0(ctl-0.ns.svc)"))
    made.start("ctl-0")
    wait_until(lambda: answers(made.bed), what="slurmctld finds itself", within=LIMIT)
    assert "127.0.0.1 ctl-0.ns.svc\n" in hosts.read_text()
    hosts.write_text(before)  # as kubelet does when it starts another container
    wait_until(lambda: "127.0.0.1 ctl-0.ns.svc\n" in hosts.read_text(), what="the name is back", within=LIMIT)


# Crashes and standbys


def test_a_slurmctld_that_crashes_is_back_in_a_moment_with_all_jobs(pods: ControllerPods) -> None:
    running, waiting = submit(pods.bed, "sleep 600"), submit(pods.bed, "sleep 600")
    until(pods.bed, running, "RUNNING")
    saved(pods.bed)
    wait_until(lambda: pods.age("ctl-0") > 10, what="slurmctld has run for a while", within=LIMIT)
    pods.kill_daemon("ctl-0")
    wait_until(lambda: answers(pods.bed), what="slurmctld is back", within=LIMIT)
    assert pods.exit_code("ctl-0", "slurmctld") is None, "the container need not be restarted"
    assert state(pods.bed, running) == "RUNNING"
    assert state(pods.bed, waiting) in {"PENDING", "RUNNING"}


def test_kubelet_can_end_it_and_jobs_submitted_a_moment_before_are_kept(pods: ControllerPods) -> None:
    job = submit(pods.bed, "sleep 600")
    assert pods.stop("ctl-0") == 0
    pods.start("ctl-0", "slurmctld")
    wait_until(lambda: answers(pods.bed), what="slurmctld is back", within=LIMIT)
    assert state(pods.bed, job) in {"PENDING", "RUNNING"}


_NAMELESS_AT_FIRST = {
    "slurmctld": '#!/bin/sh\nexec nameless "$@"\n',
    "nameless": '#!/bin/sh\ntouch /tmp/begun\nsleep 3\nexec /usr/sbin/slurmctld "$@"\n',
}


def test_kubelet_can_end_it_while_slurmctld_is_being_started(pods: ControllerPods) -> None:
    pods.kill_pod("ctl-0")
    for name, script in _NAMELESS_AT_FIRST.items():
        program = pods.bed.path(f"/usr/local/bin/{name}")
        program.write_text(script)
        program.chmod(0o755)
    pods.start("ctl-0", "slurmctld")
    wait_until(pods.bed.path("/tmp/begun").exists, what="slurmctld is being started", within=LIMIT)  # noqa: S108 - in the bed
    assert pods.stop("ctl-0") == 0


def test_kubelet_can_end_a_standby_that_waits_for_another(first_of_two: ControllerPods) -> None:
    pods = first_of_two
    heartbeat = pods.bed.path("/var/spool/slurmctld/heartbeat")
    wait_until(heartbeat.exists, what="it is written down who is in charge", within=LIMIT)
    pods.kill_pod("ctl-0")
    pods.start("ctl-1", "slurmctld")
    wait_until(pods.bed.path("/pods/ctl-1/run/orders").exists, what="it waits", within=LIMIT)
    assert pods.stop("ctl-1") == 0


def test_a_standby_takes_over_with_all_jobs_and_gives_back_at_once(pair: ControllerPods) -> None:
    bed = pair.bed
    jobs = [submit(bed, "sleep 600") for _ in range(6)]  # more than the node has CPUs
    until(bed, jobs[0], "RUNNING")
    saved(bed)
    pair.kill_pod("ctl-0")
    # A command waits for a standby for about twice SlurmctldTimeout, which is short here.
    wait_until(lambda: bed._box.run("squeue").returncode == 0, what="the standby is in charge", within=LIMIT)
    taken = bed.command("sbatch", "--parsable", "--hold", "-o/dev/null", "--wrap=true").strip()
    assert {state(bed, job) for job in jobs} <= {"PENDING", "RUNNING"}
    # Not even a job that was submitted at the last moment is lost on the way back.
    late = bed.command("sbatch", "--parsable", "--hold", "-o/dev/null", "--wrap=true").strip()
    in_charge = "Running as primary controller"
    count = pair.log("ctl-0").count(in_charge)
    pair.start("ctl-0")
    wait_until(lambda: pair.log("ctl-0").count(in_charge) > count, what="ctl-0 is in charge", within=LIMIT)
    assert "Old state possible" not in pair.log("ctl-1")
    # Slurm would have asked for control itself, and waited for it for half a minute.
    assert "Performing RPC: REQUEST_CONTROL" not in pair.log("ctl-1")
    bed.command("sbatch", "--parsable", "--hold", "-o/dev/null", "--wrap=true")
    assert state(bed, taken) == state(bed, late) == "PENDING"
    assert {state(bed, job) for job in jobs} <= {"PENDING", "RUNNING"}


def test_a_standby_takes_files_only_after_the_one_in_charge_did(pair: ControllerPods) -> None:
    good = pair.conf
    revision = pair.publish(good.replace("KillWait=1", "KillWait=33"))
    wait_until(lambda: pair.settled(revision), what="both have the new files", within=LIMIT)
    pair.publish(good + BAD)
    wait_until(lambda: pair.exit_code("ctl-0", "reconfigure") == 1, what="the one in charge refuses", within=LIMIT)
    assert pair.exit_code("ctl-1", "reconfigure") is None
    assert BAD not in pair.bed.path("/pods/ctl-1/etc/slurm.conf").read_text()


# Keys


def test_a_key_is_changed_under_running_jobs(pods: ControllerPods) -> None:
    """A job that began with the old key can end at every step: slurmctld hears of it.

    What slurmctld sends to nodes is tried end to end: in a bed, a slurmd that starts itself anew has no address.
    """
    bed = pods.bed
    new = AuthKey.of(b"n" * 1024, where="a test")
    held = KeySet.only(pods.key)
    jobs = {
        step: submit(bed, f"while [ ! -e /tmp/{step} ]; do sleep 0.1; done")
        for step in ("announce", "switch", "retire")
    }
    for job in jobs.values():
        until(bed, job, "RUNNING")
    while step := authkeys.next_step(held, new):
        held = authkeys.after(held, new, step=step)
        pods.share_keys(held)
        revision = pods.publish(keys=held)
        wait_until(lambda done=revision: pods.settled(done), what="slurmctld has the keys", within=LIMIT)  # type: ignore[misc]
        bed.path(f"/tmp/{step}").touch()  # noqa: S108 - in the bed
        until(bed, jobs.pop(step), "COMPLETED")
    assert not jobs
    (signed,) = json.loads(bed.path("/pods/ctl-0/etc/slurm.jwks").read_bytes())["keys"]
    assert signed["kid"] == new.kid

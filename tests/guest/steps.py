"""What runs in the guest: a cluster from `up` to `down`, as an administrator would try it.

Each step is printed with its time and result. When one fails, what helps to see why is printed, those that need it
are left out, and `down` and the comparison run all the same. The last line is what `make guest` goes by.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.guest import traces

PASSED: Final = "guest: all steps passed"
FAILED: Final = "guest: failed"

_NAME: Final = "guest"
_CHARTS: Final = "charts"
_WORKER: Final = "worker-0"
# Emulation takes ten to twenty times as long as a machine does.
_LONG: Final = 2400
_SHORT: Final = 600
_KEY: Final = Path.home() / ".ssh" / "id_ed25519"
_SSH: Final = ("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
_LOGIN: Final = (*_SSH, "-o", "LogLevel=ERROR", "-p", "30022", "alice@localhost")
_JOB: Final = """
apiVersion: batch/v1
kind: Job
metadata: {name: bridged, namespace: slurm-bridge}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: isthmus.local/slurm:26.05
          command: [hostname]
          resources: {requests: {cpu: 500m, memory: 64Mi}}
"""


class Failed(Exception):  # noqa: N818 - a step has failed
    """A step did not come to its end, or not to the right one."""


def run(*words: str, stdin: str = "", within: float = _SHORT) -> str:
    """Run a program to its end."""
    try:
        done = subprocess.run(
            words,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=within,
        )
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        told = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise Failed(f"{' '.join(words[:4])} … takes more than {within:.0f} s:\n{told}") from error
    if done.returncode:
        raise Failed(f"{' '.join(words[:4])} … ended with {done.returncode}:\n{done.stdout}")
    return done.stdout.strip()


def until(condition: Callable[[], bool], what: str, *, within: float = _SHORT) -> None:
    """Wait for a condition; a command in it may fail meanwhile."""
    deadline, last = time.monotonic() + within, ""
    while True:
        try:
            if condition():
                return
        except Failed as error:
            last = f": {error}"
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {within:.0f} s{last}")
        time.sleep(1)


def isthmus(*words: str, stdin: str = "", within: float = _SHORT) -> str:
    return run(f"{Path(sys.executable).parent}/isthmus", *words, stdin=stdin, within=within)


def kubectl(*words: str, stdin: str = "", within: float = _SHORT) -> str:
    return isthmus("kubectl", *words, stdin=stdin, within=within)


def login(command: str, *, within: float = _SHORT) -> str:
    return run(*_LOGIN, command, within=within)


# The steps


def it_is_a_stock_debian() -> str:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    groups = [mount[2] for mount in mounts if mount[2].startswith("cgroup")]
    if groups != ["cgroup2"]:
        raise Failed(f"control groups are not of version 2 only: {groups}")
    debian = Path("/etc/debian_version").read_text().strip()
    systemd = run("systemctl", "--version").splitlines()[0]
    return f"Debian {debian}, Linux {run('uname', '-r')}, {systemd}, control groups of version 2"


def up() -> str:
    isthmus("up", "--name", _NAME, "--nodes", "1", within=_LONG)
    return "1 worker is Ready"


def its_group_is_delegated() -> str:
    unit = f"isthmus-{_NAME}.scope"
    said = run("systemctl", "show", "--property=Delegate,TasksMax,ControlGroup", unit)
    if "Delegate=yes" not in said or "TasksMax=infinity" not in said:
        raise Failed(f"systemd has not delegated the cluster's group: {said}")
    pods = list(Path(f"/sys/fs/cgroup/system.slice/{unit}/{_NAME}-worker/kubepods").glob("*"))
    if not pods:
        raise Failed(f"there are no pods' groups in {unit}")
    # systemd looks at its tree anew, and leaves what is below as it is.
    before = sorted(str(path) for path in pods)
    run("systemctl", "daemon-reload")
    if not all(Path(path).exists() for path in before):
        raise Failed("pods' groups did not survive a reload of systemd")
    return said.splitlines()[-1]


def the_operator_is_installed() -> str:
    place = ("--namespace=isthmus-system", "--create-namespace", "--wait", f"--timeout={_LONG}s")
    isthmus("helm", "install", "isthmus-operator", f"{_CHARTS}/isthmus-operator", *place, within=_LONG)
    return "helm install isthmus-operator"


def a_slurm_cluster_is_ready() -> str:
    _KEY.parent.mkdir(mode=0o700, exist_ok=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(_KEY))
    public = _KEY.with_suffix(".pub").read_text().strip()
    values = ("slurmNodes.worker.size=1", "slurmNodes.worker.resources.memory=1Gi")
    user = ("users[0].name=alice", "users[0].uid=2001", f"users[0].sshPublicKeys[0]={public}")
    words = [
        *("helm", "install", "slurm", f"{_CHARTS}/slurm-cluster", "--namespace=slurm", "--create-namespace"),
        "--values=examples/operator/values-for-bridge.yaml",
        *(f"--set={it}" for it in (*values, *user)),
    ]

    def installed() -> bool:
        # The API server takes a moment to find the operator's webhook.
        return bool(isthmus(*words[:1], "upgrade", "--install", *words[2:], within=_LONG))

    until(installed, "the chart slurm-cluster to be taken")
    wait = ("wait", "--namespace=slurm", "--for=condition=Ready", "slurmcluster/slurm", f"--timeout={_LONG}s")
    kubectl(*wait, within=_LONG + 60)
    until(
        lambda: login("sinfo --noheader --format=%T --nodes=worker-0").startswith("idle"), "the worker to be idle"
    )
    return login("sinfo --noheader --format='%N: %c CPUs, %m MB' --nodes=worker-0").splitlines()[0]


def srun() -> str:
    said = login("srun --mem=100M sh -c 'hostname; cat /proc/self/cgroup'")
    if not said.startswith(_WORKER) or ("/slurmstepd.scope/" not in said and "_slurmstepd.scope/" not in said):
        raise Failed(f"the step runs elsewhere, or in no control group of Slurm's: {said}")
    return " ".join(said.split())


def a_job_is_held_to_its_memory() -> str:
    # tail keeps what has no line breaks.
    script = "'head --bytes=300M /dev/zero | tail | wc --bytes'"
    words = f"sbatch --parsable --mem=100M --output=/dev/null --wrap={script}"
    job = login(words)

    def state() -> str:
        return login(f"sacct --noheader --parsable2 --allocations --jobs={job} --format=State")

    until(lambda: state() not in ("", "PENDING", "RUNNING"), f"job {job} to end")
    if state() != "OUT_OF_MEMORY":
        raise Failed(f"job {job} asked for 100 MB, took 300 MB, and ended as {state()!r}")
    return f"job {job}: {state()}"


def a_session_ends_with_its_job() -> str:
    login("mkdir -p -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519")
    login("cat ~/.ssh/id_ed25519.pub >> ~/.ssh/authorized_keys")
    job = login(f"sbatch --parsable --mem=100M --output=/dev/null --nodelist={_WORKER} --wrap='sleep 6000'")
    until(lambda: login(f"squeue --noheader --jobs={job} --format='%T %r'") == "RUNNING None", f"job {job} to run")
    inside = f"ssh -o BatchMode=yes {_WORKER}"
    until(lambda: login(f"{inside} 'echo $SLURM_JOB_ID'").splitlines()[-1] == job, "a session on the worker")
    words = [*_LOGIN, f"{inside} 'echo begun; exec sleep 6000'"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as session:
        try:
            if not session.stdout or session.stdout.readline().strip() != "begun":
                raise Failed("the session did not begin")
            began = time.monotonic()
            login(f"scancel {job}")
            until(lambda: session.poll() is not None, "the session to end with its job")
        finally:
            session.kill()
    took = time.monotonic() - began
    refused = subprocess.run(
        [*_LOGIN, f"{inside} true"], check=False, capture_output=True, text=True, timeout=_SHORT
    )
    if "pam_slurm_adopt" not in refused.stderr:
        raise Failed(f"a session without a job was not refused: {refused.stdout}{refused.stderr}")
    return f"ended {took:.0f} s after scancel of job {job}; without a job nobody comes in"


def the_bridge_places_a_job() -> str:
    kubectl("apply", "--namespace=slurm", "--filename=examples/operator/token-for-bridge.yaml")
    kubectl("wait", "--namespace=slurm", "--for=condition=Ready", "token/bridge", f"--timeout={_SHORT}s")
    kubectl("create", "namespace", "slurm-bridge")
    label = "scheduler.slinky.slurm.net/external-node="
    kubectl("label", "node", "--selector=!node-role.kubernetes.io/control-plane", label)
    place = ("--namespace=slurm", "--wait", f"--timeout={_LONG}s")
    isthmus("helm", "install", "slurm-bridge", f"{_CHARTS}/slurm-bridge", *place, within=_LONG)
    # Its webhook is found a moment after it is ready.
    until(lambda: bool(kubectl("apply", "--filename=-", stdin=_JOB)), "the Job to be taken")
    wait = ("wait", "--namespace=slurm-bridge", "--for=condition=Complete", "job/bridged", f"--timeout={_LONG}s")
    kubectl(*wait, within=_LONG + 60)
    said = login("sacct --allusers --noheader --parsable2 --allocations --format=JobID,Partition,State")
    jobs = [line for line in said.splitlines() if "|slurm-bridge|" in line]
    if not jobs:
        raise Failed(f"Slurm knows of no job of the bridge: {said}")
    return f"Slurm's job {jobs[-1]}"


def down() -> str:
    isthmus("down", "--name", _NAME, within=_LONG)
    return "the cluster is gone"


_STEPS: Final = (
    it_is_a_stock_debian,
    up,
    its_group_is_delegated,
    the_operator_is_installed,
    a_slurm_cluster_is_ready,
    srun,
    a_job_is_held_to_its_memory,
    a_session_ends_with_its_job,
    the_bridge_places_a_job,
)


def perform(step: Callable[[], str]) -> bool:
    """Take one step and print what came of it."""
    name = step.__name__.replace("_", " ")
    print(f"… {name}")
    began = time.monotonic()
    try:
        result = step()
    except Exception as error:  # noqa: BLE001 - whatever it is, the next steps are due
        print(f"✗ {name} ({time.monotonic() - began:.0f} s): {error}")
        return False
    print(f"✓ {name} ({time.monotonic() - began:.0f} s): {result}")
    return True


def tell_why() -> None:
    """Print what helps to see why a step failed."""
    questions = (
        ("get", "pods", "--all-namespaces", "-o", "wide"),
        ("get", "slurmclusters,nodesets.slinky.slurm.net", "--all-namespaces", "-o", "wide"),
        ("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"),
        ("logs", "--namespace=isthmus-system", "deployment/isthmus-operator", "--tail=40"),
        ("logs", "--namespace=slurm", f"pod/{_WORKER}", "--tail=40"),
        ("logs", "--namespace=slurm", "pod/slurm-controller-0", "--tail=40"),
    )
    for words in questions:
        try:
            print(f"  $ kubectl {' '.join(words)}")
            print("\n".join(f"    {line}" for line in kubectl(*words).splitlines()[-60:]))
        except Failed as error:
            print(f"    {error}")


def main() -> int:
    """Take all steps."""
    before = traces.look()
    passed = all(perform(step) for step in _STEPS)
    if not passed:
        tell_why()

    def nothing_is_left() -> str:
        found: dict[str, list[str]] = {}

        def as_before() -> bool:
            # The kernel removes a network namespace a moment after its last process.
            found.clear()
            found.update(traces.more(before, traces.look()))
            return not found

        try:
            until(as_before, "the machine to be as before", within=_SHORT)
        except Failed:
            raise Failed("\n".join(f"{kind}: {', '.join(it[:20])}" for kind, it in found.items())) from None
        return "processes, mounts, control groups, units, interfaces, firewall and files are as before"

    gone = perform(down)
    clean = perform(nothing_is_left)
    print(PASSED if passed and gone and clean else FAILED)
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True, encoding="utf-8")  # type: ignore[union-attr]  # it is a terminal
    sys.exit(main())

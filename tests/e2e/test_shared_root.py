"""The shared root end to end: people over SSH and jobs on two nodes have one file system, and one set of users."""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isthmus.domain.manifests import jail
from tests.bed.operator_ground import OperatorGround
from tests.e2e.operator_parts import KEYS, OF_SLURM, SMALL, apply, keys, part, ssh_port

NAMESPACE = "root-test"
IMAGE = "isthmus.local/login:26.05"
WORKERS = ("worker-0", "worker-1")

# Many jobs share each node, so that they are there at the same time.
CONF = """\
PartitionName=main Nodes=ALL Default=YES OverSubscribe=FORCE:50
Prolog=/opt/slurm_scripts/prolog.sh
"""

FILL = """
chmod 755 /mnt/jail
cp --archive --one-file-system /. /mnt/jail/
mkdir -p /mnt/jail/opt/slurm_scripts
cat > /mnt/jail/opt/slurm_scripts/prolog.sh << 'EOF'
#!/bin/bash
[[ -e /.isthmus/ready ]] && where=inside || where=outside
echo "$SLURM_JOB_ID $where" >> /tmp/prologs
EOF
chmod 755 /mnt/jail/opt/slurm_scripts/prolog.sh
mkdir -p -m 755 /mnt/jail/.isthmus
touch /mnt/jail/.isthmus/ready
"""

PACKAGE = """
mkdir -p tool/DEBIAN tool/usr/bin
printf '#!/bin/sh\\necho the tool of $(uname -n)\\n' > tool/usr/bin/labtool
chmod 755 tool/usr/bin/labtool
printf 'Package: labtool\\nVersion: 1\\nArchitecture: all\\nMaintainer: lab\\nDescription: a tool\\n' \\
    > tool/DEBIAN/control
dpkg-deb --build tool labtool.deb
sudo apt-get install --yes ./labtool.deb
"""

RSYNC = """
key=$(mktemp)
trap 'rm "$key"' EXIT
cat > "$key"
rsync --rsh="ssh -i $key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null" \\
    /etc/hostname /etc/hosts alice@login:by-rsync/
"""

LEFT = "lsns --noheadings --type=mnt --output=NS | wc -l; wc -l < /proc/1/mountinfo; ps -e --no-headers | wc -l"


@dataclass(frozen=True)
class Site:
    """A cluster of two workers and a login node that have one root, and alice's key."""

    ground: OperatorGround
    home: Path

    @property
    def address(self) -> str:
        """Where a NodePort is reached."""
        where = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}"
        return self.ground.kubectl("get", "nodes", "-o", where)

    @property
    def port(self) -> str:
        return ssh_port(self.ground, NAMESPACE)

    @property
    def options(self) -> list[str]:
        return [
            *("-i", str(self.home / "id"), "-o", "BatchMode=yes", "-o", "ConnectTimeout=30"),
            *("-o", "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={self.home}/known"),
            *("-o", "LogLevel=ERROR"),
        ]

    def attempt(
        self, command: str, *options: str, stdin: str = "", user: str = "alice"
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command over SSH, which may fail."""
        words = ["ssh", *self.options, *options, "-p", self.port, f"{user}@{self.address}", command]
        return subprocess.run(words, check=False, capture_output=True, text=True, timeout=600, input=stdin)

    def ssh(self, command: str, *options: str, stdin: str = "", user: str = "alice") -> str:
        """Run a command over SSH."""
        done = self.attempt(command, *options, stdin=stdin, user=user)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{self.ground.story(NAMESPACE)}"
        return done.stdout

    def on_worker(self, worker: str, *words: str) -> str:
        """Run a program in a worker's container, which is outside the root."""
        return self.ground.exec(worker, *words, namespace=NAMESPACE)


def _claim() -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "4Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "root"}, "spec": spec}


def _configmap(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _fill() -> dict[str, Any]:
    """Make the pod that fills the root, as plainly as can be: what is tested here is living in it."""
    mounts = [{"name": "root", "mountPath": jail.ROOT}]
    container = {"name": "fill", "image": IMAGE, "command": ["bash", "-euc", FILL], "volumeMounts": mounts}
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}]
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fill"}, "spec": spec}


def _root(*mounts: dict[str, Any]) -> dict[str, Any]:
    return {"volume": {"persistentVolumeClaim": {"claimName": "root"}}, "subMounts": list(mounts)}


@pytest.fixture(scope="module")
def site(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("home")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / "id"], check=True)
    alice = {"name": "alice", "uid": 2001, "sudo": True, "sshPublicKeys": [(home / "id.pub").read_text().strip()]}
    data = {"name": "data", "mountPath": "/data/set", "readOnly": True, "volume": {"configMap": {"name": "data"}}}
    scratch = {"name": "scratch", "mountPath": "/scratch", "volume": {"emptyDir": {}}}
    memory = {"name": "memory", "mountPath": "/mnt/memory", "volume": {"emptyDir": {"medium": "Memory"}}}
    with operator_ground.namespace(NAMESPACE):
        apply(
            operator_ground,
            NAMESPACE,
            *keys(),
            _claim(),
            _configmap("data", numbers="1 2 3\n"),
            _configmap("plugins", **{"plugstack.conf": f"{jail.plugstack_line('slurm')}\n"}),
            _fill(),
            part("Accounting", "slurm", **KEYS),
            part(
                *("Controller", "slurm"),
                **KEYS,
                users=[alice],
                accountingRef={"name": "slurm"},
                extraConf=CONF,
                configFileRefs=[{"name": "plugins"}],
            ),
            part("RestApi", "slurm", **OF_SLURM),
            part(
                *("NodeSet", "worker"),
                **OF_SLURM,
                replicas=2,
                slurmd={"resources": SMALL},
                sharedRoot=_root(data, scratch, memory),
            ),
            part(
                *("LoginSet", "login"),
                **OF_SLURM,
                service={"spec": {"type": "NodePort"}},
                sharedRoot=_root(data),
            ),
        )
        for what in ("controller/slurm", "accounting/slurm", "loginset/login", "nodeset.slinky.slurm.net/worker"):
            operator_ground.ready(what, NAMESPACE)
        made = Site(operator_ground, home)
        # Services take a moment to lead to new pods.
        operator_ground.eventually(lambda: made.attempt("true").returncode == 0, "sshd to be reached")
        yield made
        operator_ground.kubectl("delete", "nodeset.slinky.slurm.net/worker", f"--namespace={NAMESPACE}")


def test_sessions_and_jobs_have_one_root(site: Site) -> None:
    look = "stat --format=%d:%i / /etc/passwd"
    here = site.ssh(look)
    assert site.ssh(f"srun -N2 {look}") == here * 2
    assert site.ground.exec("login-0", *look.split(), namespace=NAMESPACE) == here
    assert site.on_worker("worker-0", *look.split()) != here
    assert site.ssh("which sbatch; srun which sbatch").split() == ["/usr/bin/sbatch"] * 2


def test_what_a_session_writes_jobs_read_and_the_other_way_round(site: Site) -> None:
    site.ssh("echo from the login node > note")
    assert site.ssh("srun -N2 cat note") == "from the login node\n" * 2
    site.ssh("srun -N2 sh -c 'echo from $(uname -n) > note.$SLURMD_NODENAME'")
    assert site.ssh("cat note.worker-0 note.worker-1") == "from worker-0\nfrom worker-1\n"


def test_the_output_of_a_job_is_where_it_was_submitted(site: Site) -> None:
    script = "#!/bin/bash\n#SBATCH --output=job_%j.out\nhostname; pwd\n"
    job = site.ssh(
        "mkdir -p deep && cd deep && cat > job.sh && sbatch --wait --parsable job.sh", stdin=script
    ).strip()
    assert site.ssh(f"cat deep/job_{job}.out").split()[1] == "/home/alice/deep"


def test_a_package_installed_on_the_login_node_is_in_jobs_at_once(site: Site) -> None:
    site.ssh(PACKAGE)
    assert sorted(site.ssh("srun -N2 labtool").splitlines()) == [f"the tool of {it}" for it in WORKERS]
    assert site.ssh("srun dpkg-query --show labtool").split() == ["labtool", "1"]


def test_what_is_compiled_on_the_login_node_runs_in_jobs(site: Site) -> None:
    program = '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n'
    site.ssh("gcc -x c -o program -", stdin=program)
    assert site.ssh("srun ./program") == "compiled\n"


def test_a_user_made_by_useradd_logs_in_and_runs_jobs_everywhere_at_once(site: Site) -> None:
    site.ssh("sudo groupadd --gid 3100 lab")
    site.ssh("sudo useradd --uid 3001 --create-home --groups lab --shell /bin/bash carol")
    place = "umask 077; mkdir /home/carol/.ssh; cat > /home/carol/.ssh/authorized_keys"
    site.ssh(f"sudo -u carol sh -c '{place}'", stdin=(site.home / "id.pub").read_text())
    identity = "uid=3001(carol) gid=3001(carol) groups=3001(carol),3100(lab)\n"
    assert site.ssh("id; srun -N2 id", user="carol") == identity * 3
    asked = "echo $HOME $USER; touch mine; stat --format=%U:%G mine"
    assert site.ssh(f"srun sh -c '{asked}'", user="carol").split() == ["/home/carol", "carol", "carol:carol"]
    site.ssh("sbatch --wait --output=out --wrap='srun id'", user="carol")
    assert site.ssh("cat out", user="carol") == identity

    def accounted() -> bool:
        found = site.ssh("sacct --noheader -X -S now-1days --format=user,state%20", user="carol")
        return found.split() == ["carol", "COMPLETED"] * 3

    site.ground.eventually(accounted, "carol's jobs in the accounts")


def test_files_are_copied(site: Site, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("and back")
    remote = f"alice@{site.address}"
    copies: list[list[str | Path]] = [
        ["scp", *site.options, "-P", site.port, tmp_path / "there", f"{remote}:by-scp"],
        ["scp", "-O", *site.options, "-P", site.port, tmp_path / "there", f"{remote}:by-old-scp"],
    ]
    for words in copies:
        subprocess.run(words, check=True, timeout=180)
    sftp = ["sftp", *site.options, "-P", site.port, "-b", "-", remote]
    subprocess.run(sftp, check=True, timeout=180, text=True, input=f"put {tmp_path}/there by-sftp\n", stdout=-3)
    assert site.ssh("srun cat by-scp by-old-scp by-sftp") == "and back" * 3
    # From a machine that has it: a worker's container, and alice's key for a moment.
    rsync = ("exec", "-i", f"--namespace={NAMESPACE}", "worker-0", "--", "bash", "-euc", RSYNC)
    site.ground.kubectl(*rsync, stdin=(site.home / "id").read_text())
    assert site.ssh("srun ls by-rsync").split() == ["hostname", "hosts"]


def test_a_shell_on_a_node(site: Site) -> None:
    shown = site.ssh(
        "srun --pty bash", "-tt", stdin="test -e /.isthmus/ready && echo $(tty) at $(uname -n)\nexit\n"
    )
    assert "/dev/pts/0 at worker-" in shown
    shown = site.ssh("salloc --quiet", "-tt", stdin="test -e /.isthmus/ready && echo now at $(uname -n)\nexit\n")
    assert "now at worker-" in shown


def test_the_profile_of_a_user_is_that_of_the_root(site: Site) -> None:
    site.ssh("echo 'export PROFILE=mine' >> .profile")
    site.ssh("sbatch --get-user-env --export=NONE --wait --output=profile.out --wrap='echo $PROFILE'")
    assert site.ssh("cat profile.out") == "mine\n"


def test_the_prolog_of_the_root_runs_outside(site: Site) -> None:
    job = site.ssh("srun -w worker-1 printenv SLURM_JOB_ID").strip()
    assert f"{job} outside" in site.ssh("srun -w worker-1 cat /tmp/prologs").splitlines()


def test_volumes_inside_the_root(site: Site) -> None:
    assert site.ssh("cat /data/set/numbers; srun -N2 cat /data/set/numbers") == "1 2 3\n" * 3
    assert site.attempt("srun touch /data/set/more").returncode != 0
    site.ssh("srun -N2 sh -c 'uname -n > /scratch/name'")
    assert site.ssh("srun -w worker-0 cat /scratch/name; srun -w worker-1 cat /scratch/name").split() == [*WORKERS]
    assert site.ssh("srun stat --file-system --format=%T /mnt/memory").strip() == "tmpfs"
    assert site.attempt("ls /scratch/name").returncode != 0
    # Each node has a /tmp of its own, which is everybody's.
    assert site.ssh("srun stat --format=%a /tmp; stat --format=%a /tmp").split() == ["1777", "1777"]
    site.ssh("touch /tmp/here")
    assert site.attempt("srun ls /tmp/here").returncode != 0


def test_root_on_a_login_node_has_no_way_to_the_machine(site: Site) -> None:
    for forbidden in (
        "mount -t tmpfs none /media",
        "umount /proc",
        "chroot /proc/1/root mount -t proc none /media",
    ):
        assert site.attempt(f"sudo {forbidden}").returncode != 0, forbidden
    for place in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"):
        assert site.attempt(f"sudo test -w {place}").returncode != 0, place
    found = site.ssh("sudo find / -xdev -name 'slurm.jwks' -o -xdev -name 'slurm.key'; sudo ls /run/secrets")
    assert found.split() == ["ssh"]


def test_a_hundred_jobs_at_once_leave_nothing_behind(site: Site) -> None:
    def left() -> list[int]:
        """Of each worker: its mount namespaces, mounts and processes."""
        return [int(it) for worker in WORKERS for it in site.on_worker(worker, "bash", "-c", LEFT).split()]

    def at_rest() -> bool:
        idle = site.ssh("sinfo --noheader --Node --format=%T").split() == ["idle", "idle"]
        return idle and not any("slurmstepd: [" in site.on_worker(it, "ps", "-eo", "args") for it in WORKERS)

    site.ssh("srun -N2 true")
    site.ground.eventually(at_rest, "the job to leave its nodes")
    before = left()
    begun = time.monotonic()
    site.ssh("sbatch --wait --array=1-100 --mem=1 --output=/dev/null --wrap=true")
    print(f"100 jobs took {time.monotonic() - begun:.1f} s")  # noqa: T201 - for who watches
    assert "drain" not in site.ssh("sinfo --noheader --format=%T")
    # Not more than before: a probe may have been counted then.
    site.ground.eventually(
        lambda: all(now <= then for now, then in zip(left(), before, strict=True)),
        f"the workers to be as before, {before}",
    )


def test_settings_of_sshd_reach_it_inside(site: Site) -> None:
    site.ground.kubectl(
        *("patch", "loginset/login", f"--namespace={NAMESPACE}", "--type=merge"),
        '--patch={"spec": {"extraSshdConfig": "SetEnv WHERE=inside"}}',
    )
    site.ground.eventually(lambda: site.ssh("echo $WHERE").strip() == "inside", "the new setting")

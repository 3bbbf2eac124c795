"""The shared root end to end: people over SSH and jobs on two nodes have one file system, and one set of users."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.domain.operator.manifests import jail
from tests.bed.commands import attempt, checked
from tests.bed.operator_ground import OperatorGround
from tests.e2e.operator_parts import KEYS, OF_SLURM, SMALL, keys, part
from tests.e2e.site import Site
from tests.e2e.ssh import Ssh

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
def ssh(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    """Alice, and a cluster of two workers and a login node that have one root."""
    data = {"name": "data", "mountPath": "/data/set", "readOnly": True, "volume": {"configMap": {"name": "data"}}}
    scratch = {"name": "scratch", "mountPath": "/scratch", "volume": {"emptyDir": {}}}
    memory = {"name": "memory", "mountPath": "/mnt/memory", "volume": {"emptyDir": {"medium": "Memory"}}}
    with operator_ground.namespace(NAMESPACE) as namespace:
        site = Site(operator_ground, namespace)
        ssh = Ssh.with_new_key(site, tmp_path_factory.mktemp("home"))
        alice = {"name": "alice", "uid": 2001, "sudo": True, "sshPublicKeys": [ssh.public_key]}
        site.apply(
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
        site.ready("controller/slurm", "accounting/slurm", "loginset/login", "nodeset.slinky.slurm.net/worker")
        ssh.reached()
        yield ssh
        site.kubectl("delete", "nodeset.slinky.slurm.net/worker")


def test_sessions_and_jobs_have_one_root(ssh: Ssh) -> None:
    look = "stat --format=%d:%i / /etc/passwd"
    here = ssh.run(look)
    assert ssh.run(f"srun -N2 {look}") == here * 2
    assert ssh.site.exec("login-0", *look.split()) == here
    assert ssh.site.exec("worker-0", *look.split()) != here
    assert ssh.run("which sbatch; srun which sbatch").split() == ["/usr/bin/sbatch"] * 2


def test_what_a_session_writes_jobs_read_and_the_other_way_round(ssh: Ssh) -> None:
    ssh.run("echo from the login node > note")
    assert ssh.run("srun -N2 cat note") == "from the login node\n" * 2
    ssh.run("srun -N2 sh -c 'echo from $(uname -n) > note.$SLURMD_NODENAME'")
    assert ssh.run("cat note.worker-0 note.worker-1") == "from worker-0\nfrom worker-1\n"


def test_the_output_of_a_job_is_where_it_was_submitted(ssh: Ssh) -> None:
    script = "#!/bin/bash\n#SBATCH --output=job_%j.out\nhostname; pwd\n"
    job = ssh.run(
        "mkdir -p deep && cd deep && cat > job.sh && sbatch --wait --parsable job.sh", stdin=script
    ).strip()
    assert ssh.run(f"cat deep/job_{job}.out").split()[1] == "/home/alice/deep"


def test_a_package_installed_on_the_login_node_is_in_jobs_at_once(ssh: Ssh) -> None:
    ssh.run(PACKAGE)
    assert sorted(ssh.run("srun -N2 labtool").splitlines()) == [f"the tool of {it}" for it in WORKERS]
    assert ssh.run("srun dpkg-query --show labtool").split() == ["labtool", "1"]


def test_what_is_compiled_on_the_login_node_runs_in_jobs(ssh: Ssh) -> None:
    program = '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n'
    ssh.run("gcc -x c -o program -", stdin=program)
    assert ssh.run("srun ./program") == "compiled\n"


def test_a_user_made_by_useradd_logs_in_and_runs_jobs_everywhere_at_once(ssh: Ssh) -> None:
    ssh.run("sudo groupadd --gid 3100 lab")
    ssh.run("sudo useradd --uid 3001 --create-home --groups lab --shell /bin/bash carol")
    place = "umask 077; mkdir /home/carol/.ssh; cat > /home/carol/.ssh/authorized_keys"
    ssh.run(f"sudo -u carol sh -c '{place}'", stdin=ssh.public_key)
    identity = "uid=3001(carol) gid=3001(carol) groups=3001(carol),3100(lab)\n"
    assert ssh.run("id; srun -N2 id", user="carol") == identity * 3
    asked = "echo $HOME $USER; touch mine; stat --format=%U:%G mine"
    assert ssh.run(f"srun sh -c '{asked}'", user="carol").split() == ["/home/carol", "carol", "carol:carol"]
    ssh.run("sbatch --wait --output=out --wrap='srun id'", user="carol")
    assert ssh.run("cat out", user="carol") == identity

    ssh.site.eventually(
        lambda: ssh.run("sacct --noheader -X -S now-1days --format=user,state%20", user="carol").split(),
        "carol's jobs in the accounts",
        holds=lambda it: it == ["carol", "COMPLETED"] * 3,
    )


def test_files_are_copied(ssh: Ssh, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("and back")
    remote = f"alice@{ssh.address}"
    reach = (*ssh.options, "-P", ssh.port)
    checked(attempt("scp", *reach, tmp_path / "there", f"{remote}:by-scp"))
    checked(attempt("scp", "-O", *reach, tmp_path / "there", f"{remote}:by-old-scp"))
    checked(attempt("sftp", *reach, "-b", "-", remote, stdin=f"put {tmp_path}/there by-sftp\n"))
    assert ssh.run("srun cat by-scp by-old-scp by-sftp") == "and back" * 3
    # From a machine that has it: a worker's container, and alice's key for a moment.
    ssh.site.exec("worker-0", "bash", "-euc", RSYNC, stdin=ssh.key.read_text())
    assert ssh.run("srun ls by-rsync").split() == ["hostname", "hosts"]


def test_a_shell_on_a_node(ssh: Ssh) -> None:
    shown = ssh.run("srun --pty bash", "-tt", stdin="test -e /.isthmus/ready && echo $(tty) at $(uname -n)\nexit\n")
    assert "/dev/pts/0 at worker-" in shown
    shown = ssh.run("salloc --quiet", "-tt", stdin="test -e /.isthmus/ready && echo now at $(uname -n)\nexit\n")
    assert "now at worker-" in shown


def test_the_profile_of_a_user_is_that_of_the_root(ssh: Ssh) -> None:
    ssh.run("echo 'export PROFILE=mine' >> .profile")
    ssh.run("sbatch --get-user-env --export=NONE --wait --output=profile.out --wrap='echo $PROFILE'")
    assert ssh.run("cat profile.out") == "mine\n"


def test_the_prolog_of_the_root_runs_outside(ssh: Ssh) -> None:
    job = ssh.run("srun -w worker-1 printenv SLURM_JOB_ID").strip()
    assert f"{job} outside" in ssh.run("srun -w worker-1 cat /tmp/prologs").splitlines()


def test_volumes_inside_the_root(ssh: Ssh) -> None:
    assert ssh.run("cat /data/set/numbers; srun -N2 cat /data/set/numbers") == "1 2 3\n" * 3
    assert "Read-only file system" in ssh.attempt("srun touch /data/set/more").stderr
    ssh.run("srun -N2 sh -c 'uname -n > /scratch/name'")
    assert ssh.run("srun -w worker-0 cat /scratch/name; srun -w worker-1 cat /scratch/name").split() == [*WORKERS]
    assert ssh.run("srun stat --file-system --format=%T /mnt/memory").strip() == "tmpfs"
    assert "No such file" in ssh.attempt("ls /scratch/name").stderr
    # Each node has a /tmp of its own, which is everybody's.
    assert ssh.run("srun stat --format=%a /tmp; stat --format=%a /tmp").split() == ["1777", "1777"]
    ssh.run("touch /tmp/here")
    assert "No such file" in ssh.attempt("srun ls /tmp/here").stderr


def test_root_on_a_login_node_has_no_way_to_the_machine(ssh: Ssh) -> None:
    for forbidden in (
        "mount -t tmpfs none /media",
        "umount /proc",
        "chroot /proc/1/root mount -t proc none /media",
    ):
        refused = ssh.attempt(f"sudo {forbidden}").stderr
        assert re.search("permission denied|must be superuser", refused, re.IGNORECASE), f"{forbidden}: {refused}"
    for place in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"):
        assert ssh.attempt(f"sudo test -w {place}").returncode != 0, place
    look = "grep ^Seccomp: /proc/self/status"
    assert ssh.run(f"{look}; sudo {look}; srun {look}").split() == ["Seccomp:", "2"] * 3
    found = ssh.run("sudo find / -xdev -name 'slurm.jwks' -o -xdev -name 'slurm.key'; sudo ls /run/secrets")
    assert found.split() == ["ssh"]


def test_many_jobs_at_once_leave_nothing_behind(ssh: Ssh) -> None:
    def left() -> list[int]:
        """Of each worker: its mount namespaces, mounts and processes."""
        return [int(it) for worker in WORKERS for it in ssh.site.exec(worker, "bash", "-c", LEFT).split()]

    def busy() -> list[str]:
        """Of each worker: its state, and what runs of jobs."""
        processes = [line for it in WORKERS for line in ssh.site.exec(it, "ps", "-eo", "args").splitlines()]
        states = [it for it in ssh.site.states().values() if it != "idle"]
        return [*states, *(it for it in processes if "slurmstepd: [" in it)]

    ssh.run("srun -N2 true")
    ssh.site.eventually(busy, "the job to leave its nodes", holds=lambda it: not it)
    before = left()
    begun = time.monotonic()
    ssh.run("sbatch --wait --array=1-40 --mem=1 --output=/dev/null --wrap=true")
    print(f"40 jobs took {time.monotonic() - begun:.1f} s")  # noqa: T201 - for who watches
    assert "drain" not in ssh.run("sinfo --noheader --format=%T")
    # Not more than before: a probe may have been counted then.
    ssh.site.eventually(
        left,
        f"the workers to be as before, {before}",
        holds=lambda it: all(now <= then for now, then in zip(it, before, strict=True)),
    )


def test_settings_of_sshd_reach_it_inside(ssh: Ssh) -> None:
    ssh.site.patch("loginset/login", {"spec": {"extraSshdConfig": "SetEnv WHERE=inside"}})
    ssh.site.eventually(lambda: ssh.run("echo $WHERE"), "the new setting", holds=lambda it: it == "inside\n")

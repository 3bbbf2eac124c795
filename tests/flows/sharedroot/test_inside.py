"""What a job sees and may do: all of the shared root, as on one big machine."""

from collections.abc import Callable

from tests.bed.jail import JAIL, JailBed
from tests.bed.slurm_box import wait_until
from tests.flows.sharedroot.jobs import HOME, output, run, srun, submit, wait_for

JailFactory = Callable[..., JailBed]

# Prints `inside` or `outside`, in any shell.
WHERE = "if [ -e /outside ]; then echo outside; elif [ -e /.isthmus/ready ]; then echo inside; fi"


def on_terminal(bed: JailBed, command: str, *, typed: str = "") -> None:
    """Run a command of root's on a terminal."""
    bed.command("script", "--quiet", "--return", "--command", command, "/dev/null", stdin=typed)


# --- one root on every node --------------------------------------------------------------------------------------


def test_what_a_job_writes_on_one_node_is_read_on_the_other(jail: JailBed) -> None:
    srun(jail, 'echo "from $SLURMD_NODENAME" > message', "--nodelist=n1")
    assert srun(jail, "cat message; hostname", "--nodelist=n2") == "from n1\nn2\n"


def test_every_kind_of_step_is_inside(jail: JailBed) -> None:
    assert srun(jail, WHERE, "--nodes=2") == "inside\ninside\n"
    assert run(jail, f"{WHERE}; srun --nodes=1 bash -c '{WHERE}'") == "inside\ninside\n"


def test_a_step_on_a_terminal_is_inside(jail: JailBed) -> None:
    on_terminal(jail, f"srun --pty bash -c '({WHERE}; tty) > /from-pty'")
    place, terminal = jail.path(f"{JAIL}/from-pty").read_text().split()
    assert place == "inside"
    assert terminal.startswith("/dev/pts/")


def test_the_shell_of_an_allocation_is_inside(jail: JailBed) -> None:
    typed = f"({WHERE}; echo $SLURM_STEP_ID) > /from-salloc; exit\n"
    on_terminal(jail, "SHELL=/bin/bash salloc --quiet", typed=typed)
    place, step = jail.path(f"{JAIL}/from-salloc").read_text().split()
    assert place == "inside"
    # The number of an interactive step, which Slurm prints with or without a sign.
    assert int(step) % 2**32 == 0xFFFF_FFFA


def test_every_task_of_an_array_is_inside(jail: JailBed) -> None:
    job = submit(jail, f"{WHERE} > array_$SLURM_ARRAY_TASK_ID", "--array=1-4")
    wait_for(jail, job, "COMPLETED")
    texts = [jail.path(f"{JAIL}{HOME}/array_{number}").read_text() for number in range(1, 5)]
    assert texts == ["inside\n"] * 4


def test_several_tasks_on_a_node_share_one_root(jail: JailBed) -> None:
    seen = srun(jail, "readlink /proc/self/ns/mnt", "--ntasks=3", "--nodes=1", "--overcommit").split()
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_a_step_of_root_is_inside(jail: JailBed) -> None:
    assert srun(jail, WHERE, user="root") == "inside\n"


# --- as on a physical cluster ------------------------------------------------------------------------------------


def test_slurms_commands_are_where_they_always_are_and_work(jail: JailBed) -> None:
    seen = run(
        jail, "which sbatch; sinfo --noheader --format=%D; sbatch --parsable --output=second --wrap='id -un'"
    )
    where, nodes, second = seen.split()
    assert (where, nodes) == ("/usr/bin/sbatch", "2")
    wait_for(jail, second, "COMPLETED")
    assert jail.path(f"{JAIL}{HOME}/second").read_text() == "alice\n"


def test_output_lands_where_the_user_submitted(jail: JailBed) -> None:
    job = submit(jail, "echo here")
    wait_for(jail, job, "COMPLETED")
    assert output(jail, job) == "here\n"
    assert srun(jail, f"stat --format=%U job_{job}.out") == "alice\n"


def test_the_working_directory_is_kept(jail: JailBed) -> None:
    assert srun(jail, "pwd") == f"{HOME}\n"


def test_a_working_directory_that_is_not_inside_gives_way_to_tmp(jail: JailBed) -> None:
    jail.path("/only-outside").mkdir(exist_ok=True)
    assert jail.command("srun", "--quiet", "--chdir=/only-outside", "pwd", user="alice") == "/tmp\n"  # noqa: S108


def test_the_environment_is_left_alone(jail: JailBed) -> None:
    assert srun(jail, 'echo "$HOME $COLOUR"', "--export=HOME=/home/alice,COLOUR=blue,PATH") == "/home/alice blue\n"


def test_limits_are_left_alone(jail: JailBed) -> None:
    limited = f"ulimit -n 517; ulimit -c 0; srun --chdir={HOME} bash -c 'ulimit -n; ulimit -c'"
    assert jail.command("bash", "-c", limited, user="alice") == "517\n0\n"


def test_proc_shows_the_processes_of_the_node(jail: JailBed) -> None:
    shown = srun(jail, 'cat /proc/$PPID/comm; stat --file-system --format=%T /proc; grep -c " /proc " /proc/mounts')
    stepd, kind, mounts = shown.split()
    assert stepd.startswith("slurmstepd")
    assert (kind, mounts) == ("proc", "1")


def test_devices_and_control_groups_are_the_nodes_own(jail: JailBed) -> None:
    def identity(path: str) -> str:
        return f"stat --format='%d %i %t %T' {path}"

    for path in ("/dev/null", "/dev/shm", "/dev/pts", "/sys/fs/cgroup"):  # noqa: S108 - that very directory
        assert srun(jail, identity(path)) == jail.on_node("n1", "bash", "-c", identity(path)), path
    srun(jail, "echo test > /dev/null && head -c1 /dev/urandom > /dev/null")


def test_users_and_groups_are_those_of_the_shared_root(jail: JailBed) -> None:
    with jail.path(f"{JAIL}/etc/group").open("a") as groups:
        groups.write("physicists:x:5001:alice\n")
    assert srun(jail, "getent group physicists") == "physicists:x:5001:alice\n"


# --- mounts ------------------------------------------------------------------------------------------------------


def test_volumes_below_the_shared_root_come_along(jail: JailBed) -> None:
    jail.on_node("n1", "mount", "-t", "tmpfs", "data", f"{JAIL}/srv")
    jail.on_node("n1", "touch", f"{JAIL}/srv/data-set")
    try:
        assert srun(jail, "ls /srv", "--nodelist=n1") == "data-set\n"
    finally:
        jail.on_node("n1", "umount", f"{JAIL}/srv")


def test_what_the_node_mounts_later_is_seen_by_a_running_job(jail: JailBed) -> None:
    jail.on_node("n1", "mount", "--make-shared", JAIL)
    job = submit(jail, "until [ -e /media/late ]; do sleep 0.02; done; ls /media", "--nodelist=n1")
    try:
        wait_for(jail, job, "RUNNING")
        wait_until(lambda: jail.path(f"{JAIL}{HOME}/job_{job}.out").exists(), what="the job runs", within=60)
        jail.on_node("n1", "mount", "-t", "tmpfs", "late", f"{JAIL}/media")
        jail.on_node("n1", "touch", f"{JAIL}/media/late")
        wait_for(jail, job, "COMPLETED")
        assert output(jail, job) == "late\n"
    finally:
        jail.command("scancel", job)
        jail.on_node("n1", "umount", f"{JAIL}/media")
        jail.on_node("n1", "mount", "--make-private", JAIL)


def test_what_a_job_of_root_mounts_is_not_seen_on_the_node_nor_by_others(jail: JailBed) -> None:
    jail.on_node("n1", "mount", "--make-shared", JAIL)
    try:
        before = jail.on_node("n1", "cat", "/proc/self/mounts")
        script = "mount -t tmpfs mine /opt && touch /opt/mine && srun --overlap ls -A /opt && ls /opt"
        assert run(jail, script, "--nodelist=n1", user="root") == "mine\n"
        assert jail.on_node("n1", "cat", "/proc/self/mounts") == before
    finally:
        jail.on_node("n1", "mount", "--make-private", JAIL)


# --- order -------------------------------------------------------------------------------------------------------

_NOTE = f"""#!/bin/sh
if [ -e /outside ]; then place=outside root={JAIL}; else place=inside root=; fi
echo "${{0##*/}} $place" >> $root/order
"""


def test_prolog_and_epilog_are_outside_and_those_of_tasks_inside(jail_bed: JailFactory, slurm_version: str) -> None:
    scripts = {name: f"/usr/local/bin/{name}" for name in ("Prolog", "TaskProlog", "TaskEpilog", "Epilog")}
    bed = jail_bed(slurm_version, nodes=1, settings=scripts)
    for place in ("", JAIL):
        for path in scripts.values():
            bed.path(place + path).write_text(_NOTE)
            bed.path(place + path).chmod(0o755)
    order = bed.path(f"{JAIL}/order")
    order.touch()
    order.chmod(0o666)
    own = f"{HOME}/user-epilog"
    bed.path(f"{JAIL}{own}").write_text(_NOTE)
    bed.path(f"{JAIL}{own}").chmod(0o755)
    srun(bed, 'echo "job inside" >> /order', f"--task-epilog={own}")
    expected = [
        "Prolog outside",
        "TaskProlog inside",
        "job inside",
        "user-epilog inside",
        "TaskEpilog inside",
        "Epilog outside",
    ]
    wait_until(lambda: "Epilog outside" in order.read_text(), what="the epilog ran", within=60)
    assert order.read_text().splitlines() == expected


def test_the_environment_of_a_login_is_that_of_the_shared_root(jail_bed: JailFactory, slurm_version: str) -> None:
    """For `--get-user-env` slurmd runs `su`, outside; so on a node of a shared root, `su` has to enter it first."""
    bed = jail_bed(slurm_version, nodes=1)
    bed.path("/usr/bin/su").unlink()
    bed.path("/usr/bin/su").write_text(f'#!/bin/sh\nexec /usr/sbin/isthmus-enter root={JAIL} -- /usr/bin/su "$@"\n')
    bed.path("/usr/bin/su").chmod(0o755)
    for place in ("", JAIL):
        with bed.path(f"{place}/etc/shadow").open("a") as shadow:
            shadow.write("alice:*:20000::::::\n")
        bed.path(f"{place}/tmp/.profile").write_text(f"export PROFILE=$({WHERE})\n")  # noqa: S108 - alice's HOME
    assert run(bed, "echo $PROFILE", "--get-user-env", "--export=NONE") == "inside\n"

"""An ordinary user's job does not get out of the shared root, whatever it tries.

Every attempt looks for the file /outside, which anyone may read and which only the nodes' own root has. They are
made in a batch job: `srun` would be a process of the user's outside, on a bed whose login node is one of its nodes.
"""

import pytest

from tests.bed.jail import JAIL, JailBed
from tests.bed.slurm_box import wait_until
from tests.flows.sharedroot.jobs import HOME, output, run, run_alone, srun, submit, wait_for

# Each prints ESCAPED if it gets out.
ATTEMPTS = {
    "the roots and working directories of other processes": """
        for place in /proc/[0-9]*/{root,cwd} /proc/[0-9]*/task/[0-9]*/{root,cwd}; do
            for up in "" /.. /../../../..; do [ ! -e $place$up/outside ] || echo ESCAPED by $place; done
        done""",
    "open files of other processes": """
        for place in /proc/[0-9]*/fd/* /proc/[0-9]*/task/[0-9]*/fd/*; do
            [ ! -e $place/outside ] || echo ESCAPED by $place
        done""",
    "mount namespaces of other processes": """
        for namespace in /proc/[0-9]*/ns/mnt; do
            nsenter --mount=$namespace test -e /outside && echo ESCAPED by $namespace
        done""",
    "dots": "[ ! -e /../../../outside ] || echo ESCAPED; cd /; cd ../../..; [ ! -e outside ] || echo ESCAPED",
    "symbolic links": """
        ln -sfn /proc/1/root link-1; ln -sfn /proc/$PPID/root link-2; ln -sfn /../../.. link-3
        for link in link-*; do [ ! -e $link/outside ] || echo ESCAPED by $link; done""",
    # PTRACE_SEIZE, which unlike PTRACE_ATTACH does not stop who is traced.
    "another process's memory": """
        for process in $(find /proc -maxdepth 1 -user root -name '[0-9]*' -printf '%f '); do
            perl -e 'exit !open(my $memory, "+<", "/proc/$ARGV[0]/mem")' $process && echo ESCAPED by memory
            perl -e 'exit(syscall(101, 0x4206, 0 + $ARGV[0], 0, 0) == -1)' $process && echo ESCAPED by ptrace
        done""",
    "programs that run as root": """
        umount --lazy /proc; umount --lazy /; mount --bind /proc/1/root /mnt; mount --move / /mnt
        su --command='ls /proc/1/root' < /dev/null
        [ ! -e /outside ] && [ ! -e /mnt/outside ] || echo ESCAPED""",
    "taking mounts away as root of a namespace of one's own": """
        unshare --map-root-user --mount bash -c '
            while read -r _ _ _ _ place _; do umount --lazy $place; done < <(tac /proc/self/mountinfo)
            [ ! -e /outside ] || echo ESCAPED
            mount --rbind / /mnt; umount --lazy /mnt/proc; /usr/sbin/pivot_root /mnt /mnt/mnt
            [ ! -e /outside ] && [ ! -e /mnt/outside ] || echo ESCAPED'""",
    "leaving a second root by an open directory": """
        unshare --map-root-user --mount perl -e '
            mkdir "/tmp/second"; opendir(my $here, "/") or die; chroot("/tmp/second") or die;
            syscall(81, fileno($here)) == 0 or die; chdir("..") for 1 .. 64; chroot(".") or die;
            print "ESCAPED\\n" if -e "/outside"'""",
    "files by their numbers": """
        perl -e 'opendir(my $here, "/") or die; my $handle = pack("IiC16", 8, 1, 2, (0) x 15);
            my $fd = syscall(304, fileno($here), $handle, 0); print "ESCAPED\\n" if $fd >= 0'""",
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_no_way_out_by(jail: JailBed, attempt: str) -> None:
    shown = run_alone(jail, f"{{ {ATTEMPTS[attempt]}\n}} 2>&1; echo tried")
    assert "ESCAPED" not in shown
    assert shown.endswith("tried\n")


def test_the_attempts_would_be_noticed(jail: JailBed) -> None:
    """Root does get out: it may do anything on the node. So a job of root's shows that attempts are real ones."""
    attempts = [
        ATTEMPTS[name]
        for name in (
            "the roots and working directories of other processes",
            "mount namespaces of other processes",
            "symbolic links",
            "another process's memory",
        )
    ]
    for attempt in attempts:
        assert "ESCAPED" in run(jail, f"{attempt}\ntrue", user="root")


def test_no_file_but_its_own_is_open_in_a_job(jail: JailBed) -> None:
    listing = "for file in /proc/$$/fd/*; do readlink $file; done; true"
    own = ("/dev/null", f"{HOME}/job_", "/var/spool/slurmd/")
    assert [name for name in run(jail, listing).split() if not name.startswith(own)] == []
    assert [name for name in srun(jail, listing).split() if not name.startswith("pipe:")] == []


def test_no_process_of_the_user_has_a_root_outside_while_jobs_start(jail: JailBed) -> None:
    """While jobs start one after the other, look at everything of the user's as fast as can be."""
    # A step that had to wait for the last one's processor may not hear from 24.11 that it is free.
    step = "srun --overlap --mem=1 true"
    # All submitted before anybody looks: `sbatch` is a process of the user's outside.
    started = submit(jail, f"{step}; {step}", "--hold", "--nodelist=n1", "--mem=1", "--array=1-12")
    watch = submit(
        jail,
        """
        echo watching
        until [ -e stop-watching ]; do
            for place in /proc/[0-9]*/{root,cwd}; do [ ! -e $place/outside ] || echo ESCAPED by $place; done
        done
        rm stop-watching""",
        *("--hold", "--nodelist=n1", "--mem=1"),
    )
    try:
        jail.scontrol("release", watch)
        wait_until(lambda: output(jail, watch) == "watching\n", what="the job watches", within=60)
        jail.scontrol("release", started)
        wait_for(jail, started, "COMPLETED", within=180)
        jail.path(f"{JAIL}{HOME}/stop-watching").touch()
        wait_for(jail, watch, "COMPLETED")
    finally:
        jail.command("scancel", watch, started)
    assert output(jail, watch) == "watching\n"

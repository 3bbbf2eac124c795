"""Whom `useradd` makes in the shared root can run jobs at once, though slurmctld has never heard of him."""

import os
from collections.abc import Callable

from tests.bed.jail import JAIL, SETTINGS, JailBed, LoginNode

CAROL = 3001
IDENTITY = "uid=3001(carol) gid=3001(carol) groups=3001(carol),3100(lab)\n"


def _useradd(bed: JailBed) -> None:
    """Do what useradd and groupadd do, in place: the daemons of the bed have these files mounted."""
    for file, text in (
        ("passwd", f"carol:x:{CAROL}:{CAROL}::/home/carol:/bin/bash\n"),
        ("group", f"carol:x:{CAROL}:\nlab:x:3100:carol\n"),
    ):
        with bed.path(f"{JAIL}/etc/{file}").open("a") as users:
            users.write(text)
    home = bed.path(f"{JAIL}/home/carol")
    home.mkdir()
    os.chown(home, CAROL, CAROL)


def test_a_user_of_the_shared_root_alone_runs_jobs(jail_bed: Callable[..., JailBed], slurm_version: str) -> None:
    bed = jail_bed(slurm_version, nodes=2, settings={**SETTINGS, "AuthInfo": "use_client_ids"})
    with LoginNode(bed) as login:
        _useradd(bed)
        assert login.run("srun -N2 id", uid=CAROL) == IDENTITY * 2
        batch = "sbatch --quiet -N2 --wait --output=out --wrap='id; srun -N2 id'; cat out"
        assert login.run(batch, uid=CAROL) == IDENTITY * 3
        assert login.run("squeue --noheader --states=all --format=%u", uid=CAROL).split() == ["carol", "carol"]
    assert "carol" not in bed.path("/etc/passwd").read_text()

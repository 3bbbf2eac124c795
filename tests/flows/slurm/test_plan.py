"""What Slurm's own parser says of a slurm.conf that is not applied."""

from collections.abc import Sequence

from isthmus.inspect.plan import refusals
from isthmus.slurm.commands import Done
from tests.bed.slurm import SlurmBed


async def test_what_slurm_would_not_understand_is_told_without_touching_it(slurm: SlurmBed) -> None:
    async def run(words: Sequence[str], fed: bytes) -> Done:
        return Done(0, slurm.command(*words, stdin=fed.decode()).encode())

    now = slurm.path("/etc/slurm/slurm.conf").read_text()
    good = {"slurm.conf": f"{now}MaxArraySize=2000\n"}
    assert await refusals(run, {"slurm.conf": now}, good) == ()
    bad = {"slurm.conf": f"{now}Fantasy=yes\n", "cgroup.conf": ""}
    assert await refusals(run, {"slurm.conf": now}, bad) == ("Parsing error at unrecognized key: Fantasy",)
    assert await refusals(run, bad, bad) == (), "it is so already"
    assert slurm.path("/etc/slurm/slurm.conf").read_text() == now

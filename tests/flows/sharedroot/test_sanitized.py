"""The plugin and `isthmus-enter`, compiled with sanitizers: nothing they do is undefined or out of bounds."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from isthmus.local.images.recipes import ENTER
from isthmus.local.images.sources import SPANK
from tests.bed import logs
from tests.bed.jail import COMPILER, JAIL, OPTIONS, READY, SANITIZER_LOG, JailBed
from tests.bed.slurm_box import wait_until
from tests.flows.sharedroot.jobs import reason, run, srun

pytestmark = pytest.mark.long


def reports(bed: JailBed) -> list[str]:
    directory, _, prefix = SANITIZER_LOG.rpartition("/")
    return [
        path.read_text()
        for place in ("", JAIL, COMPILER)
        for path in bed.path(place + directory).glob(f"{prefix}*")
    ]


@pytest.fixture(scope="module")
def beds() -> Iterator[Callable[[str], JailBed]]:
    """Give the bed of a version, whose plugin is compiled once."""
    running: dict[str, JailBed] = {}
    with ExitStack() as stack:

        def give(version: str) -> JailBed:
            if version not in running:
                running[version] = stack.enter_context(JailBed(version, sanitized=True))
            return running[version]

        yield give


@pytest.fixture
def bed(request: pytest.FixtureRequest, beds: Callable[[str], JailBed], slurm_version: str) -> Iterator[JailBed]:
    bed = beds(slurm_version)
    with logs.shown(request.config, name=f"sanitized-{slurm_version}", directory=bed.log_directory):
        yield bed
        assert reports(bed) == []


@contextmanager
def not_filled(bed: JailBed) -> Iterator[None]:
    """Let the shared root look as if nobody had filled it."""
    away = bed.path(READY).rename(bed.path(f"{JAIL}/.isthmus/away"))
    try:
        yield
    finally:
        away.rename(bed.path(READY))


def test_steps_start_and_end(bed: JailBed) -> None:
    maps = srun(bed, "grep --only-matching --max-count=1 libasan /proc/$PPID/maps", user="root")
    assert maps == "libasan\n", "slurmstepd runs with sanitizers"
    assert srun(bed, "hostname", "--nodes=2", "--ntasks=4", "--overcommit").split().count("n1") == 2
    # By name: of two nodes on which the last job ends, the other one may be free first.
    assert run(bed, "srun hostname", "--nodelist=n1") == "n1\n"


def test_a_bad_root_is_refused(bed: JailBed) -> None:
    with not_filled(bed):
        with pytest.raises(RuntimeError):
            srun(bed, "true", "--nodelist=n1")
        wait_until(lambda: reason(bed, "n1"), what="the node is drained", within=60)
    bed.scontrol("update", "nodename=n1", "state=resume")


@pytest.mark.parametrize("slurm_version", ["26.05"])
def test_all_kinds_of_words_are_read(bed: JailBed) -> None:
    long = "/x" * 2047
    for words, why in (
        ([], "plugstack.conf: isthmus_jail.so needs root="),
        ([""], "plugstack.conf:  is no option of"),
        (["root"], "plugstack.conf: root is no option of"),
        (["root="], "plugstack.conf: root= is no absolute path"),
        (["root=//"], "plugstack.conf: root=// is no absolute path"),
        (["root=/a/"], "plugstack.conf: root=/a/ is no absolute path"),
        (["root=/a/./b"], "plugstack.conf: root=/a/./b is no absolute path"),
        (["root=/a/.."], "plugstack.conf: root=/a/.. is no absolute path"),
        ([f"root=/a{long}"], "plugstack.conf: root=/a/x/x"),
        ([f"root={long}"], "shared root /x/x"),
        (["root=/...", "bind=/.hidden"], "shared root /... is missing"),
        (["root=/a", "root=/b"], "plugstack.conf: isthmus_jail.so has two roots, /a and /b"),
        (["root=/a", *["bind=/b"] * 32], "shared root /a is missing"),
        (["root=/a", *["bind=/b"] * 33], "plugstack.conf: isthmus_jail.so takes 32 times bind= at most"),
    ):
        with pytest.raises(RuntimeError, match="ended with 125") as told:
            enter(bed, *words)
        assert f"isthmus-enter: {why}" in str(told.value)


@pytest.mark.parametrize("slurm_version", ["26.05"])
def test_a_root_is_looked_at_and_entered(bed: JailBed) -> None:
    assert enter(bed, *OPTIONS) == ""
    assert enter(bed, *OPTIONS, "--", "cat", "/.isthmus/ready") == ""
    assert "/outside" not in enter(bed, *OPTIONS, "--", "find", "/", "-maxdepth", "1")
    with pytest.raises(RuntimeError, match=r"ended with 127: isthmus-enter: nonsense: No such file"):
        enter(bed, *OPTIONS, "--", "nonsense")
    with pytest.raises(RuntimeError, match="ended with 125: isthmus-enter: /dev/null/x, which jobs are to see"):
        enter(bed, *OPTIONS, "bind=/dev/null/x", "--", "true")
    with (
        not_filled(bed),
        pytest.raises(RuntimeError, match="ended with 125: isthmus-enter: shared root /mnt/jail is not filled"),
    ):
        enter(bed, *OPTIONS)


def enter(bed: JailBed, *words: str) -> str:
    """Run the sanitized isthmus-enter."""
    program = f"{COMPILER}/{SPANK}/{ENTER.rpartition('/')[2]}"
    libraries = f"{COMPILER}/usr/lib/x86_64-linux-gnu"
    options = (f"ASAN_OPTIONS=log_path={SANITIZER_LOG}", f"UBSAN_OPTIONS=log_path={SANITIZER_LOG}")
    return bed.command("env", f"LD_LIBRARY_PATH={libraries}", *options, program, *words)

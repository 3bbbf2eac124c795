"""Filling and refreshing a shared root with the real command: killed, crowded out, misled, and started again.

Each seed of the first tests kills at other moments, and lets users write something else in between. Every moment is
tried on a smaller root, in `test_killed.py`. A seed that failed is run again by its number:

    ISTHMUS_SEEDS=17, .venv/bin/pytest tests/flows/sharedroot/test_populate.py
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path

import msgspec
import pytest

from isthmus.errors import Retry, Terminal
from isthmus.sharedroot import lock, operations, rename
from isthmus.sharedroot.executor import Filler
from tests.bed.killing import Killer
from tests.bed.seeds import seeds
from tests.bed.trees import FIT, Dir, File, Hard, Link, Node, links, make, seen

ISTHMUS = Path(sys.executable).with_name("isthmus")


def jail(command: str, root: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [ISTHMUS, "jail", command, f"--root={root}", *words]
    return subprocess.run(argv, check=False, capture_output=True, text=True)


def started(command: str, root: Path, image: Path) -> subprocess.Popen[str]:
    argv = [str(ISTHMUS), "jail", command, f"--root={root}", f"--source={image}"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def done(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def an_image(top: Path, *, version: int, choose: random.Random, files: int = 300) -> Path:
    """An image in which a third of the files differs from version to version, and some exist in one only."""
    tree: dict[str, Node] = {**FIT, "usr/share": Dir()}
    steady = random.Random(1)  # noqa: S311 - the same in every version
    for number in range(files):
        directory = f"usr/share/d{number % 7}"
        tree[directory] = Dir()
        name = f"{directory}/f{number}" if number % 10 else f"{directory}/v{version}-f{number}"
        source = choose if number % 3 == 0 else steady
        tree[name] = File(source.randbytes(source.choice([0, 10, 5_000, 100_000])), source.choice([0o644, 0o755]))
    tree["usr/share/another-name"] = Hard("usr/share/d1/f1")
    tree["usr/share/link"] = Link(f"d{version}")
    return make(top, tree)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return an_image(tmp_path / "image", version=1, choose=random.Random(0))  # noqa: S311 - to be repeated


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "root"
    directory.mkdir()
    return directory


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    with Killer() as one:
        yield one


@contextlib.contextmanager
def small(place: Path, *, megabytes: int) -> Iterator[Path]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


# Killed at any moment


class Users:
    """What users write while nobody is looking, to be found again at the end."""

    def __init__(self, root: Path, choose: random.Random) -> None:
        self._root, self._choose = root, choose
        self.wrote: dict[str, bytes] = {}

    def write(self, paths: list[str]) -> None:
        """Write something new, and change or make one of the image's files."""
        number = len(self.wrote)
        for path in (f"home/alice/{number}", self._choose.choice(paths)):
            content = f"of a user, {number}".encode()
            place = self._root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            place.write_bytes(content)
            self.wrote[path] = content


def plain_files(image: Path) -> list[str]:
    return sorted(path for path in seen(image) if "/d" in path and "/f" in path and path != "usr/share/d1/f1")


@pytest.mark.parametrize("seed", seeds())
def test_a_root_is_filled_exactly_however_often_it_is_killed(
    seed: int, image: Path, root: Path, killer: Killer
) -> None:
    choose = random.Random(seed)  # noqa: S311 - to be repeated
    users, wanted = Users(root, choose), seen(image)
    for _ in range(6):
        if not killer.run("populate", root, image, until=choose.randrange(1, 1200)):
            break  # little was left to do: what it says must be true
        for path, found in seen(root).items():
            if path in wanted and path not in users.wrote and isinstance(found[-1], dict):
                assert found == wanted[path], f"{path} has its name, but is not whole"
        if choose.random() < 0.5:
            users.write(plain_files(image))
    done(jail("populate", root, f"--source={image}"))
    compare(root, image, users)
    assert sorted(it.name for it in (root / ".isthmus").iterdir()) == ["lock", "manifest", "ready"]
    assert "Already filled" in done(jail("populate", root, f"--source={image}"))


@pytest.mark.parametrize("seed", seeds())
def test_a_root_is_refreshed_exactly_however_often_it_is_killed(
    seed: int, tmp_path: Path, root: Path, killer: Killer
) -> None:
    choose = random.Random(seed)  # noqa: S311 - to be repeated
    images = [an_image(tmp_path / str(it), version=it, choose=random.Random(it)) for it in range(3)]  # noqa: S311 - likewise
    done(jail("populate", root, f"--source={images[0]}"))
    users = Users(root, choose)
    users.write(plain_files(images[0]))
    # Killed on the way to one image, it goes on to another.
    for image in (images[1], images[1], images[2], images[1]):
        killer.run("refresh", root, image, until=choose.randrange(1, 700))
        assert (root / ".isthmus/ready").exists()
    done(jail("refresh", root, f"--source={images[2]}"))
    compare(root, images[2], users)


def compare(root: Path, image: Path, users: Users) -> None:
    """Hold a root against its image and what users wrote: nothing lost, nothing else."""
    for path, content in users.wrote.items():
        assert (root / path).read_bytes() == content
    now, wanted = seen(root), seen(image)
    beside = {f"{path}.isthmus-new" for path in users.wrote}
    for path in {*now, *wanted} - {*users.wrote, *beside, "home", "home/alice"}:
        assert path in now, f"{path} is missing"
        assert path in wanted, f"{path} is left over"
        if path not in {str(parent) for it in users.wrote for parent in Path(it).parents}:
            assert now[path] == wanted[path]
    assert links(root) == links(image)


def test_what_is_right_already_is_not_copied_again(image: Path, root: Path) -> None:
    for _ in range(20):  # whoever is held up for a moment may find it done
        process = started("populate", root, image)
        while b"usr/bin/sbatch" not in journal_of(root) and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        process.communicate()
        if not (root / ".isthmus/ready").exists():
            break
        shutil.rmtree(root)
        root.mkdir()
    assert b"usr/bin/sbatch" in journal_of(root), "it was never killed in the middle"
    before = {path: (root / path).lstat().st_ino for path in seen(root)}
    done(jail("populate", root, f"--source={image}"))
    assert {path: (root / path).lstat().st_ino for path in before} == before


def journal_of(root: Path) -> bytes:
    """What has been noted down; nothing before the first note, and again when all is done."""
    try:
        return (root / ".isthmus/journal").read_bytes()
    except FileNotFoundError:
        return b""


def test_a_file_system_whose_renames_always_replace_is_filled_without_replacing(
    image: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS."""
    monkeypatch.setattr(rename, "_rename_new", lambda *_: False)
    operations.populate(str(image), str(root), image="", now="today", tell=lambda _: None)
    assert seen(root) == seen(image)
    staged = make(tmp_path / "staged", {"file": File(b"ours"), "link": Link("ours"), "directory": Dir()})
    there = make(tmp_path / "there", {"file": File(b"his"), "link": Link("his"), "directory": Dir(0o700)})
    before = seen(there)
    with opened(staged) as staging, opened(there) as directory:
        for name in before:
            with pytest.raises(FileExistsError):
                rename.put_new(name, name, staging=staging, directory=directory)
    assert seen(there) == before


# Two at a time


def test_of_two_at_a_time_one_fills_and_the_other_says_who_does(image: Path, root: Path) -> None:
    both = [started("populate", root, image) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    codes = [process.returncode for process in both]
    assert 0 in codes, said
    for code, text in zip(codes, said, strict=True):
        assert code == 0 or (code == 1 and "isthmus jail populate, process" in text), text
    assert seen(root) == seen(image)


def test_who_comes_while_the_lock_is_held_is_told_by_whom(image: Path, root: Path) -> None:
    own = root / ".isthmus"
    own.mkdir()
    with opened(own) as directory, lock.held(directory, doing="a test", since="noon"):
        result = jail("populate", root, f"--source={image}")
        assert result.returncode == 1
        assert "a test, process" in result.stderr
        assert "a test" in done(jail("status", root))
    done(jail("populate", root, f"--source={image}"))


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_a_holder_on_another_machine_is_believed_while_he_is_alive(tmp_path: Path) -> None:
    """As on a file system that keeps flock to one machine: the lock is free, and yet somebody works."""
    other = lock.Holder("elsewhere", 7, "filling", "noon", "token")
    (tmp_path / "lock").write_bytes(msgspec.json.encode(other))
    beats = iter(range(1, 100))

    def alive(_: float) -> None:
        os.utime(tmp_path / "lock", (next(beats), 0))

    def dead(_: float) -> None:
        pass

    with opened(tmp_path) as directory:
        with (
            pytest.raises(Retry, match="process 7 on elsewhere"),
            lock.held(directory, doing="a test", since="now", host="here", pause=alive),
        ):
            pass
        with lock.held(directory, doing="a test", since="now", host="here", pause=dead) as check:
            check()


# No room


def test_a_volume_that_is_too_small_is_refused_before_anything_is_written(image: Path, tmp_path: Path) -> None:
    with small(tmp_path / "small", megabytes=2) as root:
        result = jail("populate", root, f"--source={image}")
        assert result.returncode == 3
        assert "is too small" in result.stderr
        assert " needed, " in result.stderr
        assert [it.name for it in root.iterdir()] == [".isthmus"]
        assert not (root / ".isthmus/ready").exists()


def test_a_volume_that_fills_up_meanwhile_is_told_and_gone_on_with(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small(tmp_path / "small", megabytes=20) as root:
        fill = Filler.fill

        def crowded_out(filler: Filler, threads: Executor, tell: Callable[[], None]) -> None:
            with contextlib.suppress(OSError), (root / "greedy").open("wb", buffering=0) as greedy:
                while True:
                    greedy.write(bytes(4096))
            fill(filler, threads, tell)

        # In this process: another one may be done before we get to it.
        with monkeypatch.context() as crowded:
            crowded.setattr(Filler, "fill", crowded_out)
            with pytest.raises(Terminal, match="is full"):
                operations.populate(str(image), str(root), image="", now="today", tell=lambda _: None)
        assert not (root / ".isthmus/ready").exists()
        (root / "greedy").unlink()
        done(jail("populate", root, f"--source={image}"))
        assert seen(root) == seen(image)


# What is not ours


def test_what_was_there_before_is_kept_and_told(image: Path, root: Path) -> None:
    make(
        root, {"home": Dir(0o711), "home/alice": Dir(0o700, 1000), "home/alice/thesis": File(b"years", 0o600, 1000)}
    )
    make(root, {"lost+found": Dir(0o700), "etc": Dir(), "etc/passwd": File(b"alice:x:1000:1000::/home/alice:\n")})
    before = seen(root)
    said = done(jail("populate", root, f"--source={image}"))
    assert "/home" in said
    assert "/lost+found" in said
    now = seen(root)
    for path in ("home/alice", "home/alice/thesis", "lost+found"):
        assert now[path] == before[path]
    assert now["home"][:4] == before["home"][:4]
    assert "changed: 1\n  /etc/passwd" in done(jail("verify", root))
    # The image's accounts have joined those that were there.
    assert (root / "etc/passwd").read_text().splitlines() == [
        "alice:x:1000:1000::/home/alice:",
        "root:x:0:0:root:/root:/bin/bash",
    ]


@pytest.mark.parametrize("way", ["etc", "usr", ".isthmus"])
def test_a_link_that_leads_out_is_refused_where_the_root_cannot_be_without(
    way: str, image: Path, root: Path, tmp_path: Path
) -> None:
    outside = make(tmp_path / "outside", {"passwd": File(b"theirs")})
    (root / way).symlink_to(outside)
    result = jail("populate", root, f"--source={image}")
    assert result.returncode == 3, result.stderr
    assert way in result.stderr
    assert set(seen(outside)) == {"passwd"}
    assert (outside / "passwd").read_bytes() == b"theirs"


def test_links_that_lead_out_are_not_followed(image: Path, root: Path, tmp_path: Path) -> None:
    outside = make(tmp_path / "outside", {"sbatch": File(b"theirs")})
    make(root, {"usr": Dir(), "usr/share": Link(str(outside)), "usr/bin": Dir()})
    (root / "usr/bin/sbatch").symlink_to(outside / "sbatch")
    said = done(jail("populate", root, f"--source={image}"))
    assert "/usr/share: not a directory" in said
    assert (outside / "sbatch").read_bytes() == b"theirs"
    assert set(seen(outside)) == {"sbatch"}
    assert (root / "usr/bin/sbatch.isthmus-new").read_bytes() == (image / "usr/bin/sbatch").read_bytes()


def test_a_directory_that_turns_into_a_link_leads_nowhere(image: Path, root: Path, tmp_path: Path) -> None:
    outside = make(tmp_path / "outside", {})
    make(root, {"usr": Dir(), "usr/share": Dir()})
    ended = threading.Event()

    def exchange() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                (root / "usr/share").rename(root / "usr/away")
                (root / "usr/share").symlink_to(outside)
                (root / "usr/share").unlink()
                (root / "usr/away").rename(root / "usr/share")

    user = threading.Thread(target=exchange)
    user.start()
    try:
        for _ in range(3):
            assert jail("populate", root, f"--source={image}").returncode in {0, 1}
    finally:
        ended.set()
        user.join()
    assert seen(outside) == {}


def test_links_devices_and_fifos_of_an_image_do_no_harm(image: Path, root: Path, tmp_path: Path) -> None:
    outside = make(tmp_path / "outside", {"secret": File(b"not to be copied")})
    (image / "out").symlink_to(outside)
    (image / "dev").mkdir()
    os.mknod(image / "dev/null", 0o020666, os.makedev(1, 3))
    os.mkfifo(image / "usr/bin/waits-for-ever")
    done(jail("populate", root, f"--source={image}"))
    assert (root / "out").is_symlink()
    assert list((root / "dev").iterdir()) == []
    assert (root / "usr/bin/waits-for-ever").is_fifo()


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("etc/passwd", "not a root file system"),
        ("usr/bin/sbatch", "no Slurm"),
        ("usr/lib/slurm", "isthmus_jail.so"),
        ("usr/sbin/sshd", "no sshd: users could no longer log in"),
    ],
)
def test_an_image_that_jobs_cannot_live_in_is_refused(missing: str, said: str, image: Path, root: Path) -> None:
    place = image / missing
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    result = jail("populate", root, f"--source={image}")
    assert result.returncode == 3
    assert said in result.stderr
    assert "login image" in result.stderr
    assert list(root.iterdir()) == []


# Refresh, day by day


def test_a_refresh_to_an_image_without_sshd_is_refused_before_anything_changes(tmp_path: Path, root: Path) -> None:
    old = make(tmp_path / "old", {**FIT, "etc/motd": File(b"1")})
    tree = {path: it for path, it in FIT.items() if path != "usr/sbin/sshd"}
    new = make(tmp_path / "new", {**tree, "etc/motd": File(b"2")})
    done(jail("populate", root, f"--source={old}"))
    for action in ("plan", "refresh"):
        result = jail(action, root, f"--source={new}")
        assert result.returncode == 3
        assert "it has no sshd: users could no longer log in" in result.stderr
    assert (root / "usr/sbin/sshd").exists()
    assert (root / "etc/motd").read_bytes() == b"1"


def test_a_program_goes_on_while_its_file_is_replaced(tmp_path: Path, root: Path) -> None:
    old = make(tmp_path / "old", {**FIT, "usr/bin/sleep": File(Path("/bin/sleep").read_bytes(), 0o755)})
    new = make(tmp_path / "new", {**FIT, "usr/bin/sleep": File(b"#!/bin/sh\n", 0o755)})
    done(jail("populate", root, f"--source={old}"))
    program = subprocess.Popen([root / "usr/bin/sleep", "infinity"])
    try:
        done(jail("refresh", root, f"--source={new}"))
        assert program.poll() is None
        assert (root / "usr/bin/sleep").read_bytes() == b"#!/bin/sh\n"
    finally:
        program.kill()
        program.wait()


def test_a_plan_says_what_a_refresh_then_does(tmp_path: Path, root: Path) -> None:
    old = make(tmp_path / "old", {**FIT, "etc/motd": File(b"1"), "etc/gone": File(b"1"), "etc/mine": File(b"1")})
    new = make(tmp_path / "new", {**FIT, "etc/motd": File(b"2"), "etc/more": File(b"2"), "etc/mine": File(b"2")})
    done(jail("populate", root, f"--source={old}"))
    (root / "etc/mine").write_bytes(b"a user's")
    before = seen(root)
    plan = json.loads(done(jail("plan", root, f"--source={new}", "--json")))
    assert seen(root) == before
    assert plan["new"] == ["etc/more", "etc/mine.isthmus-new"]
    assert (plan["changed"], plan["removed"]) == (["etc/motd"], ["etc/gone"])
    assert plan["kept"] == {"etc/mine": "changed by users"}
    assert "/etc/mine: changed by users" in done(jail("plan", root, f"--source={new}"))
    done(jail("refresh", root, f"--source={new}"))
    assert (root / "etc/mine").read_bytes() == b"a user's"
    assert (root / "etc/mine.isthmus-new").read_bytes() == b"2"
    assert not (root / "etc/gone").exists()
    assert json.loads(done(jail("plan", root, f"--source={new}", "--json")))["counts"]["written"] == 0


def test_files_of_a_daemon_stay_its_own_when_a_new_image_numbers_it_differently(tmp_path: Path, root: Path) -> None:
    def an_image(name: str, number: int, key: bytes) -> Path:
        accounts = f"root:x:0:0::/root:/bin/sh\nmunge:x:{number}:0::/:/bin/false\n".encode()
        tree: dict[str, Node] = {**FIT, "etc/passwd": File(accounts), "etc/munge.key": File(key, 0o600)}
        made = make(tmp_path / name, tree)
        os.chown(made / "etc/munge.key", number, 0)
        return made

    done(jail("populate", root, f"--source={an_image('old', 104, b'1')}"))
    done(jail("refresh", root, f"--source={an_image('new', 101, b'2')}"))
    assert (root / "etc/munge.key").read_bytes() == b"2"
    assert (root / "etc/munge.key").stat().st_uid == 104
    assert "munge:x:104:" in (root / "etc/passwd").read_text()


def test_extended_attributes_of_users_stay_however_often_the_image_changes(tmp_path: Path, root: Path) -> None:
    images = [make(tmp_path / str(it), {**FIT, "etc/motd": File(b"%d" % it)}) for it in range(3)]
    done(jail("populate", root, f"--source={images[0]}"))
    os.setxattr(root / "etc/motd", "user.note", b"his")
    for image in images[1:]:
        done(jail("refresh", root, f"--source={image}"))
        assert os.getxattr(root / "etc/motd", "user.note") == b"his"
    assert (root / "etc/motd").read_bytes() == b"2"


def damage(path: Path) -> None:
    """Change a file as a bad disk does: without a trace in its times."""
    status = path.stat()
    path.write_bytes(bytes(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(("harm", "told"), [(damage, "damaged: 1"), (remove, "removed: 1")])
def test_what_is_broken_is_found_and_can_be_had_back(
    harm: Callable[[Path], None], told: str, image: Path, root: Path
) -> None:
    done(jail("populate", root, f"--source={image}"))
    done(jail("verify", root))
    harm(root / "usr/bin/sbatch")
    found = jail("verify", root)
    assert found.returncode == 1
    assert told in found.stdout
    assert "/usr/bin/sbatch" in found.stdout
    done(jail("refresh", root, f"--source={image}", "--restore=/usr/bin/sbatch"))
    done(jail("verify", root))
    assert (root / "usr/bin/sbatch").read_bytes() == (image / "usr/bin/sbatch").read_bytes()


def test_a_refresh_of_what_was_never_filled_is_refused(image: Path, root: Path) -> None:
    assert jail("refresh", root, f"--source={image}").returncode == 3
    assert "Not filled" in done(jail("status", root))

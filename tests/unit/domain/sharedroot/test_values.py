"""Lines of the manifest, accounts, fitness, room, verdicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.sharedroot import accounts, fitness, space, verification
from isthmus.domain.sharedroot.decision import Step
from isthmus.domain.sharedroot.entry import Entry, from_lines, to_line
from isthmus.domain.sharedroot.plans import Plan

names = st.binary(min_size=1, max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


@given(path=names, target=names, leader=names, value=st.binary(max_size=9))
def test_every_name_survives_the_manifest(path: str, target: str, leader: str, value: bytes) -> None:
    entry = Entry(path, "file", mode=0o4755, target=target, leader=leader, xattrs={"security.capability": value})
    line = to_line(entry)
    assert line.count(b"\n") == 1
    assert list(from_lines([line])) == [entry]


def test_a_half_written_line_ends_the_journal() -> None:
    line = to_line(Entry("a", "directory"))
    assert len(list(from_lines([line, line[:9], line]))) == 1


def test_new_accounts_of_the_image_join_those_of_the_root() -> None:
    root = b"root:x:0:0::/root:/bin/zsh\nalice:x:1000:1000::/home/alice:/bin/sh"
    image = b"root:x:0:0::/root:/bin/bash\nsshd:x:100:1::/:/bin/false\nclash:x:1000:1::/:/bin/sh\n"
    text, refused = accounts.merged("etc/passwd", root, image)
    assert text == root + b"\nsshd:x:100:1::/:/bin/false\n"
    assert refused == ("clash",)
    assert accounts.merged("etc/passwd", text, image)[0] == text


def test_names_keep_the_numbers_that_they_have_in_the_root() -> None:
    root, image = b"root:x:0:\nmunge:x:104:\nalice:x:1000:\n", b"root:x:0:\nmunge:x:101:\nsshd:x:102:\nbroken\n"
    assert accounts.renumbered(root, image) == {101: 104}


def test_passwords_are_no_numbers() -> None:
    text, refused = accounts.merged("etc/shadow", b"root:*:1:0:::::\n", b"sshd:!:1:0:::::\n")
    assert (text, refused) == (b"root:*:1:0:::::\nsshd:!:1:0:::::\n", ())


FIT = {
    "etc/passwd",
    "usr/bin/sbatch",
    "usr/lib/slurm/isthmus_jail.so",
    "usr/bin/bash",
    "usr/bin/setpriv",
    "usr/sbin/sshd",
}


def test_a_root_with_our_slurm_is_fit() -> None:
    assert fitness.unfit(FIT) is None
    # Older systems keep them outside of /usr.
    assert fitness.unfit({*(FIT - {"usr/bin/bash"}), "bin/bash"}) is None


@pytest.mark.parametrize(
    ("paths", "what"),
    [
        (set[str](), "empty"),
        (FIT - {"etc/passwd"}, "not a root file system: it has no /etc/passwd"),
        (FIT - {"usr/bin/sbatch"}, "no Slurm"),
        (FIT - {"usr/lib/slurm/isthmus_jail.so"}, "isthmus_jail.so"),
        (FIT - {"usr/sbin/sshd"}, "it has no sshd: users could no longer log in"),
        (FIT - {"usr/bin/bash"}, "it has no bash"),
        (FIT - {"usr/bin/setpriv"}, "it has no setpriv"),
        ({f"jail_restic/{it}" for it in ("config", "data", "index", "keys", "snapshots")}, "in /jail_restic"),
    ],
)
def test_what_is_no_such_root_is_refused_with_the_reason(paths: set[str], what: str) -> None:
    complaint = fitness.unfit(paths)
    assert complaint is not None
    assert what in complaint[0]
    assert "login image" in complaint[1] or not paths


def test_room_is_counted_in_whole_blocks_and_holes_take_none() -> None:
    steps = (
        Step("a", "place", goal=Entry("a", "file", size=1)),
        Step("b", "place", goal=Entry("b", "directory")),
        Step("c", "place", goal=Entry("c", "file", size=1 << 40, held=8192)),
        Step("d", "place", goal=Entry("d", "file", size=1 << 30, leader="a")),
        Step("e", "leave", goal=Entry("e", "file", size=1 << 30)),
    )
    assert space.need(Plan(steps)) == space.Need(4 * 4096, 3)


def test_what_is_replaced_gives_its_room_back() -> None:
    old, new = Entry("a", "file", size=1 << 30), Entry("a", "file", size=(1 << 30) + 4096)
    assert space.need(Plan((Step("a", "replace", goal=new, root=old),))).size == 4096 + space.IN_FLIGHT


LISTED = Entry("a", "file", mode=0o644, digest="1", size=1, mtime=1)


@pytest.mark.parametrize(
    ("root", "verdict"),
    [
        (LISTED, "as it was"),
        (None, "removed"),
        (Entry("a", "directory"), "replaced"),
        (Entry("a", "file", mode=0o600, digest="1", size=1, mtime=1), "owner or mode changed"),
        (Entry("a", "file", mode=0o644, digest="2", size=1, mtime=2), "changed"),
        (Entry("a", "file", mode=0o644, digest="2", size=1, mtime=1), "damaged"),
    ],
)
def test_damage_is_told_from_change(root: Entry | None, verdict: str) -> None:
    assert verification.judge(LISTED, root) == verdict


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (34e6, "34 MB"), (1.06e9, "1.1 GB")]
)
def test_sizes_read_as_people_write_them(size: float, text: str) -> None:
    assert space.readable(size) == text

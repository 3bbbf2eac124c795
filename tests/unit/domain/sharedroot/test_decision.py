"""What is done with one path."""

import msgspec
import pytest

from isthmus.domain.sharedroot.decision import decide, restore, root_must_be_read
from isthmus.domain.sharedroot.entry import Entry
from isthmus.domain.sharedroot.known import NOTHING, Knowledge, Known


def file(digest: str, *, path: str = "etc/motd", mode: int = 0o644, uid: int = 0, mtime: int = 1) -> Entry:
    return Entry(path, "file", mode=mode, uid=uid, digest=digest, size=len(digest), mtime=mtime)


OLD, NEW, USERS = file("old"), file("new"), file("user's", mtime=9)
DIRECTORY = Entry("opt", "directory", mode=0o755)


@pytest.mark.parametrize(
    ("image", "root", "known", "action"),
    [
        (NEW, None, NOTHING, "place"),
        (NEW, None, Known(begun=(NEW,)), "place"),  # a run was about to place it, and was killed
        (NEW, None, Known(listed=OLD), "leave"),  # a user removed it
        (NEW, NEW, NOTHING, "leave"),
        (NEW, USERS, NOTHING, "beside"),
        (NEW, OLD, Known(listed=OLD), "replace"),
        (NEW, NEW, Known(listed=OLD), "leave"),
        (NEW, USERS, Known(listed=OLD), "beside"),
        (OLD, USERS, Known(listed=OLD), "leave"),  # the image has nothing new
        (NEW, OLD, Known(begun=(OLD,)), "replace"),  # of another image, whose run was killed
        (OLD, NEW, Known(listed=OLD, begun=(NEW,)), "replace"),  # back again
        (OLD, USERS, Known(listed=OLD, begun=(NEW,)), "leave"),
        (None, OLD, Known(listed=OLD), "remove"),
        (None, OLD, Known(begun=(OLD,)), "remove"),
        (None, USERS, Known(listed=OLD), "leave"),
        (None, None, Known(listed=OLD), "leave"),
    ],
)
def test_what_users_wrote_is_told_from_what_we_wrote(
    image: Entry | None, root: Entry | None, known: Known, action: str
) -> None:
    assert decide(image, root, known).action == action


def test_a_kept_file_is_told_with_the_reason() -> None:
    assert decide(NEW, USERS, Known(listed=OLD)).why == "changed by users"
    assert decide(NEW, USERS, NOTHING).why == "not ours"
    assert decide(NEW, None, Known(listed=OLD)).why == "removed by users"


def test_a_users_mode_and_owner_stay_when_the_content_is_replaced() -> None:
    his = msgspec.structs.replace(OLD, mode=0o600, uid=1000)
    step = decide(file("new", mode=0o755), his, Known(listed=OLD))
    assert step.action == "replace"
    assert step.goal is not None
    assert (step.goal.mode, step.goal.uid, step.goal.gid) == (0o600, 1000, 0)


def test_a_new_mode_of_the_image_is_taken_over() -> None:
    step = decide(file("old", mode=0o4755), OLD, Known(listed=OLD))
    assert step.action == "attributes"
    assert step.goal is not None
    assert step.goal.mode == 0o4755


def test_a_directory_that_was_there_before_keeps_its_owner_and_mode() -> None:
    his = msgspec.structs.replace(DIRECTORY, mode=0o700, uid=1000)
    assert decide(DIRECTORY, his, NOTHING).action == "leave"


def test_something_else_in_a_directorys_place_is_left_and_told() -> None:
    link = Entry("opt", "symlink", target="/elsewhere")
    step = decide(DIRECTORY, link, NOTHING)
    assert (step.action, step.why) == ("leave", "not a directory, where the image has one")
    assert decide(DIRECTORY, link, Known(listed=link)).action == "replace"


@pytest.mark.parametrize("path", ["etc/machine-id", "etc/ssh/ssh_host_ed25519_key"])
def test_the_machines_identity_never_changes(path: str) -> None:
    old, new = file("old", path=path), file("new", path=path)
    assert decide(new, old, Known(listed=old)).action == "leave"
    assert decide(None, old, Known(listed=old)).action == "leave"
    assert restore(new, old).action == "leave"


def test_accounts_are_merged_whoever_changed_them() -> None:
    old, new, his = (file(it, path="etc/passwd") for it in ("old", "new", "his"))
    assert decide(new, his, Known(listed=old)).action == "merge"
    assert decide(new, old, Known(listed=old)).action == "merge"
    assert decide(new, his, NOTHING).action == "merge"
    assert decide(old, his, Known(listed=old)).action == "leave"
    assert decide(None, old, Known(listed=old)).action == "leave"


def test_home_is_never_removed() -> None:
    home = Entry("home", "directory", mode=0o755)
    assert decide(None, home, Known(listed=home)).action == "leave"


def test_the_root_is_not_read_where_the_image_has_nothing_new() -> None:
    unread = msgspec.structs.replace(USERS, digest="")
    assert not root_must_be_read(OLD, unread, Known(listed=OLD))
    assert root_must_be_read(NEW, unread, Known(listed=OLD))
    assert root_must_be_read(OLD, unread, Known(listed=OLD, begun=(NEW,)))
    assert decide(OLD, unread, Known(listed=OLD)).action == "leave"


def test_what_a_killed_run_put_in_place_is_not_read_again() -> None:
    placed = msgspec.structs.replace(NEW, digest="")
    assert not root_must_be_read(NEW, placed, Known(begun=(NEW,)))
    assert decide(NEW, placed, Known(begun=(NEW,))).action == "leave"
    touched = msgspec.structs.replace(placed, mtime=99)
    assert root_must_be_read(NEW, touched, Known(begun=(NEW,)))


@pytest.mark.parametrize(
    "known",
    [
        Known(listed=OLD, begun=(NEW,)),  # killed before it put the new one there
        Known(begun=(NEW, OLD)),  # and after another run had put the old one there again
        Known(begun=(msgspec.structs.replace(NEW, mode=0o600, mtime=5), NEW)),  # killed between mode and time
    ],
)
def test_what_a_killed_run_may_not_have_put_in_place_is_read(known: Known) -> None:
    """The old and the new file have one size and one time, as in images that are built reproducibly."""
    unread = msgspec.structs.replace(OLD, digest="")
    assert root_must_be_read(NEW, unread, known)


def test_what_a_killed_run_removed_was_not_removed_by_users() -> None:
    assert decide(NEW, None, Known(listed=OLD, removed=True)).action == "place"
    assert decide(None, None, Known(listed=OLD, removed=True)).action == "leave"
    known = Knowledge(listed=[OLD], begun=[Entry(OLD.path, "absent")])
    assert known[OLD.path] == Known(listed=OLD, removed=True)
    assert known.touched == {OLD.path}


def test_a_mode_that_a_killed_run_set_is_not_a_users() -> None:
    half_way = msgspec.structs.replace(OLD, mode=0o755)
    known = Known(listed=msgspec.structs.replace(OLD, mode=0o4755), begun=(file("old", mode=0o4755, uid=1000),))
    step = decide(file("old", mode=0o4711), half_way, known)
    assert step.goal is not None
    assert step.goal.mode == 0o4711


def test_a_users_mode_is_his_though_a_run_was_killed_that_kept_it() -> None:
    his = msgspec.structs.replace(OLD, mode=0o600)
    step = decide(NEW, his, Known(listed=OLD))
    assert step.goal is not None
    assert step.goal.mode == 0o600
    placed, noted = step.goal, step.noted(step.goal)
    again = decide(file("newer"), placed, Known(listed=OLD, begun=(noted,)))
    assert again.goal is not None
    assert again.goal.mode == 0o600


def test_extended_attributes_that_are_half_set_are_not_a_users() -> None:
    def having(**xattrs: bytes) -> Entry:
        return msgspec.structs.replace(OLD, xattrs=xattrs)

    known = Known(listed=having(one=b"1", two=b"1"), begun=(having(one=b"2", three=b"2"),))
    half_way, his = having(one=b"2", two=b"1"), having(one=b"2", his=b"")
    for root, wanted in ((half_way, {"one": b"3"}), (his, his.xattrs)):
        step = decide(having(one=b"3"), root, known)
        assert step.goal is not None
        assert step.goal.xattrs == wanted


def test_what_is_restored_is_as_the_image_has_it() -> None:
    assert restore(NEW, None).action == "place"
    assert restore(NEW, USERS).action == "replace"
    assert restore(NEW, msgspec.structs.replace(NEW, mode=0o600)).action == "attributes"
    assert restore(NEW, NEW).action == "leave"
    assert restore(DIRECTORY, Entry("opt", "symlink", target="/x")).action == "leave"

"""What is done with one path."""

import msgspec
import pytest

from isthmus.domain.jail.deciding import decide, restore, root_must_be_read
from isthmus.domain.jail.entry import Entry
from isthmus.domain.jail.known import NOTHING, Known


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


def test_what_is_restored_is_as_the_image_has_it() -> None:
    assert restore(NEW, None).action == "place"
    assert restore(NEW, USERS).action == "replace"
    assert restore(NEW, msgspec.structs.replace(NEW, mode=0o600)).action == "attributes"
    assert restore(NEW, NEW).action == "leave"
    assert restore(DIRECTORY, Entry("opt", "symlink", target="/x")).action == "leave"

"""What is done with all paths."""

from collections.abc import Iterable

from isthmus.domain.sharedroot.entry import Entry
from isthmus.domain.sharedroot.known import Knowledge
from isthmus.domain.sharedroot.plans import Plan, manifest, plan, summary


def files(**digests: str) -> dict[str, Entry]:
    return {name: Entry(name, "file", digest=digest, size=1, mtime=1) for name, digest in digests.items()}


def directory(path: str) -> Entry:
    return Entry(path, "directory", mode=0o755)


def actions(made: Plan, *, only: Iterable[str] = ("place", "replace", "remove", "beside")) -> dict[str, str]:
    return {step.path: step.action for step in made.of(*only)}


def test_the_images_version_lies_beside_the_users() -> None:
    image, root = files(motd="2"), files(motd="user's")
    made = plan(image, root, Knowledge(listed=files(motd="1").values()))
    assert actions(made) == {"motd": "beside", "motd.isthmus-new": "place"}
    assert next(made.of("place")).origin == "motd"
    assert summary(made).kept == {"motd": "changed by users"}


def _kept_once() -> tuple[dict[str, Entry], Knowledge]:
    """Refresh to 2 beside a user's file, and give the root and manifest that this leaves."""
    image, root = files(motd="2"), files(motd="user's")
    knowledge = Knowledge(listed=files(motd="1").values())
    made = plan(image, root, knowledge)
    listed = manifest(image, made, knowledge)
    root["motd.isthmus-new"] = next(entry for entry in listed if entry.path == "motd.isthmus-new")
    return root, Knowledge(listed=listed)


def test_the_same_image_again_changes_nothing() -> None:
    root, knowledge = _kept_once()
    made = plan(files(motd="2"), root, knowledge)
    assert actions(made) == {}
    assert [it.path for it in manifest(files(motd="2"), made, knowledge)] == ["motd", "motd.isthmus-new"]


def test_a_still_newer_version_takes_the_place_of_the_one_beside() -> None:
    root, knowledge = _kept_once()
    assert actions(plan(files(motd="3"), root, knowledge)) == {"motd": "beside", "motd.isthmus-new": "replace"}


def test_a_still_newer_version_is_shown_to_who_dealt_with_the_older_one() -> None:
    root, knowledge = _kept_once()
    del root["motd.isthmus-new"]
    assert actions(plan(files(motd="2"), root, knowledge)) == {}
    assert actions(plan(files(motd="3"), root, knowledge)) == {"motd": "beside", "motd.isthmus-new": "place"}


def test_what_lies_beside_goes_once_the_user_has_no_version_of_his_own() -> None:
    root, knowledge = _kept_once()
    root["motd"] = files(motd="3")["motd"]
    assert actions(plan(files(motd="3"), root, knowledge)) == {"motd.isthmus-new": "remove"}
    assert actions(plan({}, root, knowledge)) == {"motd.isthmus-new": "remove"}


def test_what_users_made_of_the_version_beside_is_kept() -> None:
    root, knowledge = _kept_once()
    root["motd.isthmus-new"] = Entry("motd.isthmus-new", "file", digest="edited", size=1, mtime=5)
    made = plan(files(motd="3"), root, knowledge)
    assert "motd.isthmus-new" not in actions(made, only=("place", "replace", "remove"))


def test_nothing_is_placed_below_what_is_no_directory() -> None:
    image = {"opt": directory("opt"), "opt/a": directory("opt/a"), "opt/a/b": directory("opt/a/b")}
    made = plan(image, {"opt": Entry("opt", "symlink", target="/elsewhere")}, Knowledge())
    assert actions(made) == {}
    assert made.unplaced == {"opt/a", "opt/a/b"}
    assert [it.path for it in manifest(image, made, Knowledge())] == ["opt"]


def test_nothing_is_placed_into_a_directory_that_users_removed() -> None:
    image = {"opt": directory("opt"), "opt/new": Entry("opt/new", "file", digest="1")}
    assert actions(plan(image, {}, Knowledge(listed=[directory("opt")]))) == {}


def test_only_what_is_asked_for_is_restored() -> None:
    listed, root = files(a="1", b="1"), files(a="user's", b="user's")
    made = plan(listed, root, Knowledge(listed=listed.values()), restored={"a"})
    assert actions(made) == {"a": "replace"}

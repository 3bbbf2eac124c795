import pytest

from isthmus.domain.operator.manifests.users import mount, roster, users_configmap
from isthmus.model.meta import ObjectMeta
from isthmus.model.slinky import Controller, ControllerSpec, KeyReference, User

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHzGxEPOvZ0vLRFG3T3sTqmV3K0b4oJ3uOQJ0Yb5cR1N alice@home"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAyVn1aC0tSO6gBYfwkZ4v5fYkq3F4v6m0U4y4Vb0Qc2 alice@work"

ALICE = User(name="alice", uid=2001, sudo=True, groups=("physics",), ssh_public_keys=(KEY,))
BOB = User(name="bob", uid=2002, gid=5000, shell="/bin/zsh", groups=("physics",))  # noqa: S604 - his, not ours


def test_users_become_the_files_of_the_name_service() -> None:
    files = roster((ALICE, BOB), {}).files
    assert files["passwd"] == ("alice:x:2001:2001::/home/alice:/bin/bash\nbob:x:2002:5000::/home/bob:/bin/zsh\n")
    assert files["group"] == ("alice:x:2001:\nbob:x:5000:\nphysics:x:63157:alice,bob\nslurm-sudo:x:64040:alice\n")
    assert files["alice.authorized_keys"] == f"{KEY}\n"
    assert files["bob.authorized_keys"] == ""


def test_nobody_has_a_password() -> None:
    assert roster((ALICE, BOB), {}).files["shadow"] == ("alice:*:19000:0:99999:7:::\nbob:*:19000:0:99999:7:::\n")


def test_no_pod_can_write_where_all_of_them_look_users_up() -> None:
    assert mount()["readOnly"] is True


def test_the_number_of_a_group_follows_from_its_name_alone() -> None:
    alone = roster((BOB,), {}).files["group"]
    assert "physics:x:63157:bob\n" in alone


def test_keys_of_a_secret_are_added_once_each() -> None:
    user = User(
        name="alice", uid=2001, ssh_public_keys=(KEY,), ssh_keys_secret_ref=KeyReference(name="keys", key="pub")
    )
    made = roster((user,), {"alice": f"# mine\n\n{OTHER}\n{OTHER}\n"})
    assert made.files["alice.authorized_keys"] == f"{KEY}\n{OTHER}\n"
    assert made.problems == ()


def test_what_is_no_public_key_is_named_and_never_repeated() -> None:
    reference = KeyReference(name="keys", key="pub")
    user = User(name="alice", uid=2001, ssh_public_keys=(KEY, "ssh-rsa AAAA"), ssh_keys_secret_ref=reference)
    made = roster((user,), {"alice": "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n"})
    assert made.files["alice.authorized_keys"] == f"{KEY}\n"
    assert made.problems == (
        "line 2 of sshPublicKeys of user alice is not a public key; expected: ssh-ed25519 AAAA… comment",
        "key 'pub' of Secret keys contains a private key; use the public one, whose file ends in .pub",
    )


def test_a_missing_secret_is_named_unless_it_may_be_missing() -> None:
    user = User(name="alice", uid=2001, ssh_keys_secret_ref=KeyReference(name="keys", key="pub"))
    assert "key 'pub' of Secret keys does not exist" in roster((user,), {}).problems[0]
    relaxed = User(name="alice", uid=2001, ssh_keys_secret_ref=KeyReference(name="keys", key="pub", optional=True))
    assert roster((relaxed,), {}).problems == ()


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        (User(name="root", uid=2001), "user root is not created: the name is a system user"),
        (User(name="a:b", uid=2001), "must not contain a colon or line break"),
        (User(name="a", uid=2001, shell="/bin/sh\nroot::0:0"), "must not contain a colon or line break"),  # noqa: S604 - hers
    ],
)
def test_hostile_users_are_left_out_and_named(user: User, problem: str) -> None:
    made = roster((user, BOB), {})
    assert problem in made.problems[0]
    assert made.files["passwd"] == "bob:x:2002:5000::/home/bob:/bin/zsh\n"


def test_two_with_one_number_are_one() -> None:
    made = roster((ALICE, User(name="eve", uid=2001)), {})
    assert made.problems == ("users alice, eve have the same uid 2001; only alice is created",)
    assert "eve" not in "".join(made.files.values())


def test_groups_of_images_cannot_be_joined() -> None:
    made = roster((User(name="eve", uid=2003, groups=("sudo", "slurm")),), {})
    assert made.problems == (
        "user eve is not added to the system group 'sudo'; use sudo: true",
        "user eve is not added to the system group 'slurm'",
    )
    assert "slurm-sudo:x:64040:\n" in made.files["group"]


def test_a_shared_group_has_one_line() -> None:
    users = (User(name="a", uid=2001, gid=3000), User(name="b", uid=2002, gid=3000))
    assert roster(users, {}).files["group"] == "a:x:3000:\nslurm-sudo:x:64040:\n"


def test_the_configmap_is_the_controllers() -> None:
    controller = Controller(
        spec=ControllerSpec(users=(BOB,)), metadata=ObjectMeta(name="slurm", namespace="hpc", uid="u")
    )
    made = users_configmap(controller)
    assert made["metadata"] == {
        "name": "slurm-users",
        "namespace": "hpc",
        "labels": {
            "app.kubernetes.io/name": "users",
            "app.kubernetes.io/instance": "slurm",
            "app.kubernetes.io/component": "controller",
            "app.kubernetes.io/managed-by": "isthmus",
            "slinky.slurm.net/cluster": "slurm",
        },
    }
    assert sorted(made["data"]) == ["bob.authorized_keys", "group", "passwd", "shadow"]

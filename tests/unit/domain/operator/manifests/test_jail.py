"""The shared root in pods: what is mounted, what is seen inside, and who may do what."""

import subprocess
from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.manifests import jail, login, worker
from isthmus.domain.operator.manifests.common import Settings, hash_of
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.model.slinky import LoginSet, NodeSet, SubMount
from tests.unit.domain.operator.manifests.objects import controller as login_controller
from tests.unit.domain.operator.manifests.test_login import container, loginset, mounted
from tests.unit.domain.operator.manifests.test_login import pod as login_pod
from tests.unit.domain.operator.manifests.test_worker import controller, slurmd
from tests.unit.domain.operator.nodeset.views import nodeset

TMP = "/tmp"  # noqa: S108 - a mount
ROOT = {"volume": {"persistentVolumeClaim": {"claimName": "jail"}}}


def root_with(*mounts: dict[str, Any]) -> dict[str, Any]:
    return {**ROOT, "subMounts": list(mounts)}


def worker_pod(of: NodeSet, **of_controller: Any) -> dict[str, Any]:
    return worker.template(of, controller(**of_controller), settings=Settings()).fill(numbered(of, 0))


def volumes(pod: dict[str, Any]) -> dict[str, Any]:
    return {it["name"]: it for it in pod["volumes"]}


def test_jobs_are_let_in_by_one_line() -> None:
    common = "bind=/etc/hostname bind=/etc/hosts bind=/etc/resolv.conf bind=/tmp bind=/var/lib/extrausers"
    line = f"required isthmus_jail.so root=/mnt/jail {common} bind=/run/slurm bind=/var/spool/slurmd"
    assert jail.plugstack_line("slurm") == line
    assert jail.plugstack_line("munge") == f"{line} bind=/run/munge"


def test_a_worker_has_the_root_and_a_tmp_of_its_own() -> None:
    pod = worker_pod(nodeset(1, sharedRoot=ROOT))["spec"]
    found = volumes(pod)
    assert found["jail"] == {"name": "jail", "persistentVolumeClaim": {"claimName": "jail"}}
    assert found["tmp"] == {"name": "tmp", "emptyDir": {}}
    (slurmd,) = pod["containers"]
    assert mounted(slurmd) == {
        "/dev/shm": "shared-memory",  # noqa: S108
        "/run/secrets/slurm": "slurm-keys",
        "/var/lib/extrausers": "slurm-users",
        "/mnt/jail": "jail",
        TMP: "tmp",
    }


def test_volumes_inside_are_mounted_below_the_root() -> None:
    shared = root_with(
        {"name": "home", "mountPath": "/home", "volume": {"persistentVolumeClaim": {"claimName": "home"}}},
        {"name": "data", "mountPath": "/data/sets/", "subPath": "sets", "readOnly": True, "volume": {"nfs": {}}},
        {"name": "spare", "mountPath": "/mnt/spare"},
    )
    templates = [{"metadata": {"name": "spare"}, "spec": {}}]
    pod = worker_pod(nodeset(1, sharedRoot=shared, volumeClaimTemplates=templates))
    assert slurmd(pod)["volumeMounts"][-3:] == [
        {"name": "home", "mountPath": "/mnt/jail/home"},
        {"name": "data", "mountPath": "/mnt/jail/data/sets", "readOnly": True, "subPath": "sets"},
        {"name": "spare", "mountPath": "/mnt/jail/mnt/spare"},
    ]
    found = volumes(pod["spec"])
    assert found["home"]["persistentVolumeClaim"] == {"claimName": "home"}
    assert found["spare"]["persistentVolumeClaim"] == {"claimName": "spare-worker-0"}


def test_one_volume_may_be_at_two_places() -> None:
    same = {"emptyDir": {"medium": "Memory"}}
    shared = root_with(
        {"name": "fast", "mountPath": "/a", "subPath": "a", "volume": same},
        {"name": "fast", "mountPath": "/b", "subPath": "b", "volume": same},
    )
    pod = worker_pod(nodeset(1, sharedRoot=shared))["spec"]
    assert [it["name"] for it in pod["volumes"]].count("fast") == 1


def test_a_volume_within_what_is_bound_is_mounted_where_it_is_bound_from() -> None:
    memory = {"emptyDir": {"medium": "Memory"}}
    shared = root_with({"name": "fast", "mountPath": TMP, "volume": memory})
    of_own = worker_pod(nodeset(1, sharedRoot=shared))["spec"]
    assert mounted(of_own["containers"][0])[TMP] == "fast"
    assert "tmp" not in volumes(of_own)
    below = root_with({"name": "runs", "mountPath": "/run/lab", "volume": memory})
    assert mounted(container(login_pod(loginset(sharedRoot=below)), "login"))["/run/lab"] == "runs"


@pytest.mark.parametrize("path", ["home", "/", "", "/a/../b", "/..", "/a/./b", "//a", "/a:b"])
def test_places_that_are_none_are_refused(path: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "x", "mountPath": path}, SubMount)


@pytest.mark.parametrize("path", ["/home", "/.cache", "/..odd", "/a b/c.d", "/data/"])
def test_all_other_places_are_taken(path: str) -> None:
    assert msgspec.convert({"name": "x", "mountPath": path}, SubMount).mount_path == path


def test_slurmd_starts_when_the_root_is_filled() -> None:
    script = slurmd(worker_pod(nodeset(1, sharedRoot=ROOT)))["command"][2]
    assert script.index("isthmus-enter root=/mnt/jail") < script.index("slurmd -D")


def test_people_are_inside_and_may_not_mount() -> None:
    made = container(login_pod(loginset(sharedRoot=ROOT)), "login")
    *_, script, name, start = made["command"][:5]
    assert name == "login"
    assert start == login._START
    assert "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin" in script
    assert made["command"][5:] == [
        "root=/mnt/jail",
        "bind=/proc",
        "bind=/run",
        "bind=/etc/hostname",
        "bind=/etc/hosts",
        "bind=/etc/resolv.conf",
        "bind=/tmp",
        "bind=/var/lib/extrausers",
        "bind=/etc/ssh/isthmus",
    ]
    assert "privileged" not in made["securityContext"]
    assert made["securityContext"]["capabilities"] == {"add": ["SYS_ADMIN"]}


def test_who_signs_for_people_knows_them() -> None:
    sackd = container(login_pod(loginset(sharedRoot=ROOT)), "sackd")
    assert {"name": "jail", "mountPath": "/mnt/jail", "readOnly": True} in sackd["volumeMounts"]
    assert "securityContext" not in sackd
    for command in (sackd["command"][2], slurmd(worker_pod(nodeset(1, sharedRoot=ROOT)))["command"][2]):
        assert "ln -sfn /mnt/jail/etc/$file /etc/$file" in command


_MOUNTS = """\
22 1 0:21 / / rw - overlay overlay rw
23 22 0:30 / /dev/shm rw - tmpfs tmpfs rw
24 22 8:1 /libcuda.so.570.1 /usr/lib/x86_64-linux-gnu/libcuda.so.570.1 ro - ext4 /dev/sda1 rw
25 22 8:1 /nvidia-smi /usr/bin/nvidia-smi ro - ext4 /dev/sda1 rw
26 22 8:1 /gsp.bin /usr/lib/firmware/nvidia/570.1/gsp.bin ro - ext4 /dev/sda1 rw
27 22 8:1 /jail /mnt/jail rw - ext4 /dev/sda1 rw
28 22 8:1 /x /mnt/jail/usr/lib/x rw - ext4 /dev/sda1 rw
"""


def test_the_driver_is_what_the_runtime_has_put_into_the_container() -> None:
    done = subprocess.run(
        ["bash", "-euc", f"{jail.SHOW_DRIVER}\ndriver_files"],
        input=_MOUNTS,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [
        "/usr/lib/x86_64-linux-gnu/libcuda.so.570.1",
        "/usr/bin/nvidia-smi",
        "/usr/lib/firmware/nvidia/570.1/gsp.bin",
    ]


_BIND = r"""
mount -t tmpfs tmpfs /mnt
mkdir -p /mnt/host /mnt/jail/usr
echo driver > /mnt/host/libcuda.so.570.1
echo smi > /mnt/host/nvidia-smi
printf '%s\n' /mnt/host/libcuda.so.570.1 /mnt/host/nvidia-smi | show_driver
cd /mnt/jail/mnt/host
tail -n +1 -- libcuda.so.1 libcuda.so.570.1 nvidia-smi
umount -- * && stat --format=%s -- *
"""


def test_jobs_find_the_driver_under_the_name_that_the_loader_looks_for() -> None:
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-euc", f"{jail.SHOW_DRIVER}{_BIND}"],
        capture_output=True,
        text=True,
        check=True,
    )
    shown = done.stdout.replace("==> ", "").replace(" <==", "").split()
    found = ["libcuda.so.1", "driver", "libcuda.so.570.1", "driver", "nvidia-smi", "smi"]
    # Others who have the same root see empty files.
    assert shown == [*found, "0", "0", "0"]


def test_the_directory_is_reached_inside_too() -> None:
    conf = {"name": "sssd", "key": "sssd.conf"}
    made = container(login_pod(loginset(sharedRoot=ROOT, sssdConfRef=conf)), "login")
    assert made["command"][-1] == "bind=/var/lib/sss"


def test_who_has_no_shared_root_is_not_touched_by_all_this() -> None:
    """A new version of the operator makes no pod anew: these hashes are those of the versions before."""
    assert worker.revision(nodeset(1), controller(), {}) == "7694813442"
    assert hash_of(login.inputs(loginset(), login_controller(), settings=Settings())) == "8c1a38f60661418e"
    plain = login_pod()
    assert "securityContext" not in container(plain, "login")
    assert container(plain, "login")["command"] == ["bash", "-euc", login._START]
    assert "jail" not in volumes(plain)
    script = slurmd(worker_pod(nodeset(1)))["command"][2]
    assert script == worker._START


def test_pods_are_made_anew_for_another_root() -> None:
    def revision(of: NodeSet) -> str:
        return worker.revision(of, controller(), {})

    def wishes(of: LoginSet) -> object:
        return login.inputs(of, controller(), settings=Settings())

    other = root_with({"name": "x", "mountPath": "/x"})
    assert (
        len({revision(nodeset(1)), revision(nodeset(1, sharedRoot=ROOT)), revision(nodeset(1, sharedRoot=other))})
        == 3
    )
    assert wishes(loginset()) != wishes(loginset(sharedRoot=ROOT)) != wishes(loginset(sharedRoot=other))


@pytest.mark.parametrize("script", [jail.WAIT, jail.KNOW_USERS, jail.SHOW_DRIVER, login._INSIDE, worker._OUTSIDE])
def test_scripts_are_read_by_bash(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr

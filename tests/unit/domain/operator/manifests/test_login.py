import subprocess
from typing import Any

import msgspec
import pytest

from isthmus.domain.operator import sshdconfig
from isthmus.domain.operator.manifests import login, munge, sssd
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.sshdconfig import BadSshdConfig
from isthmus.model.slinky import Controller, LoginSet
from tests.unit.domain.operator.manifests.objects import controller, part


def loginset(**spec: Any) -> LoginSet:
    return part(LoginSet, "login", **spec)


def pod(of: LoginSet | None = None, by: Controller | None = None) -> dict[str, Any]:
    made = login.statefulset(of or loginset(), by or controller(), settings=Settings())
    return dict(made["spec"]["template"]["spec"])


def container(of: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (it for it in (*of["containers"], *of["initContainers"]) if it["name"] == name)
    return dict(found)


def mounted(of: dict[str, Any]) -> dict[str, str]:
    return {it["mountPath"]: it["name"] for it in of["volumeMounts"]}


def test_the_key_of_the_cluster_is_with_sackd_and_not_where_people_are() -> None:
    made = pod()
    assert mounted(container(made, "sackd")) == {
        "/run/slurm": "slurm-sockets",
        "/var/lib/extrausers": "slurm-users",
        "/run/secrets/slurm": "slurm-keys",
    }
    assert mounted(container(made, "login")) == {
        "/etc/ssh/isthmus": "ssh-config",
        "/run/secrets/ssh": "ssh-host-keys",
        "/var/lib/extrausers": "slurm-users",
        "/run/slurm": "slurm-sockets",
    }
    (secret,) = (it["secret"] for it in made["volumes"] if it["name"] == "slurm-keys")
    assert secret["secretName"] == "slurm-auth"
    assert [it["key"] for it in secret["items"]] == ["slurm.jwks"]


def test_sshd_has_the_name_that_the_peers_give_it() -> None:
    owner = {"apiVersion": "slurm.nebius.ai/v1", "kind": "SlurmCluster", "name": "slurm", "uid": "s"}
    of_cluster = msgspec.convert(
        {
            "metadata": {
                "name": "login",
                "namespace": "hpc",
                "uid": "l",
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {"controllerRef": {"name": "slurm"}, "login": {"image": "login:1"}},
        },
        LoginSet,
    )
    template = login.statefulset(of_cluster, controller(), settings=Settings())["spec"]["template"]
    assert [(it["name"], it["image"]) for it in template["spec"]["containers"]] == [("sshd", "login:1")]
    assert template["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] == "sshd"
    assert [it["name"] for it in pod()["containers"]] == ["login"]


@pytest.mark.parametrize(
    ("template", "allowed"),
    [({}, True), ({"hostNetwork": True}, False), ({"hostUsers": False}, False), ({"hostUsers": True}, True)],
)
def test_people_may_ping_where_the_network_is_the_pods_own(template: dict[str, bool], *, allowed: bool) -> None:
    made = pod(loginset(template={"spec": template}))
    wanted = [{"name": "net.ipv4.ping_group_range", "value": "0 2147483647"}]
    assert made.get("securityContext", {}).get("sysctls", []) == (wanted if allowed else [])


def test_sackd_asks_every_slurmctld() -> None:
    ha = {"ha": {"enabled": True}, "persistence": {"existingClaim": "state"}}
    (variable,) = container(pod(by=controller(**ha)), "sackd")["env"]
    assert variable["value"] == ("slurm-controller-0.hpc.svc:6817,slurm-controller-1.hpc.svc:6817")


def test_short_names_of_workers_and_controllers_are_found() -> None:
    assert pod()["dnsConfig"]["searches"] == [
        "slurm-workers-slurm.hpc.svc.cluster.local",
        "slurm-controller-internal.hpc.svc.cluster.local",
    ]


def test_with_munge_both_containers_reach_munged_and_none_has_its_key() -> None:
    made = pod(by=controller(authType="munge"))
    assert [it["name"] for it in made["initContainers"]] == ["munge", "sackd"]
    assert "munge-key" in mounted(container(made, "munge")).values()
    for name in ("sackd", "login"):
        assert mounted(container(made, name))["/run/munge"] == "munge-socket"
        assert "munge-key" not in mounted(container(made, name)).values()
        assert "slurm-keys" not in mounted(container(made, name)).values()


def test_w26_what_the_user_writes_counts_also_where_it_is_false() -> None:
    wish = {
        "login": {
            "image": "mine:1",
            "securityContext": {"privileged": False},
            "env": [{"name": "A", "value": "1"}],
        },
        "template": {"spec": {"terminationGracePeriodSeconds": 0, "nodeSelector": {"role": "login"}}},
    }
    made = pod(loginset(**wish))
    assert made["terminationGracePeriodSeconds"] == 0
    assert made["nodeSelector"] == {"role": "login"}
    assert container(made, "login")["securityContext"] == {"privileged": False}
    assert {it["image"] for it in (*made["containers"], *made["initContainers"])} == {"mine:1"}


def test_people_can_come_in_while_slurm_is_away() -> None:
    for service in login.services(loginset(), "slurm"):
        assert service["spec"]["publishNotReadyAddresses"] is True
    assert "startupProbe" not in container(pod(), "sackd")
    assert "readinessProbe" in container(pod(), "sackd")


def test_pods_are_not_made_anew_for_users_keys_or_settings_of_sshd() -> None:
    plain = login.statefulset(loginset(), controller(), settings=Settings())
    changed = login.statefulset(
        loginset(extraSshdConfig="MaxSessions 3", rootSshAuthorizedKeys="ssh-ed25519 AAAA x"),
        controller(users=[{"name": "alice", "uid": 2001}], extraConf="KillWait=5"),
        settings=Settings(),
    )
    assert plain == changed


def test_w38_nothing_of_a_specification_becomes_part_of_a_script() -> None:
    hostile = "$(touch /pwned)'\"; reboot"
    scripts = [it["command"] for it in (*pod()["containers"], *pod()["initContainers"])]
    made = pod(loginset(extraSshdConfig=f"Banner {hostile}", rootSshAuthorizedKeys=hostile))
    assert [it["command"] for it in (*made["containers"], *made["initContainers"])] == scripts


@pytest.mark.parametrize(
    "script",
    [
        login._START,
        login._SACKD,
        sssd._START,
        login._LISTENS,
        *(munge.sidecar("image", follow=follow)["command"][-1] for follow in (True, False)),
    ],
)
def test_scripts_are_read_by_bash(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_people_come_in_by_key_and_root_only_if_it_has_one() -> None:
    written = login.config(loginset(), "slurm")["data"]
    assert written["sshd_config"] == sshdconfig.write()
    assert "PermitRootLogin no\n" in written["sshd_config"]
    assert "PasswordAuthentication no\n" in written["sshd_config"]
    with_root = login.config(loginset(rootSshAuthorizedKeys="ssh-ed25519 AAAA x"), "slurm")["data"]
    assert "PermitRootLogin prohibit-password\n" in with_root["sshd_config"]
    assert with_root["root.authorized_keys"] == "ssh-ed25519 AAAA x\n"


def test_settings_of_the_user_take_the_place_of_ours_and_stay_as_written() -> None:
    everybody = "passwordauthentication yes\nSubsystem sftp /usr/lib/sftp-server\nHostKey /my/key"
    extra = f"{everybody}\n\nMatch User bob\n\tX11Forwarding no"
    written = sshdconfig.write(extra)
    assert "PasswordAuthentication no" not in written
    assert "internal-sftp" not in written
    assert "HostKey /run/secrets/ssh/ssh_host_rsa_key\n" in written  # these add up
    assert "X11Forwarding yes\n" in written  # theirs is for bob alone
    assert written.endswith(f"\n{extra}\n")


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ("MaxSesions 3", "line 1 of extraSshdConfig: sshd has no option 'MaxSesions'"),
        ("# fine\nMaxSessions", "line 2 of extraSshdConfig is not a setting: 'MaxSessions'"),
        ("Port 2222", "use service.port"),
        ("Banner \x00", "control characters"),
    ],
)
def test_settings_that_sshd_would_not_take_are_refused(extra: str, problem: str) -> None:
    with pytest.raises(BadSshdConfig) as refused:
        login.config(loginset(extraSshdConfig=extra), "slurm")
    assert problem in str(refused.value)
    plain = login.config(loginset(extraSshdConfig=extra), "slurm", without_extra=True)
    assert plain["data"]["sshd_config"] == sshdconfig.write()


def test_no_script_has_two_dollar_signs_of_which_kubernetes_would_leave_one() -> None:
    words = [word for it in (*pod()["containers"], *pod()["initContainers"]) for word in it["command"]]
    assert any("sshd" in word for word in words)
    assert not [word for word in words if "$$" in word]

"""sshd of workers: what is made for it, and what it may not be told."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from isthmus.domain.operator import sshdconfig
from isthmus.domain.operator.manifests import sshd, worker, workerssh
from isthmus.domain.operator.sshdconfig import BadSshdConfig
from isthmus.model.slinky import NodeSet
from isthmus.operator import hostkeys
from tests.unit.domain.operator.manifests.test_worker import made, revision, slurmd
from tests.unit.domain.operator.nodeset.views import nodeset

ROOT = {"volume": {"persistentVolumeClaim": {"claimName": "jail"}}}


def with_ssh(extra: str = "", **spec: Any) -> NodeSet:
    return nodeset(1, ssh={"enabled": True, "extraSshdConfig": extra}, **spec)


def written(of: NodeSet) -> str:
    data = workerssh.config(of, worker.labels(of, "slurm"))["data"]
    return str(data["sshd_config"])


def test_without_it_a_pod_is_as_before() -> None:
    assert slurmd(made())["command"][2] == worker._START
    assert {it["name"] for it in made()["spec"]["volumes"]} == {"shared-memory", "slurm-keys", "slurm-users"}


def test_sshd_runs_beside_slurmd_with_the_files_of_its_nodeset() -> None:
    pod = made(with_ssh())
    container = slurmd(pod)
    assert container["command"][2] == f"{workerssh._BESIDE}{worker._START}"
    assert [it["containerPort"] for it in container["ports"]] == [6818, 22]
    volumes = {it["name"]: it for it in pod["spec"]["volumes"]}
    assert volumes["ssh-config"]["configMap"] == {"name": "worker-ssh-config"}
    assert volumes["ssh-host-keys"]["secret"] == {"secretName": "worker-ssh-host-keys", "defaultMode": 0o600}
    mounted = {it["mountPath"] for it in container["volumeMounts"]}
    assert {"/etc/ssh/isthmus", "/run/secrets/ssh"} <= mounted


def test_slurmd_is_ready_with_or_without_it() -> None:
    for probe in ("startupProbe", "readinessProbe"):
        assert slurmd(made(with_ssh()))[probe] == slurmd(made())[probe]


def test_with_a_shared_root_it_begins_when_that_is_filled() -> None:
    script = slurmd(made(with_ssh(sharedRoot=ROOT)))["command"][2]
    filled, serving, slurmd_ = (script.index(it) for it in ("until trouble=", "let_in()", "slurmd -D"))
    assert filled < serving < slurmd_


def test_pods_are_made_anew_for_it_and_not_for_its_settings() -> None:
    assert revision(with_ssh()) != revision()
    assert revision(with_ssh("MaxSessions 3")) == revision(with_ssh())


def test_weakness_s32_whoever_has_no_job_is_refused_whatever_fails() -> None:
    rule = workerssh._RULE.split()
    assert rule[:3] == ["account", "requisite", "pam_slurm_adopt.so"]
    assert {"action_no_jobs=deny", "action_adopt_failure=deny", "action_generic_failure=deny"} <= set(rule)
    # It stands first, and sshd cannot be told to do without it.
    assert f'rule="{workerssh._RULE}"' in workerssh._BESIDE
    assert 'sed -i "1i $rule" /etc/pam.d/sshd' in workerssh._BESIDE
    assert "sshd -o UsePAM=yes" in workerssh._BESIDE
    # What PAM does comes with the pod, and as a directory: over one file of the shared root it could be taken off.
    assert "bind=/etc/pam.d " in workerssh._BESIDE


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ("UsePAM no", "extraSshdConfig sets UsePAM"),
        ("usepam = no", "sets usepam"),
        ("PAMServiceName other", "sshd has no option 'PAMServiceName'"),
        ("Port 2222", "extraSshdConfig sets Port"),
        ("MaxSesions 3", "sshd has no option 'MaxSesions'"),
    ],
)
def test_settings_that_would_open_it_or_break_it_are_refused(extra: str, problem: str) -> None:
    with pytest.raises(BadSshdConfig) as refused:
        written(with_ssh(extra))
    assert problem in str(refused.value)


def test_people_come_in_by_key_and_so_does_root() -> None:
    assert "PasswordAuthentication no\n" in written(with_ssh())
    assert "PermitRootLogin prohibit-password\n" in written(with_ssh())
    assert written(with_ssh("MaxSessions 3")).endswith("\nMaxSessions 3\n")


def test_workers_are_known_by_their_names_and_keys() -> None:
    keys = hostkeys.generate(["ssh_host_ed25519_key", "ssh_host_ecdsa_key"], comment="worker")
    lines = sshd.known_hosts(["worker-*"], {name: text.encode() for name, text in keys.items()}).splitlines()
    assert [it.split()[:2] for it in lines] == [["worker-*", "ssh-ed25519"], ["worker-*", "ecdsa-sha2-nistp256"]]
    assert lines[0].split()[2] == keys["ssh_host_ed25519_key.pub"].split()[1]
    assert not any("PRIVATE" in it for it in lines)


def test_names_of_workers_follow_from_their_nodeset() -> None:
    assert workerssh.hosts(with_ssh(), []) == ("worker-*",)
    assert workerssh.hosts(with_ssh(template={"spec": {"hostname": "gpu"}}), []) == ("gpu*",)
    assert workerssh.hosts(with_ssh(scalingMode="DaemonSet"), ["b", "a"]) == ("a", "b")
    assert sshd.known_hosts((), {"ssh_host_rsa_key.pub": b"ssh-rsa AAAA x"}) == ""


def test_where_the_rule_is_missing_sshd_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "sleep").symlink_to("/bin/true")
    script = f"{workerssh._CHECK}\necho begins"
    done = subprocess.run(  # as on this machine, whose PAM has no such rule
        ["bash", "-euc", script],
        env={"PATH": f"{tmp_path}:/usr/sbin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert "there is no rule for it in /etc/pam.d/sshd: nobody is let in" in done.stderr


@pytest.mark.parametrize("script", [workerssh._BESIDE, workerssh._CHECK, sshd.SERVE])
def test_scripts_are_read_by_bash(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_w38_nothing_of_a_specification_becomes_part_of_a_script() -> None:
    hostile = "Banner $(touch /pwned)'\"; reboot"
    assert slurmd(made(with_ssh(hostile)))["command"] == slurmd(made(with_ssh()))["command"]
    assert sshdconfig.checked(hostile, decided=sshdconfig.DECIDED_FOR_WORKERS) == hostile

import subprocess
from typing import Any

import msgspec
import pytest

from isthmus.domain.languages.slurmconf import ConfigError
from isthmus.domain.operator.manifests import accounting
from isthmus.domain.operator.manifests.common import Settings
from isthmus.model.slinky import Accounting

FILES = {"slurmdbd.conf": b"", "slurm.jwks": b"", "jwt.key": b""}


def made(**spec: Any) -> Accounting:
    keys = {"slurmKeyRef": {"name": "k", "key": "slurm.key"}, "jwtKeyRef": {"name": "k", "key": "jwt.key"}}
    manifest = {"metadata": {"name": "slurm", "namespace": "hpc", "uid": "a"}, "spec": {**keys, **spec}}
    return msgspec.convert(manifest, Accounting)


def pod(of: Accounting, files: dict[str, bytes] | None = None) -> dict[str, Any]:
    whole = accounting.statefulset(of, settings=Settings(), files=files or FILES, hash_="h")
    return dict(whole["spec"]["template"]["spec"])


def test_slurmdbd_conf_with_a_database_of_its_own() -> None:
    assert accounting.slurmdbd_conf(made()) == (
        "# Made by Isthmus from Accounting hpc/slurm.\n"
        "DbdHost=slurm-accounting-0\n"
        "DbdPort=6819\n"
        "SlurmUser=slurm\n"
        "AuthType=auth/slurm\n"
        "PidFile=/run/slurmdbd/slurmdbd.pid\n"
        "LogTimeFormat=iso8601_ms,format_stderr\n"
        "StorageType=accounting_storage/mysql\n"
        "StorageHost=slurm-mariadb.hpc.svc\n"
        "StoragePort=3306\n"
        "StorageUser=slurm\n"
        "StorageLoc=slurm_acct_db\n"
        "AuthAltTypes=auth/jwt\n"
        "AuthAltParameters=jwt_key=/etc/slurm/jwt.key\n"
        "AuthInfo=use_client_ids\n"
    )


def test_w21_lists_of_the_user_keep_their_case_and_get_ours_added() -> None:
    extra = "AuthAltParameters=jwks=/My/Path.json,disable_token_creation\nPurgeJobAfter=12months"
    conf = accounting.slurmdbd_conf(made(extraConf=extra))
    assert "jwt_key=/etc/slurm/jwt.key,jwks=/My/Path.json,disable_token_creation" in conf
    assert conf.count("AuthAltParameters=") == 1
    assert conf.endswith("PurgeJobAfter=12months\n")


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("StoragePass=secret", "spec.storageConfig.passwordKeyRef"),
        ("storagehost=elsewhere", "spec.storageConfig.host"),
        ("DbdPort=1", "spec.service.port"),
        ("AuthType=auth/none", "spec.authType"),
    ],
)
def test_what_has_a_field_of_its_own_is_refused_in_free_text(line: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as refused:
        accounting.slurmdbd_conf(made(extraConf=line))
    assert remedy in str(refused.value)


def test_the_password_is_a_file_and_in_no_argument_or_variable() -> None:
    storage = {"host": "db", "passwordKeyRef": {"name": "db-secret", "key": "pw"}, "username": "me"}
    made_pod = pod(made(storageConfig=storage))
    (container,) = made_pod["containers"]
    assert {it["name"] for it in container["env"]} == {"ISTHMUS_DATABASE_HOST", "ISTHMUS_DATABASE_PORT"}
    (volume,) = (it["secret"] for it in made_pod["volumes"] if it["name"] == "password")
    assert volume["secretName"] == "db-secret"
    assert volume["items"] == [{"key": "pw", "path": "password"}]
    assert "StorageUser=me\n" in accounting.slurmdbd_conf(made(storageConfig=storage))


@pytest.mark.parametrize("password", [b"", b"two words", b"a#b", b'a"b', b"a\\b", b"a\nb"])
def test_passwords_that_slurms_files_cannot_hold_are_refused_and_not_repeated(password: bytes) -> None:
    with pytest.raises(ConfigError) as refused:
        accounting.checked_password(password, where="Secret db")
    assert not password.strip() or password.decode() not in str(refused.value)
    accounting.checked_password(b"fine-1\n", where="Secret db")  # as echo writes it


def test_slurmdbd_is_not_root_and_munged_is_itself() -> None:
    (container,) = pod(made())["containers"]
    assert container["securityContext"]["runAsUser"] == 64030
    with_munge = pod(made(authType="munge"), {"slurmdbd.conf": b"", "munge.key": b"", "jwt.key": b""})
    assert [it["name"] for it in with_munge["initContainers"]] == ["munge"]
    (files,) = (it["secret"] for it in with_munge["volumes"] if it["name"] == "slurm-files")
    assert [it["key"] for it in files["items"]] == ["jwt.key", "slurmdbd.conf"]


def test_a_port_of_the_user_is_the_services() -> None:
    (port,) = accounting.service(made(service={"port": 7000}))["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (7000, 6819)


def test_the_script_is_read_by_bash() -> None:
    done = subprocess.run(["bash", "-n"], input=accounting._START, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr

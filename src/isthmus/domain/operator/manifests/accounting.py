"""slurmdbd: keeps the accounts of one or more clusters.

Its password for the database is a mounted file, which is put behind its configuration when it starts; so it stands
in no second Secret, in no argument and in no variable. It waits for its database: it would end without one.
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.languages import slurmconf
from isthmus.domain.languages.slurmconf import Config, ConfigError, Directive, Line, Note, Value
from isthmus.domain.operator import authkeys, partnames
from isthmus.domain.operator.manifests import common, database, munge, startorder
from isthmus.domain.operator.manifests.common import SLURM_UID, Manifest, Settings
from isthmus.domain.operator.slurmfiles.extra import Extra
from isthmus.model.slinky import Accounting, KeyReference

APP: Final = "slurmdbd"
COMPONENT: Final = "accounting"
CONTAINER: Final = "slurmdbd"
CONF: Final = "slurmdbd.conf"
JWKS_FILE: Final = "jwks.json"

WAITS: Final = "waiting for the database at "
"""How the line begins that slurmdbd's container writes before it starts."""

_ETC: Final = "/etc/slurm"
_GIVEN: Final = "/run/secrets/slurm"

_START: Final = (
    startorder.AWAIT
    + r"""
umask 077
mkdir -p /run/slurmdbd
install -m 600 /run/secrets/slurm/* /etc/slurm/
{ printf 'StoragePass='; tr -d '\r\n' < /run/secrets/database/password; echo; } >> /etc/slurm/slurmdbd.conf
echo '"""
    + WAITS
    + r"""'"$ISTHMUS_DATABASE_HOST:$ISTHMUS_DATABASE_PORT"
await_one_of "$ISTHMUS_DATABASE_HOST:$ISTHMUS_DATABASE_PORT"
exec slurmdbd -D "$@"
"""
)

_DECIDED_ELSEWHERE: Final[Mapping[str, str]] = {
    "dbdhost": "leave it out: it is the pod's name",
    "dbdaddr": "leave it out: it is the pod's name",
    "dbdport": "use spec.service.port, which is the port outside of the pod",
    "slurmuser": "leave it out: slurmdbd runs as slurm",
    "authtype": "use spec.authType",
    "storagetype": "use spec.storageConfig",
    "storagehost": "use spec.storageConfig.host",
    "storageport": "use spec.storageConfig.port",
    "storageuser": "use spec.storageConfig.username",
    "storageloc": "use spec.storageConfig.database",
    "storagepass": "use spec.storageConfig.passwordKeyRef",
    "pidfile": "leave it out: it is in a volume of its own",
}


def labels(accounting: Accounting) -> dict[str, str]:
    """Make the marks of everything that belongs to slurmdbd."""
    return common.labels(APP, accounting.metadata.name, COMPONENT)


def is_embedded(accounting: Accounting) -> bool:
    """Whether the database is one that we run."""
    return not accounting.spec.external and accounting.spec.storage_config is None


def password_reference(accounting: Accounting) -> KeyReference:
    if accounting.spec.storage_config:
        return accounting.spec.storage_config.password_key_ref
    return KeyReference(name=partnames.database(accounting.metadata.name), key=database.PASSWORD_KEY)


def checked_password(password: bytes, *, where: str) -> None:
    """Refuse a password that cannot stand in slurmdbd.conf, without repeating it."""
    text = password.decode(errors="replace").strip("\r\n")
    if not text:
        raise ConfigError(f"the password in {where} is empty")
    if not text.isprintable() or any(sign.isspace() or sign in '#"\\' for sign in text):
        raise ConfigError(
            f"the password in {where} contains a space, quote, #, backslash or control character",
            remedy="Slurm's files do not support these: choose another password",
        )


def slurmdbd_conf(accounting: Accounting) -> str:
    """Write slurmdbd.conf, but for the password; raises ConfigError for what cannot be written."""
    extra = Extra(slurmconf.parse(accounting.spec.extra_conf, name="extraConf"))
    for key in sorted(extra.keys & _DECIDED_ELSEWHERE.keys()):
        raise ConfigError(f"extraConf sets {key}, which the operator manages", remedy=_DECIDED_ELSEWHERE[key])
    required = _required(accounting)
    ours: dict[str, Value] = {**_settings(accounting), **required}
    lines: list[Line] = [Note.of(f"Made by Isthmus from Accounting {accounting.metadata.key}.")]
    lines += [Directive.of({key: value}) for key, value in ours.items() if key.lower() not in extra.keys]
    return Config((*lines, *extra.with_required(required))).render()


def secret(accounting: Accounting, files: Mapping[str, bytes]) -> Manifest:
    """Make the Secret with the configuration and the keys."""
    meta = accounting.metadata
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": common.metadata(partnames.accounting(meta.name), meta.namespace, labels(accounting)),
        "data": {name: b64encode(content).decode() for name, content in files.items()},
    }


def service(accounting: Accounting) -> Manifest:
    meta = accounting.metadata
    return common.service(
        partnames.accounting(meta.name),
        meta.namespace,
        labels(accounting),
        port=partnames.SLURMDBD_PORT,
        port_name="slurmdbd",
        template=accounting.spec.service,
    )


def inputs(accounting: Accounting, *, settings: Settings, hash_: str) -> object:
    """Everything that the pods depend on except our own code: a change recreates them."""
    spec = accounting.spec
    return (
        msgspec.to_builtins([spec.template, spec.storage_config]),
        spec.slurmdbd,
        [spec.auth_type, hash_],
        settings.slurm_image,
    )


def statefulset(accounting: Accounting, *, settings: Settings, files: Mapping[str, bytes], hash_: str) -> Manifest:
    """Make the StatefulSet; `hash_` changes with everything that slurmdbd reads when it starts."""
    meta, marks, spec = accounting.metadata, labels(accounting), accounting.spec
    image = spec.slurmdbd.get("image") or settings.slurm_image
    munged = spec.auth_type == "munge"
    pod: Manifest = {
        "containers": [_container(accounting, image, munged=munged)],
        "volumes": _volumes(accounting, files, munged=munged),
    }
    if munged:
        pod["initContainers"] = [munge.sidecar(image)]
    template = common.pod_template(
        {**pod, "securityContext": {"fsGroup": SLURM_UID, "seccompProfile": {"type": "RuntimeDefault"}}},
        marks,
        main=CONTAINER,
        template=spec.template,
        containers={CONTAINER: spec.slurmdbd},
        hashes={names.SLURMDBD_CONF_HASH_ANNOTATION: hash_},
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": common.metadata(partnames.accounting(meta.name), meta.namespace, marks),
        "spec": {
            "replicas": 1,
            "serviceName": partnames.accounting(meta.name),
            "podManagementPolicy": "Parallel",
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": common.selector(marks)},
            "template": template,
        },
    }


def _settings(accounting: Accounting) -> dict[str, Value]:
    host, port, user, location = _storage(accounting)
    return {
        "DbdHost": f"{partnames.accounting(accounting.metadata.name)}-0",
        "DbdPort": partnames.SLURMDBD_PORT,
        "SlurmUser": "slurm",
        "AuthType": f"auth/{accounting.spec.auth_type}",
        "PidFile": "/run/slurmdbd/slurmdbd.pid",
        "LogTimeFormat": ("iso8601_ms", "format_stderr"),
        "StorageType": "accounting_storage/mysql",
        "StorageHost": host,
        "StoragePort": port,
        "StorageUser": user,
        "StorageLoc": location,
    }


def _storage(accounting: Accounting) -> tuple[str, int, str, str]:
    """Host, port, user and name of the database."""
    given = accounting.spec.storage_config
    if given:
        return given.host, given.port, given.username or "slurm", given.database
    meta = accounting.metadata
    host = f"{partnames.database(meta.name)}.{meta.namespace}.svc"
    return host, partnames.MARIADB_PORT, database.USER, database.DATABASE


def _required(accounting: Accounting) -> dict[str, tuple[str, ...]]:
    """The entries that lists must hold, whatever else the user puts there."""
    keys = [f"jwt_key={_ETC}/{authkeys.JWT_FILE}"]
    if accounting.spec.jwks_key_ref:
        keys.append(f"jwks={_ETC}/{JWKS_FILE}")
    needed: dict[str, tuple[str, ...]] = {"AuthAltTypes": ("auth/jwt",), "AuthAltParameters": tuple(keys)}
    if accounting.spec.auth_type == "slurm":
        # Users that only login nodes know of have accounts, too.
        needed["AuthInfo"] = ("use_client_ids",)
    return needed


def _container(accounting: Accounting, image: str, *, munged: bool) -> Manifest:
    host, database_port, _, _ = _storage(accounting)
    port = partnames.SLURMDBD_PORT
    return {
        "name": CONTAINER,
        "image": image,
        "command": ["bash", "-euc", _START, CONTAINER],
        "args": [],
        "env": [
            {"name": "ISTHMUS_DATABASE_HOST", "value": host},
            {"name": "ISTHMUS_DATABASE_PORT", "value": str(database_port)},
        ],
        "ports": [{"name": "slurmdbd", "containerPort": port, "protocol": "TCP"}],
        "startupProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 600},
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 10},
        # Of the container, not of the pod: munged has a user of its own.
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": SLURM_UID,
            "runAsGroup": SLURM_UID,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            *common.mounts([("slurm-etc", _ETC), ("run", "/run")], read_only=False),
            *common.mounts([("slurm-files", _GIVEN), ("password", "/run/secrets/database")]),
            *([munge.socket_mount()] if munged else []),
        ],
    }


def _volumes(accounting: Accounting, files: Mapping[str, bytes], *, munged: bool) -> list[Manifest]:
    own = partnames.accounting(accounting.metadata.name)
    items = [{"key": name, "path": name} for name in sorted(files) if name != authkeys.MUNGE_FILE]
    password = password_reference(accounting)
    return [
        {"name": "slurm-etc", "emptyDir": {"medium": "Memory"}},
        {"name": "run", "emptyDir": {"medium": "Memory"}},
        {"name": "slurm-files", "secret": {"secretName": own, "items": items, "defaultMode": 0o440}},
        {
            "name": "password",
            "secret": {
                "secretName": password.name,
                "items": [{"key": password.key, "path": database.PASSWORD_KEY}],
                "defaultMode": 0o440,
            },
        },
        *(munge.volumes(own) if munged else []),
    ]

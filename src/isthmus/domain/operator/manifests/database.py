"""MariaDB for accounting, unless another is named: one pod, a volume that stays, a password that is made once.

At every start the database, the user and the password are made as they should be, before clients can connect. So
the first start is like any other, and a changed password counts as soon as the pods are recreated for it.
"""

from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.model.slinky import Accounting, Persistence

APP: Final = "mariadb"
COMPONENT: Final = "database"
CONTAINER: Final = "mariadb"
USER: Final = "slurm"
DATABASE: Final = "slurm_acct_db"
PASSWORD_KEY: Final = "password"  # noqa: S105 - the name of a file, not what is in it

_DATA: Final = "/var/lib/mysql"
_SIZE: Final = "4Gi"

_START: Final = r"""
data=/var/lib/mysql/data
password=$(< /run/secrets/database/password)
if [[ ! $password =~ ^[A-Za-z0-9_.~+/=@%^-]{8,128}$ ]]; then
    echo 'the password must be 8 to 128 letters, digits or signs out of _.~+/=@%^-' | tee /dev/termination-log >&2
    exit 1
fi
owner=()
if (( EUID == 0 )); then
    owner=(--user=mysql)
    install -d -o mysql -g mysql /var/lib/mysql /run/mysqld
fi
if command -v mariadb-ensure-data > /dev/null; then
    mariadb-ensure-data "$data"
elif [[ ! -d $data ]]; then
    # Only a database that was finished gets the name under which it is looked for.
    rm -rf "$data.partial"
    mariadb-install-db --no-defaults "${owner[@]}" --datadir="$data.partial" --skip-test-db --skip-name-resolve
    mv "$data.partial" "$data"
fi
if (( EUID == 0 )) && [[ $(stat -c %U "$data") != mysql ]]; then chown -R mysql:mysql "$data"; fi
umask 077
cat > /run/mysqld/first.sql <<END
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@'%';
ALTER USER slurm@'%' IDENTIFIED BY '$password';
GRANT ALL ON slurm_acct_db.* TO slurm@'%';
END
if (( EUID == 0 )); then chown mysql:mysql /run/mysqld/first.sql; fi
unset password
exec mariadbd --no-defaults "${owner[@]}" --datadir="$data" --socket=/run/mysqld/mysqld.sock \
    --init-file=/run/mysqld/first.sql "$@"
"""

_OPTIONS: Final = (
    # With TLS it would make itself an RSA key at each start, which takes seconds.
    "--skip-ssl",
    "--skip-name-resolve",
    # slurmdbd ends when a write of its own meets this kind of isolation.
    "--innodb-snapshot-isolation=OFF",
    # As slurmdbd's documentation asks for.
    "--innodb-lock-wait-timeout=900",
    "--innodb-buffer-pool-size=256M",
    "--innodb-log-file-size=64M",
    "--max-allowed-packet=16M",
    # Probes are not logged.
    "--log-warnings=1",
)


def labels(accounting: Accounting) -> dict[str, str]:
    """Make the marks of everything that belongs to the database."""
    return common.labels(APP, accounting.metadata.name, COMPONENT)


def secret(accounting: Accounting, password: str) -> Manifest:
    """Make the Secret with the password, which is made once and may be changed by its owner."""
    meta = accounting.metadata
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": common.metadata(partnames.database(meta.name), meta.namespace, labels(accounting)),
        "stringData": {PASSWORD_KEY: password},
    }


def service(accounting: Accounting) -> Manifest:
    """Make the Service, which is also the one that gives the pod its name."""
    meta = accounting.metadata
    return common.service(
        partnames.database(meta.name),
        meta.namespace,
        labels(accounting),
        port=partnames.MARIADB_PORT,
        port_name="mysql",
    )


def inputs(accounting: Accounting, *, settings: Settings, password_version: str) -> object:
    """Everything that the pods depend on except our own code: a change recreates them."""
    return msgspec.to_builtins(accounting.spec.database), settings.mariadb_image, password_version


def statefulset(accounting: Accounting, *, settings: Settings, password_version: str) -> Manifest:
    """Make the StatefulSet; its pod is recreated for another version of the password."""
    meta, marks, asked = accounting.metadata, labels(accounting), accounting.spec.database
    volume, templates = _volume(asked.persistence)
    template = common.pod_template(
        {
            "containers": [_container(accounting, settings)],
            "volumes": [
                *volume,
                {"name": "run", "emptyDir": {"medium": "Memory"}},
                {"name": "password", "secret": {"secretName": partnames.database(meta.name), "defaultMode": 0o400}},
            ],
        },
        marks,
        main=CONTAINER,
        template=asked.template,
        containers={},
        hashes={names.DATABASE_ACCESS_ANNOTATION: password_version},
    )
    spec: Manifest = {
        "replicas": 1,
        "serviceName": partnames.database(meta.name),
        "revisionHistoryLimit": 0,
        "selector": {"matchLabels": common.selector(marks)},
        "template": template,
    }
    if templates:
        spec["volumeClaimTemplates"] = templates
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": common.metadata(partnames.database(meta.name), meta.namespace, marks),
        "spec": spec,
    }


def _container(accounting: Accounting, settings: Settings) -> Manifest:
    port = partnames.MARIADB_PORT
    asked = accounting.spec.database
    made: Manifest = {
        "name": CONTAINER,
        "image": asked.image or settings.mariadb_image,
        "command": ["bash", "-euc", _START, CONTAINER],
        "args": list(_OPTIONS),
        "ports": [{"name": "mysql", "containerPort": port, "protocol": "TCP"}],
        "startupProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 300},
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 10},
        "volumeMounts": [
            *common.mounts([("data", _DATA), ("run", "/run/mysqld")], read_only=False),
            *common.mounts([("password", "/run/secrets/database")]),
        ],
    }
    return made | ({"resources": asked.resources} if asked.resources else {})


def _volume(persistence: Persistence) -> tuple[list[Manifest], list[Manifest]]:
    """Make the volume of the data, or the template of its claim."""
    if not persistence.enabled:
        return [{"name": "data", "emptyDir": {}}], []
    if persistence.existing_claim:
        return [{"name": "data", "persistentVolumeClaim": {"claimName": persistence.existing_claim}}], []
    given = msgspec.to_builtins(persistence)
    ours = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": _SIZE}}}
    spec = {key: value for key, value in given.items() if key not in {"enabled", "existingClaim"}}
    return [], [{"metadata": {"name": "data"}, "spec": {**ours, **spec}}]

"""The MariaDB of a test bed: how it runs, and an empty accounting database that is made once and copied.

To make a database and have slurmdbd fill in its tables takes seconds; to copy one that has them takes none. The
original is kept in the cache under a name that changes with all that went into it.
"""

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from isthmus.errors import Terminal
from isthmus.local.images import cache
from tests.bed import slurm_conf
from tests.bed.slurm_box import Box, Daemon, listens

PLACE = "/database"
_DATA = f"{PLACE}/var/lib/mysql"
_SOCKET = "/run/mysqld/mysqld.sock"

# A database that dies with its test needs no care for the disk, and little memory.
_OPTIONS = (
    "--no-defaults",
    # With TLS it would make itself an RSA key at each start, which takes up to two seconds of a core.
    "--skip-ssl",
    "--user=mysql",
    "--datadir=/var/lib/mysql",
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=32M",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
    # slurmdbd ends when a write of its own meets this kind of isolation.
    "--innodb-snapshot-isolation=OFF",
)

# slurmdbd gives up when it has to make the database itself: after the connection that finds it missing, MariaDB's
# client library allows no result of any column. The socket, which only the bed sees, is all the protection needed.
_FIRST_STATEMENTS = """\
FLUSH PRIVILEGES;
CREATE DATABASE slurm_acct_db;
CREATE USER slurm@localhost;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
"""

_PREPARE = f"""
set -eu
install --directory --mode=755 /run/mysqld {PLACE}/run/mysqld
mount --bind {PLACE}/run/mysqld /run/mysqld
chroot {PLACE} chown mysql: /run/mysqld
"""

_INSTALL = f"""
set -eu
rm -rf {_DATA}
mkdir -p {_DATA}
chroot {PLACE} chown mysql: /var/lib/mysql
cat > {PLACE}/run/first.sql
chroot {PLACE} mariadb-install-db {" ".join(_OPTIONS)} --force --skip-test-db --extra-file=/run/first.sql
"""


def prepare(box: Box, template: Path | None) -> None:
    """Put a database into the box: a copy of the template, or a new one without tables."""
    _sh(box, _PREPARE)
    if template:
        subprocess.run(["rm", "-rf", box.path(_DATA)], check=True)
        subprocess.run(["cp", "--archive", f"{template}/data", box.path(_DATA)], check=True)
    else:
        _sh(box, _INSTALL, stdin=_FIRST_STATEMENTS)


def spawn(box: Box, *, log: str) -> Daemon:
    """Start mariadbd."""
    return box.spawn(["chroot", PLACE, "mariadbd", *_OPTIONS, f"--socket={_SOCKET}", "--skip-networking"], log=log)


def is_ready(box: Box) -> bool:
    """Say whether clients can connect."""
    return listens(box.path(_SOCKET))


def template(roots: Iterable[Path], *, fill: Callable[[Path], None]) -> Path:
    """Return the cached database for those root file systems, which `fill` makes when there is none."""
    recipes = [Path(source).read_text() for source in (__file__, slurm_conf.__file__)]
    key = cache.key_of([str(root) for root in roots], recipes)
    final = cache.directory("databases") / key
    with cache.locked(f"database-{key}"):
        if not final.exists():
            with cache.replacing(final) as partial:
                fill(partial)
    return final


def save(box: Box, target: Path) -> None:
    """Make a template of the database in the box; mariadbd must have been shut down."""
    subprocess.run(["cp", "--archive", box.path(_DATA), f"{target}/data"], check=True)


def _sh(box: Box, script: str, *, stdin: str | None = None) -> None:
    done = box.run("sh", "-c", script, stdin=stdin)
    if done.returncode:
        raise Terminal(f"the test bed's database could not be made: {done.stdout}{done.stderr}")

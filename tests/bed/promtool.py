"""The Prometheus that the local cluster runs, and its promtool, without any cluster."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from isthmus.local.progress import PlainProgress
from tests.bed import rootfs
from tests.bed.addresses import loopback_address
from tests.bed.commands import Done, attempt
from tests.bed.slurm_box import wait_until

# They are linked against the C library of their own Debian release, so they run in their own root, with our files
# mounted. A host that has never had this program does not notice it either.
_RUN = """
mount --bind "$1" "$2/mnt"
root=$2
shift 2
exec chroot "$root" sh -c 'cd /mnt && exec "$0" "$@"' "$@"
"""
_READY_WITHIN = 60
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def promtool(directory: Path, *words: str, stdin: str | None = None) -> Done:
    """Run it in a directory of ours; the names of files are relative to that."""
    return attempt(*_entering(directory), "promtool", *words, stdin=stdin)


class Prometheus:
    """A server that scrapes and evaluates rules."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expr: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("query", query=expr)["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def is_ready(self) -> bool:
        try:
            with _DIRECT.open(f"{self.url}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def _get(self, what: str, **words: str) -> Any:
        with _DIRECT.open(f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(words)}", timeout=30) as answer:
            return json.load(answer)["data"]


@contextmanager
def prometheus(directory: Path, config: dict[str, Any]) -> Iterator[Prometheus]:
    """Run a server with a configuration; files that it names are in the directory, where it keeps its data, too."""
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    with loopback_address() as address, (directory / "prometheus.log").open("w") as log:
        flags = ("--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}:9090")
        words = [*map(str, _entering(directory)), "prometheus", *flags]
        running = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        try:
            server = Prometheus(f"http://{address}:9090")
            wait_until(server.is_ready, what="Prometheus is ready", within=_READY_WITHIN)
            yield server
        finally:
            running.terminate()
            running.wait()


def _entering(directory: Path) -> tuple[str | Path, ...]:
    root = rootfs.ensure("prometheus", PlainProgress())
    return ("unshare", "--mount", "--", "sh", "-euc", _RUN, "sh", directory, root)

"""The page's process, as `isthmus web` starts it, and the way to its views.

with serving(kubeconfig, rest_url=…, token=…, log=…, more=("--insecure-no-login",)) as url:
    see(page, url, "why/job/7")
"""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Page

from tests.bed.addresses import loopback_address
from tests.bed.waiting import eventually

ISTHMUS: Final = Path(sys.executable).with_name("isthmus")
PORT: Final = 8082


@contextmanager
def serving(kubeconfig: Path, *, rest_url: str, token: str, log: Path, more: tuple[str, ...]) -> Iterator[str]:
    """Run the process, and give its address, which takes the place of {address} in its flags."""
    with loopback_address() as address:
        command: list[str | Path] = [
            ISTHMUS,
            "web",
            f"--slurm-rest-api={rest_url}",
            f"--bind-address={address}:{PORT}",
            f"--health-probe-bind-address={address}:8081",
            "--metrics-bind-address=0",
            *(it.replace("{address}", address) for it in more),
        ]
        environment = os.environ | {"KUBECONFIG": str(kubeconfig), "SLURM_JWT": token}
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
            try:
                eventually(lambda: _is_ready(process, address, log), "the page's process to be ready")
                yield f"http://{address}:{PORT}"
            finally:
                process.terminate()
                process.wait(timeout=60)


def _is_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        with urllib.request.urlopen(f"http://{address}:8081/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def see(page: Page, url: str, view: str) -> None:
    """Go to a view of a page that is open."""
    page.goto(f"{url}/#/{view}")

"""The libraries that we are measured against, in an environment of their own, and one script for each of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.stopwatch import PROFILE
from isthmus.errors import Terminal
from isthmus.local.images import cache
from isthmus.local.paths import cache_dir
from isthmus.local.progress import PlainProgress

OTHERS = ("lightkube", "kubernetes_asyncio", "kr8s")

_ROOT = Path(__file__).parent.parent
_LOCK = _ROOT / "requirements-compare.lock"
_COURSE = Path(__file__).parent / "course"
_PATIENCE = 600


def python() -> Path:
    """Return the interpreter of an environment with exactly the packages of the lock file, made on first use."""
    key = cache.key_of(_LOCK.read_text(), sys.version)
    final = cache_dir() / "compare" / key
    with cache.locked(f"compare-{key}"):
        if not final.exists():
            with PlainProgress().step("Install the libraries to compare with"), cache.replacing(final) as partial:
                subprocess.run([sys.executable, "-m", "venv", partial], check=True)
                # Nothing of it may reach standard output, which can be somebody's JSON.
                subprocess.run(
                    [partial / "bin/pip", "install", "--quiet", "--require-hashes", "--requirement", _LOCK],
                    check=True,
                    stdout=sys.stderr,
                )
    return final / "bin" / "python"


def run(script: str, *words: str, kubeconfig: Path) -> Any:
    """Run a script of the course, and return the JSON that it printed."""
    # Isthmus itself comes from the working tree, for which the environment has all that it needs.
    path = os.pathsep.join(map(str, (_ROOT / "src", _ROOT)))
    env = {**os.environ, "PYTHONPATH": path, "KUBECONFIG": str(kubeconfig)}
    if script.removeprefix("with_") in OTHERS:
        env.pop(PROFILE, None)  # where their time goes is not our business
        env["PYTHONWARNINGS"] = "ignore"  # one of them always warns that it does not know our Kubernetes yet
    done = subprocess.run(
        [python(), _COURSE / f"{script}.py", *words],
        check=False,
        env=env,
        stdout=subprocess.PIPE,
        timeout=_PATIENCE,
    )
    if done.returncode:
        raise Terminal(f"{script} {' '.join(words)} ended with {done.returncode}, see above")
    return json.loads(done.stdout)

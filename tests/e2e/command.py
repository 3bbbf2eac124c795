"""Our own command, as a person runs it."""

import os
from pathlib import Path

from tests.bed.commands import Done, attempt

ISTHMUS = Path(__file__).parents[2] / ".venv" / "bin" / "isthmus"
_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def isthmus(*words: str, user: str = "root", stdin: str = "", **environment: object) -> Done:
    """Run it as somebody, with these variables of the environment changed."""
    env = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    return attempt(*(() if user == "root" else _NOBODY), ISTHMUS, *words, stdin=stdin, env=env)

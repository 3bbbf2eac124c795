"""Which Debian mirror this machine uses. Images are made from the same one, so no address is written down here."""

import re

from isthmus.errors import Terminal
from isthmus.local.shell import run

_URI = re.compile(r"(https?|ftp|file|mirror\+https?)://?[\w./:@%+~-]+")


def mirror() -> str:
    """Return the address of the Debian archive that apt-get on this machine is set up with."""
    targets = run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages"],
        remedy="Isthmus builds its images from Debian packages: run it on Debian 12 or newer",
    )
    found = choose(targets)
    if not found:
        raise Terminal(
            "apt-get has no Debian archive on this machine (`apt-get indextargets` lists none)",
            remedy="add a Debian mirror to /etc/apt/sources.list and run `apt-get update`",
        )
    return found


def choose(targets: str) -> str:
    """Pick the main Debian archive from lines `origin|label|address`; empty if there is none.

    The archive of security updates does not hold whole releases. Origin and label are empty before the first
    `apt-get update`, so only the address can tell then.
    """
    for line in targets.splitlines():
        origin, label, uri = line.split("|", 2)
        if origin in {"", "Debian"} and label in {"", "Debian"} and "security" not in uri and _URI.fullmatch(uri):
            return uri
    return ""

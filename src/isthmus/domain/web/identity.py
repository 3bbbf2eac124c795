"""Who a person is in Slurm: by a table, or by the name that Kubernetes knows them by.

A table has lines such as `"oidc:ann@example.org": ann`. Without a line of its own, a name counts as it stands,
less a prefix, if it could be a user's name. Accounts of programs, and names that Slurm itself or the system uses,
get in only through the table: whoever may log in must not become root by calling himself so.
"""

import re
from collections.abc import Mapping
from typing import Final

_USER: Final = re.compile(r"[a-z_][a-z0-9_.-]{0,31}", re.ASCII)
_PRIVILEGED: Final = frozenset({"root", "slurm", "nobody", "daemon", "munge"})


def slurm_user(kubernetes_user: str, *, table: Mapping[str, str], prefix: str = "") -> str:
    """Map a user of Kubernetes to one of Slurm; empty for nobody."""
    if kubernetes_user in table:
        found = table[kubernetes_user]
        return found if _USER.fullmatch(found) else ""
    if prefix and not kubernetes_user.startswith(prefix):
        return ""
    name = kubernetes_user.removeprefix(prefix)
    return name if _USER.fullmatch(name) and name not in _PRIVILEGED else ""

"""Which users of a cluster have to be made known to slurmdbd, so that their jobs are charged to an account."""

from collections.abc import Iterable
from typing import Final

import msgspec

from isthmus.model.slurmdb import Association

ACCOUNT: Final = "users"
"""The account of users without another one."""


class Missing(msgspec.Struct, frozen=True):
    """What slurmdbd lacks."""

    account: bool = False
    users: tuple[str, ...] = ()


def missing(users: Iterable[str], known: Iterable[Association], *, cluster: str) -> Missing:
    """Users without an account on this cluster. Those that have one keep it: an administrator gave it."""
    here = [it for it in known if it.cluster == cluster]
    served = {it.user for it in here if it.user}
    lacking = tuple(sorted(set(users) - served))
    has_account = any(it.account == ACCOUNT for it in here)
    return Missing(account=bool(lacking) and not has_account, users=lacking)

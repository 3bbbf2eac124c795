"""Whether Slurm answers."""

import msgspec


class Contact(msgspec.Struct, frozen=True):
    """Whether Slurm answers, since when (by the caller's clock), and what is wrong if not."""

    in_touch: bool
    since: float
    trouble: str = ""

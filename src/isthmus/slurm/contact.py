"""Whether Slurm answers."""

import msgspec


class Contact(msgspec.Struct, frozen=True):
    """Whether Slurm answers, since when (by the clock of who asks) this is so, and what is wrong if not."""

    in_touch: bool
    since: float
    trouble: str = ""

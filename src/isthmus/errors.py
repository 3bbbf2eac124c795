"""What can go wrong, said so that the caller knows what happens next.

Every failure that crosses a module boundary is one of three: try again soon (`Retry`), nothing to do until
something else happens (`Wait`), or no repetition will help (`Terminal`). Each carries a sentence on what is wrong
and, where there is one, a remedy. HTTP and Slurm codes are mapped to these once, in `kube.errors` and
`slurm.errors`; loops decide by the class alone.
"""


class IsthmusError(Exception):
    """Something is wrong; `remedy` is what to do about it."""

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    @property
    def line(self) -> str:
        """What is wrong and what to do about it, on one line: for a status or an Event."""
        return f"{self.what} ({self.remedy})" if self.remedy else self.what

    def __str__(self) -> str:
        return f"{self.what}\n  → {self.remedy}" if self.remedy else self.what


class Retry(IsthmusError):  # noqa: N818 - the name says what the caller does
    """A passing fault: the same call may succeed, after a back-off."""


class Wait(IsthmusError):  # noqa: N818 - the name says what the caller does
    """Not now: come back after `after` seconds, or when an event says so. Not a failure."""

    def __init__(self, what: str, *, after: float, remedy: str = "") -> None:
        super().__init__(what, remedy=remedy)
        self.after = after


class Terminal(IsthmusError):  # noqa: N818 - the name says what the caller does
    """The call can never succeed as it stands: record it and stop."""

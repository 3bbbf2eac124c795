"""What is found while the parts of a cluster are made: what cannot be done as written, and what has no effect."""

import msgspec

from isthmus.errors import IsthmusError


class Notes(msgspec.Struct):
    """Collects sentences, so that a user hears of everything at once."""

    problems: list[str] = msgspec.field(default_factory=list)
    """Why the cluster cannot be made as it is written."""
    ignored: list[str] = msgspec.field(default_factory=list)
    """Fields without effect, each with the reason where it is a special one."""
    unresolved: list[str] = msgspec.field(default_factory=list)
    """NodeSets that partitions name and that there are none of."""

    def refuse(self, error: IsthmusError | str) -> None:
        """Record what cannot be done."""
        if isinstance(error, str):
            self.problems.append(error)
        else:
            self.problems.append(f"{error.what} ({error.remedy})" if error.remedy else error.what)

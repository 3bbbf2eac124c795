"""Controllers: each becomes slurmctld, with files and keys that change while it runs."""

from isthmus.operator.slurmctld.sync import ControllerSync

__all__ = ["ControllerSync"]

"""Groups of commands: `--help` has each with its whole sentence, under the title that says who it is for."""

from typing import Any, Final

import typer
from typer.core import TyperGroup

JOBS: Final = "Jobs and pods"
CLUSTERS: Final = "Slurm clusters, the bridge, nodes"
LOCAL: Final = "The cluster on this machine"
PROCESSES: Final = "Processes, as pods run them"
PROGRAM: Final = "This program"

_WHOLE: Final = 1000


class Sections(TyperGroup):
    """A group whose commands stand under titles (`rich_help_panel`), and whose sentences are not cut."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what is wrong with a word is said without the name of a Python exception."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write all commands, in the order of their titles."""
        sections: dict[str, list[tuple[str, str]]] = {}
        shown = [it for it in self.list_commands(ctx) if not self.commands[it].hidden]
        width = max(map(len, shown), default=0)
        for name in shown:
            command = self.commands[name]
            title = getattr(command, "rich_help_panel", None)
            row = (f"{name:{width}}", command.get_short_help_str(_WHOLE))
            sections.setdefault(title if isinstance(title, str) else "Commands", []).append(row)
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)

"""Groups of commands that show something where no command is named: `isthmus health`, `isthmus elastic`."""

from typing import Any

from isthmus.cli.helppage import Sections


class ShowsByDefault(Sections):
    """A group whose first word need not be a command: what is none is what `show` is about."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command in front, unless one is named or help is asked for."""
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["show", *args]
        return super().parse_args(ctx, args)

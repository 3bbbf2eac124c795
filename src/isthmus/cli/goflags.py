"""Flags as programs in Go take them: `--leader-elect=false` beside `--leader-elect` and `--no-leader-elect`.

The manifests of those who come from slurm-bridge are full of them.
"""

from typing import Any, Final

from typer.core import TyperCommand

# The words that Go's strconv.ParseBool takes.
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class GoCommand(TyperCommand):
    """A command whose switches may be given a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Turn `--flag=true` and `--flag=false` into what the parser knows."""
        switches = {
            name: param.secondary_opts[0] for param in self.params if param.secondary_opts for name in param.opts
        }
        return super().parse_args(ctx, [_plain(word, switches) for word in args])


def _plain(word: str, switches: dict[str, str]) -> str:
    name, equals, value = word.partition("=")
    if not equals or name not in switches:
        return word
    if value in _TRUE:
        return name
    return switches[name] if value in _FALSE else word

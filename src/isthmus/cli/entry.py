"""The one place where an error becomes a message and an exit code, and where a shell asks for names."""

import os
import sys

import typer

from isthmus.errors import IsthmusError


def run(app: typer.Typer, name: str) -> None:
    """Run the command that the arguments name."""
    variable = f"_{name.replace(' ', '_').replace('-', '_').upper()}_COMPLETE"
    if variable in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    try:
        app(prog_name=name, complete_var=variable)
    except IsthmusError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 1))
    except BrokenPipeError:
        # `isthmus jobs | head`: who reads has seen enough. Python would complain about it once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)

"""What --help says."""

from collections.abc import Sequence

from typer.testing import CliRunner

from isthmus.cli.main import app


def help_of(words: Sequence[str]) -> str:
    """Ask a command for its help, and have it without line breaks."""
    done = CliRunner().invoke(app, [*words, "--help"])
    assert done.exit_code == 0
    return " ".join(done.output.split())

"""`isthmus chart list|path`: the Helm charts that come with Isthmus, from a clone and from a wheel alike."""

from typing import Annotated

import typer

app = typer.Typer(help="Find the Helm charts that come with Isthmus.", no_args_is_help=True, rich_markup_mode=None)


@app.command(name="list")
def list_() -> None:
    """Show the charts and their directories."""
    import yaml

    from isthmus.cli.render import table
    from isthmus.local import resources

    found = resources.charts()
    about = {name: yaml.safe_load((path / "Chart.yaml").read_text()) for name, path in found.items()}
    rows = [(name, about[name]["version"], str(path)) for name, path in found.items()]
    table(("NAME", "VERSION", "DIRECTORY"), rows)


@app.command()
def path(
    name: Annotated[str, typer.Argument(help="Name from `isthmus chart list`.", metavar="CHART")],
) -> None:
    """Print a chart's directory: helm install isthmus-operator "$(isthmus chart path isthmus-operator)"."""
    from isthmus.local import resources

    typer.echo(resources.chart(name))

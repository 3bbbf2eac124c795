"""`isthmus images build|list|load`: what runs in the pods."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import Name, chosen

app = typer.Typer(help="Build, list and load container images.", no_args_is_help=True, rich_markup_mode=None)
_Names = Annotated[list[str] | None, typer.Argument(help="Images to build; all if none is given.", metavar="IMAGE")]


class Arch(StrEnum):
    """The processors that there are images for."""

    AMD64 = "amd64"
    ARM64 = "arm64"


@app.command()
def build(
    names: _Names = None,
    output: Annotated[
        Path | None, typer.Option(help="Write OCI archives here, to push to a registry.", metavar="DIR")
    ] = None,
    arch: Annotated[Arch | None, typer.Option(help="Architecture to build for. [default: this machine's]")] = None,
) -> None:
    """Build images that the cache does not hold."""
    from isthmus.cli.render import progress
    from isthmus.local import host, supply
    from isthmus.local.architecture import ARCHITECTURES, native
    from isthmus.local.images.build import write_archives
    from isthmus.local.images.recipes import IMAGES

    with progress() as shown:
        host.check_system()
        host.ensure_packages(shown)
        built, left_out = supply.images_for(names or IMAGES, shown, ARCHITECTURES[arch] if arch else native())
    for path in write_archives(built, output) if output else ():
        typer.echo(path)
    if left_out:
        raise left_out


@app.command(name="list")
def list_() -> None:
    """List the images, and which of them are built."""
    from isthmus.cli.render import table
    from isthmus.local.images.build import list_images
    from isthmus.local.images.recipes import IMAGES, reference

    built = {image.name: (f"{image.size / 1e6:.0f} MB", image.digest[:19]) for image in list_images()}
    rows = [(name, reference(name), *built.get(name, ("not built", "-"))) for name in IMAGES]
    table(("NAME", "IMAGE", "SIZE", "DIGEST"), rows)


@app.command()
def load(
    names: Annotated[list[str], typer.Argument(help="Names from `isthmus images list`.", metavar="IMAGE")],
    name: Name = None,
) -> None:
    """Load images into every node of a running cluster."""
    from isthmus.cli.render import progress
    from isthmus.local import lifecycle, supply

    with progress() as shown:
        lifecycle.load_images(chosen(name), supply.images(names, shown))

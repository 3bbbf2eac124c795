"""`isthmus kubectl …` and `isthmus helm …`: the real tools, pointed at the cluster."""

import os
from typing import Annotated

import typer

from isthmus.cli.options import Name, chosen

# Everything after the first word that is not ours goes to the tool as it is.
SETTINGS = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}
_Words = Annotated[list[str] | None, typer.Argument(metavar="…")]


def kubectl(words: _Words = None, name: Name = None) -> None:
    """Run kubectl on the cluster."""
    _become("kubectl", words or [], name)


def helm(words: _Words = None, name: Name = None) -> None:
    """Run helm on the cluster."""
    _become("helm", words or [], name)


def _become(tool: str, words: list[str], name: str | None) -> None:
    from isthmus.cli.render import progress
    from isthmus.local import binaries, supply
    from isthmus.local.cluster import Cluster

    cluster = Cluster.load(chosen(name))
    with progress() as shown:
        path = binaries.ensure([tool], shown, given=supply.given(cluster.settings))[tool]
    os.environ["KUBECONFIG"] = str(cluster.plane.admin)
    os.execv(path, [tool, *words])  # noqa: S606 - no shell in between, as it should be

"""`isthmus version`: the versions of all components, for bug reports."""

from isthmus.cli.flags import Json, show_json


def version(*, json: Json = False) -> None:
    """Print the versions of Isthmus and of everything that it brings or needs."""
    from isthmus.local import versions

    found = versions.components()
    if json:
        show_json(found)
        return
    from isthmus.cli.render import table

    rows = [(each.name, each.version, each.state, each.origin) for each in found]
    table(("COMPONENT", "VERSION", "STATE", "FROM"), rows)

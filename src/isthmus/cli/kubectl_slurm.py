"""`kubectl slurm …`: the commands for people as a plug-in of kubectl, which finds `kubectl-slurm` on the path."""

import sys

import typer

from isthmus.cli import drain, jobs, nodes, submit, top, why
from isthmus.cli.entry import run
from isthmus.cli.helppage import Sections
from isthmus.cli.logs import Container, Follow, Tail, show_log
from isthmus.cli.query import PodNamespace, Sources, with_sources

_FILES, _NO_FILES = 0, 4
"""Cobra's directives: whether the shell completes files where there is no name."""

app = typer.Typer(
    name="kubectl slurm",
    cls=Sections,
    help="Jobs of Slurm and pods of Kubernetes together.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@with_sources
def logs(
    target: why.Target,
    *,
    follow: Follow = False,
    tail: Tail = None,
    namespace: PodNamespace = "",
    container: Container = "",
    where: Sources,
) -> None:
    """Show what a job or a pod writes."""
    show_log(target, where._replace(namespace=namespace), follow=follow, tail=tail, container=container)


app.command("queue")(jobs.jobs)
app.command("why")(why.why)
app.command("nodes")(nodes.nodes)
app.command("top")(top.top)
app.command("logs")(logs)
app.command("submit")(submit.submit)
app.command("drain")(drain.drain)
app.command("resume")(drain.resume)


def main() -> None:
    run(app, "kubectl slurm")


def complete() -> None:
    """Answer kubectl, which asks `kubectl_complete-slurm WORD... BEGINNING` for names, as Cobra does."""
    from isthmus.cli.completion import words_for

    *before, beginning = sys.argv[1:] or [""]
    for value, about in words_for(app, before, beginning):
        print(f"{value}\t{about}" if about else value)
    print(f":{_FILES if before[:1] == ['submit'] else _NO_FILES}")

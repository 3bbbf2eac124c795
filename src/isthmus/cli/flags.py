"""Flags that several commands have, so that they are called and explained alike everywhere."""

from pathlib import Path
from typing import Annotated

import typer

Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="How to reach Kubernetes. [default: KUBECONFIG, the pod, ~/.kube/config]", metavar="FILE"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

MetricsAddress = Annotated[str, typer.Option(help="Where to serve metrics; 0 for nowhere.", metavar="ADDRESS")]
HealthAddress = Annotated[str, typer.Option(help="Where to serve /healthz and /readyz.", metavar="ADDRESS")]
Verbosity = Annotated[
    str, typer.Option("--v", "-v", help="How much is logged: a number (4: everything) or a level.", metavar="LEVEL")
]

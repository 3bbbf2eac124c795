"""What a file that people submit is: a batch script for Slurm, or a Pod or Job for Kubernetes."""

from typing import Any, Final

import msgspec
import yaml

from isthmus.errors import Terminal

_KINDS: Final = {("v1", "Pod"): "pod", ("batch/v1", "Job"): "job"}
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class BatchScript(msgspec.Struct, frozen=True):
    text: str


class Manifest(msgspec.Struct, frozen=True):
    kind: str
    """`pod` or `job`."""
    body: dict[str, Any]


def read(text: str, name: str) -> BatchScript | Manifest:
    """A script begins with `#!`, as sbatch wants it; everything else has to be a manifest."""
    if text.startswith("#!"):
        return BatchScript(text)
    try:
        documents = [it for it in yaml.load_all(text, Loader=_LOADER) if it is not None]
    except yaml.YAMLError as error:
        raise Terminal(
            f"{name} is neither a script nor a manifest: {' '.join(str(error).split())}",
            remedy="begin a script with #!/bin/sh",
        ) from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise Terminal(
            f"{name} is neither a script nor one manifest",
            remedy="begin a script with #!/bin/sh; several objects: kubectl apply -f FILE",
        )
    body = documents[0]
    kind = _KINDS.get((str(body.get("apiVersion")), str(body.get("kind"))))
    if kind is None:
        given = f"{body.get('kind') or 'document'} of {body.get('apiVersion') or 'no API'}"
        raise Terminal(
            f"{name} is a {given}, not a Pod or Job",
            remedy="create other objects with kubectl, and follow them with isthmus jobs",
        )
    return Manifest(kind, body)

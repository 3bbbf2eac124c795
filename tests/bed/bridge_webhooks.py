"""The webhooks of the bridge as its chart registers them, for the server of a test.

    Mutating     opt-in.pods.slinky.slurm.net   pods with our scheduler's name, in any namespace
                 pods.slinky.slurm.net          pods that name no scheduler, in managed namespaces
    Validating   pods.slinky.slurm.net          pods with our scheduler's name; of updates only those that matter
    Policy       slurm-bridge-enforcement       with `enforce`: new pods and DaemonSets of managed namespaces

The chart names a Service; here that is a URL at which the API server finds the test.
"""

import asyncio
import subprocess
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from isthmus import names
from isthmus.bridge.config import Config
from isthmus.kube.client import Client
from isthmus.model.base import Kind
from isthmus.model.meta import Partial
from isthmus.runtime.certkeeper import Place as Service
from isthmus.runtime.trust import MUTATING, VALIDATING
from tests.bed.programs import program

CHART: Final = Path(__file__).parents[2] / "charts" / "slurm-bridge"
_SUFFIX: Final = "-admission"

_POLICIES: Final[Kind[Partial]] = Kind(
    Partial,
    "admissionregistration.k8s.io/v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
_BINDINGS: Final[Kind[Partial]] = Kind(
    Partial,
    "admissionregistration.k8s.io/v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
_KINDS: Final[dict[str, Kind[Any]]] = {kind.name: kind for kind in (MUTATING, VALIDATING, _POLICIES, _BINDINGS)}


class Place(Service, frozen=True):
    """Where the server of a test is; its name is that of an installation, and `-admission`."""

    url: str

    @property
    def installation(self) -> str:
        return self.name.removesuffix(_SUFFIX)


def place(namespace: str, installation: str, *, url: str = "") -> Place:
    """Name the webhooks of an installation, as the chart does."""
    return Place(namespace, f"{installation}{_SUFFIX}", url)


async def register(client: Client, config: Config, at: Place) -> None:
    """Register all, or bring them up to date. Certificates are filled in by the keeper."""
    for manifest in await asyncio.to_thread(_manifests, config, at):
        for webhook in manifest.get("webhooks", ()):
            service = webhook["clientConfig"].pop("service")
            webhook["clientConfig"]["url"] = at.url + service["path"]
        await client.apply(_KINDS[manifest["kind"]], manifest, manager=names.FIELD_MANAGER, force=True)


async def unregister(client: Client, at: Place) -> None:
    """Take them away, so that pods are created without us."""
    for kind in (MUTATING, VALIDATING):
        await client.delete_all(kind, fields=f"metadata.name={at.name}")
    for rule in (_BINDINGS, _POLICIES):
        await client.delete_all(rule, fields=f"metadata.name={at.installation}-enforcement")


def _manifests(config: Config, at: Place) -> list[dict[str, Any]]:
    selector = config.managed_namespace_selector
    values = {
        "fullnameOverride": at.installation,
        "config": {
            "schedulerName": config.scheduler_name,
            "managedNamespaces": list(config.managed_namespaces),
            "enforce": config.enforce,
            **({"managedNamespaceSelector": msgspec.to_builtins(selector)} if selector else {}),
        },
    }
    words = ("template", at.installation, str(CHART), "--namespace", at.namespace)
    done = subprocess.run(
        [program("helm"), *words, "--show-only=templates/webhooks.yaml", "--values=-"],
        input=msgspec.json.encode(values),
        capture_output=True,
        check=True,
    )
    return [found for found in yaml.load_all(done.stdout, yaml.CSafeLoader) if found]

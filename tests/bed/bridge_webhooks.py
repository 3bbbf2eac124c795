"""Webhooks of the bridge as the API server is to know them, which the chart has in its own language.

    Mutating     opt-in.pods.slinky.slurm.net   pods with our scheduler's name, in any namespace
                 pods.slinky.slurm.net          pods that name no scheduler, in managed namespaces
    Validating   pods.slinky.slurm.net          pods with our scheduler's name; of updates only those that matter
    Policy       slurm-bridge-enforcement       with `enforce`: new pods and DaemonSets of managed namespaces

Tests compare the chart with this, and register webhooks of their own by it.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.bridge.admission.registration import CHANGES
from isthmus.bridge.admission.webhook import MUTATE, VALIDATE
from isthmus.bridge.config import Config
from isthmus.domain.bridge.podadmission import DEFAULT_SCHEDULER
from isthmus.kube.client import Client
from isthmus.model.base import Kind
from isthmus.model.meta import Partial
from isthmus.runtime.certkeeper import Place as Service
from isthmus.runtime.trust import MUTATING, VALIDATING

NAME: Final = "slurm-bridge-admission"

MANAGED: Final = "pods.slinky.slurm.net"
OPT_IN: Final = "opt-in.pods.slinky.slurm.net"

POLICIES: Final[Kind[Partial]] = Kind(
    Partial,
    "admissionregistration.k8s.io/v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
BINDINGS: Final[Kind[Partial]] = Kind(
    Partial,
    "admissionregistration.k8s.io/v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)

_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_TIMEOUT: Final = 10


class Place(Service, frozen=True):
    """Where the server of a test is: the Service of the chart, or a URL for the API server."""

    name: str = NAME
    url: str = ""

    @property
    def enforcement(self) -> str:
        """The name of the policy that refuses what passes Slurm by, and of its binding."""
        return f"{self.name.removesuffix('-admission')}-enforcement"

    def client_config(self, path: str) -> dict[str, Any]:
        if self.url:
            return {"url": self.url + path}
        return {"service": {"name": self.name, "namespace": self.namespace, "path": path, "port": 443}}


def mutating(config: Config, place: Place) -> dict[str, Any]:
    """Make the MutatingWebhookConfiguration."""
    # This one first: a pod that the other hands over is not asked about again.
    webhooks = [
        _webhook(
            OPT_IN,
            place.client_config(MUTATE),
            rules=_rules(["CREATE"], ["pods"]),
            namespaces={"matchExpressions": [_elsewhere(place)]},
            conditions={"ours": _scheduler_is(config.scheduler_name)},
        )
    ]
    if managed := _managed(config, place):
        webhooks.append(
            _webhook(
                MANAGED,
                place.client_config(MUTATE),
                rules=_rules(["CREATE"], ["pods"]),
                namespaces=managed,
                conditions={"undecided": _scheduler_is(DEFAULT_SCHEDULER)},
            )
        )
    return {"metadata": {"name": place.name}, "webhooks": webhooks}


def validating(config: Config, place: Place) -> dict[str, Any]:
    """Make the ValidatingWebhookConfiguration."""
    webhook = _webhook(
        MANAGED,
        place.client_config(VALIDATE),
        rules=_rules(["CREATE", "UPDATE"], ["pods", "pods/resize"]),
        namespaces={"matchExpressions": [_elsewhere(place)]},
        conditions={"ours": _scheduler_is(config.scheduler_name), "asks-or-marks-change": CHANGES},
    )
    return {"metadata": {"name": place.name}, "webhooks": [webhook]}


def enforcement(config: Config, place: Place) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Make the policy that refuses what passes Slurm by in managed namespaces, and its binding; None for none."""
    managed = _managed(config, place)
    if not (config.enforce and managed):
        return None
    name = place.enforcement
    spec = 'request.kind.kind == "DaemonSet" ? object.spec.template.spec : object.spec'
    refusal = (
        f"Slurm places all pods of this namespace: leave out schedulerName, or set it to {config.scheduler_name}"
        " (in a DaemonSet it has to be set), and leave out nodeName"
    )
    policy = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [*_rules(["CREATE"], ["pods"]), *_rules(["CREATE"], ["daemonsets"], group="apps")]
            },
            # Kubelets show the API server what they run by themselves; it runs whether or not that is refused.
            "matchConditions": [
                {"name": "not-of-a-kubelet", "expression": '!("system:nodes" in request.userInfo.groups)'}
            ],
            "variables": [{"name": "spec", "expression": spec}],
            "validations": [
                {
                    "expression": f'variables.spec.schedulerName == "{config.scheduler_name}"'
                    " && !has(variables.spec.nodeName)",
                    "message": refusal,
                    "reason": "Forbidden",
                }
            ],
        },
    }
    binding = {
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": managed},
        },
    }
    return policy, binding


async def register(client: Client, config: Config, place: Place) -> None:
    """Register both, or bring them up to date. Certificates are filled in by the keeper."""
    for kind, manifest in ((MUTATING, mutating(config, place)), (VALIDATING, validating(config, place))):
        await client.apply(kind, manifest, manager=names.FIELD_MANAGER, force=True)
    if made := enforcement(config, place):
        for rule, manifest in zip((POLICIES, BINDINGS), made, strict=True):
            await client.apply(rule, manifest, manager=names.FIELD_MANAGER, force=True)


async def unregister(client: Client, place: Place) -> None:
    """Take both away, so that pods are created without us."""
    for kind in (MUTATING, VALIDATING):
        await client.delete_all(kind, fields=f"metadata.name={place.name}")
    for rule in (BINDINGS, POLICIES):
        await client.delete_all(rule, fields=f"metadata.name={place.enforcement}")


def _managed(config: Config, place: Place) -> dict[str, Any]:
    """Select the managed namespaces: by labels if there is a selector, else by the list; {} if there are none."""
    selector: dict[str, Any]
    if config.managed_namespace_selector is not None:
        selector = msgspec.to_builtins(config.managed_namespace_selector)
    elif config.managed_namespaces:
        listed = {"key": _NAMESPACE_NAME, "operator": "In", "values": list(config.managed_namespaces)}
        selector = {"matchExpressions": [listed]}
    else:
        return {}
    return {**selector, "matchExpressions": [*selector.get("matchExpressions", ()), _elsewhere(place)]}


def _elsewhere(place: Place) -> dict[str, Any]:
    """Leave out what must start without us: the system, and ourselves."""
    return {"key": _NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system", place.namespace]}


def _scheduler_is(name: str) -> str:
    return f'object.spec.schedulerName == "{name}"'


def _rules(operations: Sequence[str], resources: Sequence[str], *, group: str = "") -> list[dict[str, Any]]:
    return [
        {
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "operations": list(operations),
            "resources": list(resources),
            "scope": "Namespaced",
        }
    ]


def _webhook(
    name: str,
    client_config: dict[str, Any],
    *,
    rules: list[dict[str, Any]],
    namespaces: dict[str, Any],
    conditions: dict[str, str],
) -> dict[str, Any]:
    return {
        "name": name,
        "clientConfig": client_config,
        "rules": rules,
        "namespaceSelector": namespaces,
        "matchConditions": [{"name": it, "expression": text} for it, text in conditions.items()],
        "failurePolicy": "Fail",
        "timeoutSeconds": _TIMEOUT,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }

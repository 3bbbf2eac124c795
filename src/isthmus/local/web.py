"""The web page in a local cluster, for `isthmus up --web`.

It is that of the chart slurm-bridge, beside the Slurm that the operator runs. Where there is none yet, it waits in
the namespace `slurm` for the one of the README; the next `isthmus up` takes it to another one.

    browser ──▶ localhost:30082 ──▶ node port 30082 ──▶ page ──▶ slurmrestd, API server
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import yaml

from isthmus.local import binaries, resources, shell, supply
from isthmus.local.cluster import Cluster
from isthmus.local.progress import Progress
from isthmus.local.state import PublishedPort, Settings

STEP: Final = "Add the web page"
PORT: Final = 30082
PUBLISHED: Final = PublishedPort(PORT, PORT)
LOGIN: Final = "isthmus kubectl create token isthmus-web-admin --namespace kube-system"
"""Prints a token of somebody who sees and does everything, in Slurm as SlurmUser."""

_NAME: Final = "isthmus"
_PAGE: Final = f"{_NAME}-web"
_ADMIN: Final = ("isthmus-web-admin", "kube-system")
_KINDS: Final = ("restapis.slinky.slurm.net", "controllers.slinky.slurm.net")
_TEMPLATES: Final = ("web.yaml", "config.yaml")
_READY_WITHIN: Final = 120

Manifest = dict[str, Any]


class Slurm(NamedTuple):
    """A Slurm with slurmrestd, and where its secrets are."""

    namespace: str
    rest_api: str
    """The Service of slurmrestd."""
    jwt_key: Manifest
    """The Secret and the key in it by which tokens are signed."""
    token: str
    """The Secret with the token that the page reads with."""


EXPECTED: Final = Slurm("slurm", "slurm-restapi", {"name": "slurm-jwt-key", "key": "jwt.key"}, "slurm-bridge-token")
"""The names of the README."""


def install(cluster: Cluster, progress: Progress) -> None:
    """Bring the page into a running cluster, or up to date there, and wait until it serves."""
    helm = binaries.ensure(["helm"], progress, given=supply.given(cluster.settings))["helm"]
    with progress.step(STEP):
        kubectl = cluster.kubectl
        slurm = _find(kubectl) or EXPECTED
        _remove_elsewhere(kubectl, slurm.namespace)
        shown = [f"--show-only=templates/{it}" for it in _TEMPLATES]
        words = ("template", _NAME, str(resources.chart("slurm-bridge")), f"--namespace={slurm.namespace}", *shown)
        rendered = shell.run(
            [helm, *words, "--values=-"], stdin=yaml.safe_dump(values(slurm, cluster.settings.name))
        )
        manifest = yaml.safe_dump_all(objects(yaml.safe_load_all(rendered), slurm))
        shell.run([*kubectl, "apply", "--server-side", "--force-conflicts", "--filename=-"], stdin=manifest)
        rollout = ("rollout", "status", f"deployment/{_PAGE}", f"--namespace={slurm.namespace}")
        shell.run(
            [*kubectl, *rollout, f"--timeout={_READY_WITHIN}s"],
            remedy=f"isthmus kubectl logs --namespace={slurm.namespace} deployment/{_PAGE}",
        )


def published(settings: Settings) -> int | None:
    """The port of localhost that leads to the page."""
    return next((port.host for port in settings.publish if port.node == PORT), None)


def addresses(cluster: Cluster) -> dict[str, str]:
    """Where this machine reaches the page, if it is wanted. Browsers keep a login only for localhost."""
    if not cluster.settings.web:
        return {}
    host = published(cluster.settings)
    return {"Web page": f"http://localhost:{host}" if host else f"http://{cluster.addresses.node(0)}:{PORT}"}


def choose(restapis: Iterable[Manifest], controllers: Iterable[Manifest]) -> Slurm | None:
    """The first Slurm, by name, whose tokens can be signed."""
    by_key = {(it["metadata"]["namespace"], it["metadata"]["name"]): it["spec"] for it in controllers}
    for it in sorted(restapis, key=lambda it: (it["metadata"]["namespace"], it["metadata"]["name"])):
        namespace, name = it["metadata"]["namespace"], it["metadata"]["name"]
        spec = by_key.get((namespace, it["spec"].get("controllerRef", {}).get("name", "")), {})
        if key := spec.get("jwtKeyRef") or spec.get("jwtHs256KeyRef"):
            return Slurm(namespace, f"{name}-restapi", key, f"{_PAGE}-token")
    return None


def values(slurm: Slurm, title: str) -> Manifest:
    """The values of the chart."""
    admin, home = _ADMIN
    return {
        "fullnameOverride": _NAME,
        "config": {"slurmRestApi": f"http://{slurm.rest_api}.{slurm.namespace}:6820"},
        "sharedConfig": {"slurmJwtSecret": {"name": slurm.token, "key": "auth-token"}},
        "web": {
            "enabled": True,
            "title": title,
            "jwtKeySecret": slurm.jwt_key,
            "users": {f"system:serviceaccount:{home}:{admin}": "slurm"},
        },
    }


def objects(rendered: Iterable[Manifest | None], slurm: Slurm) -> list[Manifest]:
    """All objects of the page: those of the chart, reached by a node port, and somebody who can log in."""
    made = [it for it in rendered if it and not _for_people(it)]
    for it in made:
        if it["kind"] == "Service":
            it["spec"] |= {"type": "NodePort", "ports": [port | {"nodePort": PORT} for port in it["spec"]["ports"]]}
        if it["kind"] == "Deployment":
            for volume in it["spec"]["template"]["spec"]["volumes"]:
                volume.get("secret", {})["optional"] = True  # the page may be there before Slurm
    admin, home = _ADMIN
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": slurm.namespace}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": admin, "namespace": home}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": admin},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": admin, "namespace": home}],
    }
    return [namespace, account, binding, *([] if slurm == EXPECTED else [_token(slurm)]), *made]


def _for_people(manifest: Manifest) -> bool:
    """Whether it is a role that the chart has for people: a real installation of the chart brings it, too."""
    return bool(manifest["kind"] == "ClusterRole" and manifest["metadata"]["name"] != _PAGE)


def _token(slurm: Slurm) -> Manifest:
    return {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "Token",
        "metadata": {"name": _PAGE, "namespace": slurm.namespace},
        "spec": {
            "username": "slurm",
            "lifetime": "24h",
            "jwtKeyRef": slurm.jwt_key,
            "secretRef": {"name": slurm.token, "key": "auth-token"},
        },
    }


def _find(kubectl: Sequence[str]) -> Slurm | None:
    known = shell.run([*kubectl, "get", "crds", *_KINDS, "--ignore-not-found", "--output=name"]).split()
    if len(known) < len(_KINDS):
        return None
    restapis, controllers = (
        json.loads(shell.run([*kubectl, "get", kind, "--all-namespaces", "--output=json"]))["items"]
        for kind in _KINDS
    )
    return choose(restapis, controllers)


def _remove_elsewhere(kubectl: Sequence[str], namespace: str) -> None:
    """Remove the page from where it waited before: a node port leads to one Service."""
    there = ("--all-namespaces", f"--selector=app.kubernetes.io/name={_NAME},app.kubernetes.io/component=web")
    other = f"--field-selector=metadata.namespace!={namespace}"
    shell.run([*kubectl, "delete", "deployments,services,networkpolicies", *there, other, "--ignore-not-found"])

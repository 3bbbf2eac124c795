"""Add-ons that people choose: the real controllers of JobSet and LeaderWorkerSet, the PodGroup kind, monitoring."""

import string
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from isthmus.errors import Terminal
from isthmus.local import crds, shell, supply
from isthmus.local.cluster import Cluster
from isthmus.local.images.recipes import reference
from isthmus.local.parallel import for_each
from isthmus.local.progress import Progress

_MANIFESTS = Path(__file__).parent / "manifests" / "addons"
_READY_WITHIN = 300


@dataclass(frozen=True)
class Addon:
    """One add-on: a kind, and with `probe`, an object of that kind, the controller that works on it.

    Monitoring has no kind; `monitoring` installs it.
    """

    name: str
    title: str
    probe: str = ""


_POD = "{spec: {containers: [{name: main, image: nothing}]}}"
_JOBSET = f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: isthmus-probe, namespace: default}}
spec: {{replicatedJobs: [{{name: job, template: {{spec: {{template: {_POD}}}}}}}]}}
"""
_LWS = f"""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: isthmus-probe, namespace: default}}
spec: {{leaderWorkerTemplate: {{size: 1, workerTemplate: {_POD}}}}}
"""
MONITORING = Addon("monitoring", "Prometheus, Alertmanager, and metrics-server for kubectl top")
ADDONS = {
    addon.name: addon
    for addon in (
        Addon("jobset", "JobSet 0.11.1: groups of Jobs", probe=_JOBSET),
        Addon("lws", "LeaderWorkerSet 0.8.0: groups of pods with a leader", probe=_LWS),
        Addon("podgroup", "the kind PodGroup of scheduling.x-k8s.io, without any controller"),
        MONITORING,
    )
}


def chosen(names: Sequence[str]) -> list[Addon]:
    """Find add-ons by their names."""
    unknown = sorted(set(names) - set(ADDONS))
    if unknown:
        raise Terminal(f"there is no add-on {', '.join(unknown)}", remedy=f"choose from: {', '.join(ADDONS)}")
    return [ADDONS[name] for name in dict.fromkeys(names)]


def install(cluster: Cluster, addons: Sequence[Addon], progress: Progress) -> None:
    """Bring add-ons that have kinds into a running cluster, or up to date there, and wait until they serve."""
    given = supply.given(cluster.settings)
    kinds = crds.ensure([addon.name for addon in addons], progress, given=given)
    controllers = [addon for addon in addons if addon.probe]
    images = supply.images([addon.name for addon in controllers], progress, ready=given)
    with progress.step(f"Install {', '.join(addon.name for addon in addons)}"):
        cluster.load_images(images)
        apply_kinds(cluster.kubectl, kinds.values())
        for_each(controllers, lambda addon: _start(cluster.kubectl, addon))


def apply_kinds(kubectl: tuple[str, ...], definitions: Iterable[Path]) -> None:
    """Make custom kinds known, and wait until the API serves them."""
    files = [f"--filename={definition}" for definition in definitions]
    shell.run([*kubectl, "apply", "--server-side", "--force-conflicts", *files])
    deadline = time.monotonic() + _READY_WITHIN
    while True:
        try:
            shell.run([*kubectl, "wait", "--for=condition=Established", "--timeout=30s", *files])
        except Terminal:
            # kubectl does not wait for a definition so new that it has no conditions at all.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def manifest(addon: Addon) -> str:
    """The objects of an add-on's controller, as YAML."""
    text = (_MANIFESTS / f"{addon.name}.yaml").read_text()
    return string.Template(text).substitute(image=reference(addon.name))


def _start(kubectl: tuple[str, ...], addon: Addon) -> None:
    shell.run([*kubectl, "apply", "--server-side", "--force-conflicts", "--filename=-"], stdin=manifest(addon))
    there = f"--namespace={addon.name}-system"
    remedy = f"isthmus kubectl logs {there} deployment/{addon.name}"
    filled = [f"secret/{addon.name}-webhook-server-cert", r"--for=jsonpath={.data.tls\.crt}"]
    shell.run([*kubectl, "wait", there, *filled, f"--timeout={_READY_WITHIN}s"], remedy=remedy)
    # The certificate reaches the pod when kubelet next looks at it, within a minute; a pod that changes is looked
    # at immediately.
    pods = [there, "pods", f"--selector=app={addon.name}"]
    shell.run([*kubectl, "annotate", *pods, "--overwrite", "isthmus.local/has-certificate=yes"])
    wait_until_served(kubectl, addon, remedy=remedy)


def wait_until_served(kubectl: tuple[str, ...], addon: Addon, *, remedy: str = "") -> None:
    """Try an object on the webhooks until they take it: a Deployment is available before that."""
    deadline = time.monotonic() + _READY_WITHIN
    while True:
        try:
            shell.run([*kubectl, "create", "--dry-run=server", "--filename=-"], stdin=addon.probe)
        except Terminal as error:
            if time.monotonic() > deadline:
                raise Terminal(f"{addon.name} does not become ready: {error}", remedy=remedy) from error
            time.sleep(0.2)
        else:
            return

"""Whether the pods of a cluster could be made, placed and started, and their volumes found."""

from collections.abc import Iterator
from typing import Final

from isthmus.domain.diagnosis.facts import ClaimFact, ClusterFacts, Facts, Hold, PodFact
from isthmus.domain.diagnosis.finding import Finding
from isthmus.model.meta import condition

_IMAGE_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
)
_CONFIG_REASONS: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_NEEDED: Final = ("Controller", "RestApi")
_CRASHES: Final = 2
"""Restarts from which on a container counts as one that does not stay up."""

WITHOUT_EFFECT: Final = "FieldsWithoutEffect"
ACCEPTED: Final = "Accepted"


def check_starting(cluster: ClusterFacts, facts: Facts) -> Iterator[Finding]:
    """Check everything up to the moment at which daemons run."""
    yield from _parts(cluster)
    yield from _claims(cluster)
    for pod in cluster.pods:
        if pod.component == "jail":
            continue  # what keeps it from filling the root, a condition says
        if pod.unplaced and not pod.leaving:
            yield _unplaced(cluster, pod, facts)
        for hold in pod.holds:
            if hold.reason in _IMAGE_REASONS:
                yield _image(cluster, pod, hold)
            elif hold.reason in _CONFIG_REASONS:
                yield _refused(cluster, pod, hold)
        if pod.unmounted and not any(it.phase != "Bound" for it in cluster.claims):
            yield _unmounted(cluster, pod)
        yield from _crashes(cluster, pod)


def _parts(cluster: ClusterFacts) -> Iterator[Finding]:
    where = f"{cluster.kind} {cluster.key}"
    for part in cluster.parts:
        refused = condition(part.conditions, ACCEPTED)
        if refused and refused.status == "False":
            yield Finding(
                area="parts",
                what=f"{part.kind} {part.name} cannot be carried out as it is written",
                where=f"{part.kind} {cluster.key.namespace}/{part.name}",
                why=refused.message,
                remedy=(f"kubectl edit -n {cluster.key.namespace} {part.kind.lower()} {part.name}",),
            )
        ignored = condition(part.conditions, WITHOUT_EFFECT)
        if ignored and ignored.status == "True":
            yield Finding(
                area="parts",
                what=f"fields of {part.kind} {part.name} have no effect",
                where=f"{part.kind} {cluster.key.namespace}/{part.name}",
                why=ignored.message,
                remedy=("take them out, or live without what they stand for",),
                grave=False,
            )
    there = {part.kind for part in cluster.parts}
    for kind in _NEEDED:
        if cluster.parts and kind not in there:
            what = (
                "there is no RestApi: the operator cannot ask Slurm, so it neither drains nor scales in"
                if kind == "RestApi"
                else f"there is no {kind}"
            )
            yield Finding(
                area="parts",
                what=what,
                where=where,
                why=f"no {kind} of this cluster exists",
                remedy=(
                    f"kubectl get -n {cluster.key.namespace} controllers,nodesets,loginsets,accountings,restapis",
                    "the operator makes it for a SlurmCluster; otherwise apply one (examples/operator)",
                ),
            )


def _claims(cluster: ClusterFacts) -> Iterator[Finding]:
    namespace = cluster.key.namespace
    for claim in cluster.claims:
        if claim.phase != "Bound" and _wanted(claim, cluster):
            yield Finding(
                area="storage",
                what=f"volume claim {claim.name} is {claim.phase or 'not there'}",
                where=f"PersistentVolumeClaim {namespace}/{claim.name}",
                why=claim.note
                or (
                    f"nobody has made a volume of class {claim.storage_class} yet"
                    if claim.storage_class
                    else "it names no storage class, and there is no default one"
                ),
                remedy=(
                    "kubectl get storageclass",
                    f"kubectl describe -n {namespace} pvc {claim.name}",
                ),
            )
        elif claim.shared and claim.modes and "ReadWriteMany" not in claim.modes:
            yield Finding(
                area="storage",
                what=f"volume claim {claim.name} is {', '.join(claim.modes)}, but pods of several nodes use it",
                where=f"PersistentVolumeClaim {namespace}/{claim.name}",
                why="login and worker nodes have the same files only if each of them can mount it",
                remedy=(
                    (
                        "use a claim with accessModes: [ReadWriteMany], of a class that has them (NFS, CephFS …):"
                        " spec.volumeSources, name jail"
                    ),
                ),
            )


def _wanted(claim: ClaimFact, cluster: ClusterFacts) -> bool:
    """Whether a claim that is not bound is in anybody's way: some wait for their first pod, on purpose."""
    return bool(claim.note) or any(pod.unmounted or pod.unplaced for pod in cluster.pods) or claim.phase == "Lost"


def _unplaced(cluster: ClusterFacts, pod: PodFact, facts: Facts) -> Finding:
    namespace = cluster.key.namespace
    remedy = [f"kubectl describe -n {namespace} pod {pod.name}"]
    text = pod.unplaced.lower()
    if "taint" in text and facts.taints:
        tainted = sorted({taint for taints in facts.taints.values() for taint in taints})
        remedy.insert(0, f"add tolerations to the node filter (k8sNodeFilters): nodes have {', '.join(tainted)}")
    if "affinity" in text or "selector" in text:
        remedy.insert(0, "compare the node filter (spec.k8sNodeFilters) with: kubectl get nodes --show-labels")
    if "insufficient" in text:
        remedy.insert(0, "ask for less (resources), have fewer of them (size), or add nodes")
    return Finding(
        area="placing",
        what=f"no node takes pod {pod.name}",
        where=f"pod {namespace}/{pod.name}",
        why=pod.unplaced,
        remedy=tuple(remedy),
    )


def _image(cluster: ClusterFacts, pod: PodFact, hold: Hold) -> Finding:
    return Finding(
        area="images",
        what=f"pod {pod.name} cannot get the image {hold.image or 'of ' + hold.container}",
        where=f"pod {cluster.key.namespace}/{pod.name}, container {hold.container}, node {pod.node or 'unknown'}",
        why=f"{hold.reason}: {hold.message}" if hold.message else hold.reason,
        remedy=(
            "check the name and the tag; for a registry that asks who you are, set imagePullSecrets",
            "in a local cluster, bring images into all nodes: isthmus images load FILE",
        ),
    )


def _refused(cluster: ClusterFacts, pod: PodFact, hold: Hold) -> Finding:
    return Finding(
        area="starting",
        what=f"container {hold.container} of pod {pod.name} cannot be made",
        where=f"pod {cluster.key.namespace}/{pod.name}",
        why=f"{hold.reason}: {hold.message}" if hold.message else hold.reason,
        remedy=("a Secret or ConfigMap that the specification names has to exist, with the key that it names",),
    )


def _unmounted(cluster: ClusterFacts, pod: PodFact) -> Finding:
    return Finding(
        area="storage",
        what=f"the volumes of pod {pod.name} are not there",
        where=f"pod {cluster.key.namespace}/{pod.name}, node {pod.node or 'unknown'}",
        why=pod.unmounted,
        remedy=(f"kubectl describe -n {cluster.key.namespace} pod {pod.name}",),
    )


def _crashes(cluster: ClusterFacts, pod: PodFact) -> Iterator[Finding]:
    for ending in pod.endings:
        if ending.restarts < _CRASHES or pod.ready or ending.code == 0:
            continue
        told = ending.message or (
            "it needs more memory than its limit allows"
            if ending.reason == "OOMKilled"
            else f"exit code {ending.code}"
        )
        yield Finding(
            area="starting",
            what=f"container {ending.container} of pod {pod.name} does not stay up ({ending.restarts} restarts)",
            where=f"pod {cluster.key.namespace}/{pod.name}",
            why=f"{ending.reason}: {told}" if ending.reason else told,
            remedy=(f"kubectl logs -n {cluster.key.namespace} {pod.name} -c {ending.container} --previous",),
        )

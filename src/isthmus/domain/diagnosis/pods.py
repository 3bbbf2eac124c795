"""Whether the pods of a cluster could be placed and started, and their volumes found."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from isthmus.domain.diagnosis.facts import ClaimFact, ClusterFacts, Ending, Facts, Hold, PodFact
from isthmus.domain.diagnosis.finding import Finding
from isthmus.domain.diagnosis.known import Known, about_pod, lacks_slurmctld, stands_in
from isthmus.domain.languages.prose import some

_IMAGE_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
)
_CONFIG_REASONS: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_CRASHES: Final = 2
"""Restarts from which on a container counts as one that does not stay up."""
_CLAIM_WORD: Final = "persistentvolumeclaim"
"""In what the Kubernetes scheduler says of a pod whose claim is not bound."""


def check_kubernetes_nodes(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find Kubernetes nodes that are away, with pods of the cluster on them."""
    del known
    for node, why in sorted(facts.unready.items()):
        pods = [it for it in cluster.pods if it.node == node and not stands_in(it)]
        if pods:
            yield Finding(
                area="placing",
                what=f"Kubernetes node {node} is not ready: {some(it.name for it in pods)} may not work",
                where=f"node {node}",
                why=why or "it has not registered, or its kubelet is silent",
                remedy=(f"kubectl describe node {node}",),
                subjects=tuple(map(about_pod, pods)),
            )


def check_claims(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find volume claims that are not bound, or that some pods cannot mount."""
    del facts, known
    namespace = cluster.key.namespace
    unbound: dict[tuple[str, str], list[ClaimFact]] = {}
    for claim in cluster.claims:
        if claim.phase != "Bound" and _wanted(claim, cluster):
            unbound.setdefault((claim.phase, _why_unbound(claim)), []).append(claim)
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
    waiting = [it for it in cluster.pods if it.unmounted or _CLAIM_WORD in it.unplaced.lower()]
    for (phase, why), claims in unbound.items():
        several = len(claims) > 1
        yield Finding(
            area="storage",
            what=f"volume claim{'s' if several else ''} {some(it.name for it in claims)}"
            f" {'are' if several else 'is'} {phase or 'not there'}",
            where=f"PersistentVolumeClaim {namespace}/{claims[0].name}",
            why=why,
            remedy=("kubectl get storageclass", f"kubectl describe -n {namespace} pvc {claims[0].name}"),
            subjects=(*(f"claim {it.name}" for it in claims), *map(about_pod, waiting)),
        )


def _why_unbound(claim: ClaimFact) -> str:
    if claim.note:
        return claim.note
    if claim.storage_class:
        return f"no volume of class {claim.storage_class} has been provisioned yet"
    return "it names no storage class, and there is no default one"


def _wanted(claim: ClaimFact, cluster: ClusterFacts) -> bool:
    """Whether an unbound claim is a problem: some wait for their first pod, on purpose."""
    return bool(claim.note) or any(pod.unmounted or pod.unplaced for pod in cluster.pods) or claim.phase == "Lost"


def check_pods(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find pods that do not start: of each the earliest cause, and of one cause all its pods together."""
    groups: dict[tuple[object, ...], tuple[_Tell, list[PodFact]]] = {}
    for pod in cluster.pods:
        # What keeps the pod of the shared root from filling it, a condition says.
        if pod.component == "jail" or pod.leaving or stands_in(pod) or known.explains_pod(pod):
            continue
        if cause := _cause(pod, facts):
            key, tell = cause
            if key[0] == "crash" and pod.component == "restapi" and lacks_slurmctld(cluster):
                continue
            groups.setdefault(key, (tell, []))[1].append(pod)
    for tell, pods in groups.values():
        yield tell(cluster, pods)


_Tell = Callable[[ClusterFacts, Sequence[PodFact]], Finding]


def _cause(pod: PodFact, facts: Facts) -> tuple[tuple[object, ...], _Tell] | None:
    """Find the first cause that keeps a pod from starting, with what distinguishes it from others."""
    image = next((it for it in pod.holds if it.reason in _IMAGE_REASONS), None)
    refused = next((it for it in pod.holds if it.reason in _CONFIG_REASONS), None)
    ended = next((it for it in pod.endings if it.restarts >= _CRASHES and it.code and not pod.ready), None)
    if pod.unplaced:
        return ("placing", pod.component, pod.part, pod.unplaced), partial(_unplaced, facts=facts)
    if image:
        return ("image", image.image or pod.name), partial(_image, hold=image)
    if pod.unmounted:
        return ("volumes", pod.name), _unmounted
    if refused:
        return ("refused", pod.component, refused.message), partial(_refused, hold=refused)
    if ended:
        return ("crash", pod.component, ended.container, ended.message), partial(_crashes, ending=ended)
    return None


def _unplaced(cluster: ClusterFacts, pods: Sequence[PodFact], *, facts: Facts) -> Finding:
    namespace, pod = cluster.key.namespace, pods[0]
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
        what=f"no node can run {_named(pods)}",
        where=_where(cluster, pods),
        why=pod.unplaced,
        remedy=tuple(remedy),
        subjects=tuple(map(about_pod, pods)),
    )


def _image(cluster: ClusterFacts, pods: Sequence[PodFact], *, hold: Hold) -> Finding:
    return Finding(
        area="images",
        what=f"{_named(pods)} cannot pull the image {hold.image or 'of ' + hold.container}",
        where=f"{_where(cluster, pods)}, container {hold.container}, node {pods[0].node or 'unknown'}",
        why=_told(hold),
        remedy=(
            "check the name and the tag; for a private registry, set imagePullSecrets",
            "in a local cluster, load images into all nodes: isthmus images load FILE",
        ),
        subjects=tuple(map(about_pod, pods)),
    )


def _refused(cluster: ClusterFacts, pods: Sequence[PodFact], *, hold: Hold) -> Finding:
    return Finding(
        area="starting",
        what=f"container {hold.container} of {_named(pods)} cannot be created",
        where=_where(cluster, pods),
        why=_told(hold),
        remedy=(
            _LACKS_PROGRAM
            if "executable file not found" in hold.message
            else "a Secret or ConfigMap that the specification names has to exist, with the key that it names",
        ),
        subjects=tuple(map(about_pod, pods)),
    )


def _unmounted(cluster: ClusterFacts, pods: Sequence[PodFact]) -> Finding:
    pod = pods[0]
    return Finding(
        area="storage",
        what=f"the volumes of pod {pod.name} are not there",
        where=f"pod {cluster.key.namespace}/{pod.name}, node {pod.node or 'unknown'}",
        why=pod.unmounted,
        remedy=(f"kubectl describe -n {cluster.key.namespace} pod {pod.name}",),
        subjects=(about_pod(pod),),
    )


_LACKS_PROGRAM: Final = "the image lacks the program: remove the image setting, or build yours from ours"


def _crashes(cluster: ClusterFacts, pods: Sequence[PodFact], *, ending: Ending) -> Finding:
    told = ending.message or (
        "it needs more memory than its limit allows" if ending.reason == "OOMKilled" else f"exit code {ending.code}"
    )
    logs = f"kubectl logs -n {cluster.key.namespace} {pods[0].name} -c {ending.container} --previous"
    return Finding(
        area="starting",
        what=f"container {ending.container} of {_named(pods)} keeps failing ({ending.restarts} restarts)",
        where=_where(cluster, pods),
        why=f"{ending.reason}: {told}" if ending.reason else told,
        remedy=(_LACKS_PROGRAM if "executable file not found" in told else logs,),
        subjects=tuple(map(about_pod, pods)),
    )


def _named(pods: Sequence[PodFact]) -> str:
    if len(pods) == 1:
        return f"pod {pods[0].name}"
    return f"{len(pods)} pods ({some(it.name for it in pods)})"


def _where(cluster: ClusterFacts, pods: Sequence[PodFact]) -> str:
    return f"pod {cluster.key.namespace}/{pods[0].name}" if len(pods) == 1 else f"pods of {cluster.key}"


def _told(hold: Hold) -> str:
    return f"{hold.reason}: {hold.message}" if hold.message else hold.reason

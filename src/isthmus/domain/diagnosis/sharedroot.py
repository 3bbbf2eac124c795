"""Whether the shared root of a cluster is filled, and nodes can let jobs in."""

from collections.abc import Iterator
from typing import Final

from isthmus.domain.diagnosis.facts import ClusterFacts, Facts, PartFact, SlurmNodeFact
from isthmus.domain.diagnosis.finding import Finding
from isthmus.domain.diagnosis.known import Known, about
from isthmus.domain.languages.hostlist import fold
from isthmus.domain.operator.clusterparts.rootstatus import POPULATED
from isthmus.model.meta import Condition, condition

_MARKS: Final = ("shared root", "plugstack.conf:", "which jobs are to see")
"""How the reasons begin that our plugin gives when it drains a node."""

_REMEDIES: Final = (
    ("is not filled", "it is filled by the Job {job}: kubectl logs -n {namespace} job/{job}"),
    ("is missing on this node", "mount the volume at /mnt/jail: kubectl describe -n {namespace} pod {node}"),
    ("is stale", "its server no longer exports it; recreate the pod: kubectl delete -n {namespace} pod {node}"),
    ("is not root's alone", "on a node, where it is mounted: chown root /mnt/jail && chmod 755 /mnt/jail"),
    ("cannot be made", "the root is read-only or full: kubectl exec -n {namespace} {node} -- df /mnt/jail"),
    ("plugstack.conf", "correct spec.plugStackConfig: kubectl edit -n {namespace} slurmcluster {cluster}"),
    ("", "inspect it from the node: kubectl exec -n {namespace} {node} -- isthmus-enter root=/mnt/jail"),
)


def check_root(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Check the root by what Kubernetes and Slurm report."""
    del facts
    for part in cluster.parts:
        told = condition(part.conditions, POPULATED)
        waits_for_claim = known.has("storage") and told is not None and "PersistentVolumeClaim" in told.message
        if part.kind == "SlurmCluster" and told is not None and not waits_for_claim:
            yield from _filling(cluster, part, told)


def waits_for_root(cluster: ClusterFacts) -> bool:
    """Whether login nodes and workers wait until the root is filled."""
    told = (condition(part.conditions, POPULATED) for part in cluster.parts if part.kind == "SlurmCluster")
    return any(it is not None and it.status == "False" for it in told)


def refused_by_plugin(nodes: list[SlurmNodeFact], reason: str, cluster: ClusterFacts) -> Finding | None:
    """Explain nodes that our plugin drained, since jobs could not be let in; None if it was for another reason."""
    if not any(mark in reason for mark in _MARKS):
        return None
    listed = fold(tuple(node.name for node in nodes))
    where = {
        "namespace": cluster.key.namespace,
        "node": nodes[0].name,
        "cluster": cluster.key.name,
        "job": _job(cluster),
    }
    remedy = next(text for mark, text in _REMEDIES if mark in reason).format(**where)
    run = f"isthmus cluster exec {cluster.key.name} -n {cluster.key.namespace} --"
    return Finding(
        area="root",
        what=f"{listed} cannot run jobs in the shared root",
        where=f"Slurm of {cluster.key}",
        why=reason,
        remedy=(remedy, f"then: {run} scontrol update nodename={listed} state=resume"),
    )


def _filling(cluster: ClusterFacts, part: PartFact, told: Condition) -> Iterator[Finding]:
    where = f"{part.kind} {cluster.key}"
    job, namespace = _job(cluster), cluster.key.namespace
    if told.reason in {"RefreshDue", "RefreshFailed"}:
        failed = told.reason == "RefreshFailed"
        yield Finding(
            area="root",
            what="the shared root was not refreshed" if failed else "a newer image of the shared root is due",
            where=where,
            why=told.message,
            remedy=(f"isthmus cluster refresh {cluster.key.name} -n {namespace}",),
            grave=False,
        )
    elif told.status == "False" and told.reason in {"Failed", "Failing", "Waiting", "Refused"}:
        yield Finding(
            area="root",
            what="the shared root is not filled, so users cannot log in and jobs cannot start",
            where=where,
            why=told.message,
            remedy=(*_hints(told.message, cluster), f"kubectl logs -n {namespace} job/{job} --all-containers"),
            subjects=(about(part),),
        )


def _hints(message: str, cluster: ClusterFacts) -> Iterator[str]:
    namespace = cluster.key.namespace
    if any(word in message for word in ("ErrImage", "ImagePull", "InvalidImageName")):
        yield "check spec.populateJail.image, and imagePullSecrets there; once changed, it is retried automatically"
    if any(word in message for word in ("too small", "is full", "inodes")):
        yield "enlarge the claim (spec.resources.requests.storage), if its class allows that"
    if "cannot be scheduled" in message:
        yield "compare spec.populateJail.k8sNodeFilterName and its filter with: kubectl get nodes --show-labels"
    if "has not created the pod" in message:
        yield f"a policy may refuse it (Pod Security): kubectl describe -n {namespace} job {_job(cluster)}"


def _job(cluster: ClusterFacts) -> str:
    return next((pod.name.rpartition("-")[0] for pod in cluster.pods if pod.component == "jail"), "populate-jail")

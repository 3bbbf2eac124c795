"""What `isthmus elastic` puts together from Slurm and Kubernetes."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from isthmus.domain.diagnosis.facts import ClusterFacts
from isthmus.domain.elastic.outlook import WaitingJob
from isthmus.inspect.elastic import Demand, _explained, assemble
from isthmus.model.meta import Key
from isthmus.model.slinky import NodeSet

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def nodeset(name: str, replicas: int, *, namespace: str = "hpc", cluster: str = "demo", **spec: Any) -> NodeSet:
    body = {"controllerRef": {"name": cluster}, "replicas": replicas, **spec}
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": body}, NodeSet)


def limits(nodes: int, *nodesets: NodeSet) -> str:
    """What a job that waits for so many nodes is told."""
    demand = Demand(name="hpc/demo", waiting=(WaitingJob("7", "alice", nodes, "PENDING", "Resources"),))
    cluster = ClusterFacts(key=Key("hpc", "demo"))
    supplies = assemble(nodesets, (), (), now=NOW)
    return _explained(cluster, demand, nodesets, supplies).waiting[0].limit


def allowed(nodes: int) -> str:
    return f"NodeSets allow no more than {nodes} nodes (hpc/small: autoscale.max is 2)"


def test_a_job_is_told_the_limits_of_its_own_cluster() -> None:
    small, plain = nodeset("small", 8, autoscale={"max": 2}), nodeset("plain", 1)
    assert (limits(2, small), limits(3, small)) == ("", allowed(2))
    assert (limits(3, small, plain), limits(4, small, plain)) == ("", allowed(3))
    elsewhere = (
        nodeset("other", 9, cluster="other"),
        nodeset("other-elastic", 9, cluster="other", autoscale={}),
        nodeset("far", 9, namespace="far"),
    )
    assert limits(3, small, *elsewhere) == allowed(2)

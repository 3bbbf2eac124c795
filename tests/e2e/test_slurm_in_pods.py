"""The example that the demo shows: Slurm by a plain manifest, a job across two nodes."""

import secrets
from pathlib import Path

from tests.bed.cluster import ClusterBed
from tests.bed.waiting import eventually

_EXAMPLE = Path(__file__).parents[2] / "examples" / "slurm-by-hand.yaml"


def test_srun_spans_two_nodes(cluster: ClusterBed, tmp_path: Path) -> None:
    key = tmp_path / "slurm.key"
    key.write_bytes(secrets.token_bytes(1024))
    cluster.kubectl("create", "secret", "generic", "slurm-key", f"--from-file={key}")
    cluster.kubectl("apply", f"--filename={_EXAMPLE}")
    try:
        cluster.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "statefulset/slurmd", "--timeout=240s")
        placed = cluster.kubectl("get", "pods", "--selector=app=slurmd", "-o", "jsonpath={.items[*].spec.nodeName}")
        assert len(set(placed.split())) == 2
        printed = cluster.exec("slurmctld-0", "srun", "-N2", "hostname")
        assert sorted(printed.split()) == ["slurmd-0", "slurmd-1"]
    finally:
        cluster.kubectl("delete", f"--filename={_EXAMPLE}", "--wait=false")
        cluster.kubectl("delete", "secret", "slurm-key")
    eventually(lambda: cluster.get("pods", "default")["items"], "the pods to go", holds=lambda it: not it)

"""What the doctor says about the machine on which it runs."""

from isthmus.domain.diagnosis import Facts, Finding, diagnose
from isthmus.domain.diagnosis.facts import Answer, HostFacts, LocalClusterFact, LocalNodeFact


def found(host: HostFacts) -> tuple[Finding, ...]:
    return diagnose(Facts(host=host))


def test_a_machine_that_is_well_has_no_findings() -> None:
    well = LocalClusterFact(name="demo", nodes=(LocalNodeFact(name="demo-worker"),))
    assert found(HostFacts(clusters=(well,), token_left=60.0, ping=Answer(code=0))) == ()


def test_what_does_not_run_of_a_local_cluster_is_one_finding_with_a_repair() -> None:
    nodes = (LocalNodeFact(name="w1", machine="off"), LocalNodeFact(name="w2", stopped=("kubelet",)))
    (finding,) = found(HostFacts(clusters=(LocalClusterFact(name="demo", nodes=nodes, published=False),)))
    assert (
        finding.what == "local cluster demo: w1 off; kubelet on w2 not running; its ports on localhost lead nowhere"
    )
    assert finding.fix
    assert (finding.fix.repair, finding.fix.target) == ("up", "demo")


def test_a_node_that_somebody_cut_off_is_not_repaired_behind_their_back() -> None:
    nodes = (LocalNodeFact(name="w1", machine="cut off"),)
    (finding,) = found(HostFacts(clusters=(LocalClusterFact(name="demo", nodes=nodes),)))
    assert finding.remedy == ("isthmus node heal w1 --name demo",)
    assert finding.fix is None


def test_a_cluster_that_cannot_be_read_is_told() -> None:
    (finding,) = found(HostFacts(clusters=(LocalClusterFact(name="demo", trouble="cluster.json is damaged"),)))
    assert "cluster.json is damaged" in finding.what


def test_the_kernel_the_disk_the_token_and_slurm() -> None:
    host = HostFacts(
        full={"/var/lib/isthmus": 0.5},
        watches=128,
        token_left=-60.0,
        ping=Answer(code=1, text="Slurmctld(primary) at ctl is DOWN"),
    )
    findings = found(host)
    assert [it.area for it in findings] == ["host"] * 4
    assert "0.5 GiB are free" in findings[0].what
    assert findings[1].fix
    assert "SLURM_JWT expired 60 s ago" in findings[2].what
    assert findings[3].why == "Slurmctld(primary) at ctl is DOWN"

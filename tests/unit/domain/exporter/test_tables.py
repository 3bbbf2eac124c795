from isthmus.domain.exporter import tables
from isthmus.domain.exporter.exposition import Family
from isthmus.domain.exporter.folding import Limits
from isthmus.model.slurm import FairShare, License, Number, Partition, PartitionState, Ping, Reservation, Share
from isthmus.model.slurmdb import Association, GroupJobs, Maximums, MaxJobs, MaxTres, PastTres

_LIMITS = Limits()


def _share(name: str, parent: str, factor: float, *kind: str) -> Share:
    of = Number.of
    return Share(
        name=name,
        parent=parent,
        shares_normalized=of(0.5),
        effective_usage=of(0.25),
        fairshare=FairShare(factor=of(factor)),
        type=kind,
    )


def test_partitions_that_take_no_jobs_are_not_up() -> None:
    found = [
        Partition("a", partition=PartitionState(("UP",))),
        Partition("b", partition=PartitionState(("DRAIN",))),
    ]
    text = tables.text(tables.partitions(found, _LIMITS))
    assert 'isthmus_slurm_partition_up{partition="a"} 1\n' in text
    assert 'isthmus_slurm_partition_up{partition="b"} 0\n' in text


def test_reservations_and_licences() -> None:
    reservation = Reservation("r", node_count=3, start_time=Number.of(10), end_time=Number.of(20))
    text = tables.text(tables.reservations([reservation], _LIMITS))
    assert 'isthmus_slurm_reservation_nodes{reservation="r"} 3\n' in text
    assert 'isthmus_slurm_reservation_end_timestamp_seconds{reservation="r"} 20\n' in text
    text = tables.text(tables.licenses([License("m", total=10, used=2, reserved=1)], _LIMITS))
    assert 'isthmus_slurm_licenses{license="m"} 10\n' in text
    assert 'isthmus_slurm_licenses_used{license="m"} 2\n' in text


def test_with_fair_tree_an_account_has_the_mean_factor_of_its_users() -> None:
    found = (
        _share("root", "", 0, "ASSOCIATION"),
        _share("physics", "root", 0, "ASSOCIATION"),
        _share("alice", "physics", 0.5, "USER"),
        _share("bob", "physics", 1.0, "USER"),
    )
    alias = Family("slurm_account_fairshare", "gauge", "x", ("account",))
    text = tables.text(tables.shares(found, _LIMITS, alias=alias))
    assert 'account="root"' not in text
    assert 'isthmus_slurm_account_fairshare{account="physics"} 0.75\n' in text
    assert '\nslurm_account_fairshare{account="physics"} 0.75\n' in text
    assert 'account_fairshare{account="root"}' not in text
    assert 'isthmus_slurm_user_fairshare{account="physics",user="alice"} 0.5\n' in text
    assert 'isthmus_slurm_account_usage_ratio{account="physics"} 0.25\n' in text


def test_limits_are_those_of_whole_accounts() -> None:
    limits = Maximums(
        jobs=MaxJobs(per=GroupJobs(count=Number.of(7), submitted=Number.of(float("inf")))),
        tres=MaxTres(total=(PastTres("cpu", "", 100), PastTres("gres", "gpu", 3), PastTres("billing", "", 9))),
    )
    found = [Association(account="physics", max=limits), Association(account="physics", user="alice", max=limits)]
    text = tables.text(tables.account_limits(found, _LIMITS))
    assert sorted(line for line in text.splitlines() if not line.startswith("#")) == [
        'isthmus_slurm_account_limit{account="physics",limit="cpu"} 100',
        'isthmus_slurm_account_limit{account="physics",limit="gres/gpu"} 3',
        'isthmus_slurm_account_limit{account="physics",limit="jobs"} 7',
    ]


def test_a_slurmctld_that_does_not_answer_has_no_latency() -> None:
    found = [Ping("a", responding=True, latency=1500), Ping("b", responding=False, latency=0)]
    text = tables.text(tables.pings(found, _LIMITS))
    assert 'isthmus_slurm_controller_up{host="b"} 0\n' in text
    assert 'isthmus_slurm_controller_ping_seconds{host="a"} 0.0015\n' in text
    assert 'ping_seconds{host="b"}' not in text

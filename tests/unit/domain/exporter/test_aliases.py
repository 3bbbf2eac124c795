import re
from collections import Counter

import pytest

from isthmus.domain.exporter import catalog, metricsets
from isthmus.domain.exporter.aliases import SETS, native

_NAME = re.compile(r"slurm_[a-z0-9_]+")


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_each_family_once_and_none_of_ours(name: str) -> None:
    found = Counter(family.name for family in SETS[name].families())
    assert {family for family, count in found.items() if count > 1} == set()
    assert not found.keys() & {family.name for family in catalog.OWN}
    assert all(_NAME.fullmatch(family) for family in found)


def test_the_native_set_has_every_name_of_slurmctld() -> None:
    found = {family.name for family in native.SET.families()}
    for name in (
        "slurm_jobs",
        "slurm_jobs_fed_requeued",
        "slurm_jobs_nodes_alloc",
        "slurm_user_jobs_memory_alloc",
        "slurm_account_jobs_hold",
        "slurm_partition_jobs_max_job_nodes_nohold",
        "slurm_partition_jobs_wait_part_node_limit",
        "slurm_partition_nodes_cg",
        "slurm_partition_nodes_mem_tot",
        "slurm_nodes_powering_up",
        "slurm_node_memory_effective_bytes",
        "slurm_partitions",
        "slurm_schedule_cycle_cnt",
        "slurm_bf_exit_table_limit",
        "slurm_sdiag_latency",
    ):
        assert name in found


def test_own_and_soperator_are_in_the_catalogue() -> None:
    assert {family.name for family in metricsets.OWN.families()} <= {family.name for family in catalog.OWN}
    assert {family.name for family in metricsets.SOPERATOR.families()} <= {
        family.name for family in catalog.SOPERATOR
    }

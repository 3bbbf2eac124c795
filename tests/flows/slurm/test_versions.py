# ruff: noqa: F401 - tests are collected, and fixtures found, by their names
"""The calls again, in every API version but the newest of each Slurm: what `test_client` says holds for all."""

from collections.abc import AsyncIterator

import pytest

from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from tests.bed.faults import Faults
from tests.bed.slurm import SlurmBed
from tests.flows.slurm.test_client import (
    test_a_batch_job_runs_and_tells_its_story,
    test_a_job_is_cancelled_once,
    test_a_job_is_changed,
    test_a_job_tells_what_it_has_of_each_node,
    test_a_job_that_begins_later_can_be_let_go,
    test_a_script_ends_with_the_exit_code_that_a_signal_stands_for,
    test_an_array_has_a_state_for_each_task,
    test_nodes_are_made_and_deleted_where_slurm_can,
    test_nodes_are_read_drained_and_resumed,
    test_partitions,
    test_ping_diagnosis_and_reconfigure,
    test_reservations_are_made_changed_and_deleted_where_slurm_can,
    test_slurm_knows_every_field_that_we_send,
    test_states_are_of_all_jobs_or_of_those_asked_for,
    test_the_accounts,
    test_the_accounts_remember_jobs,
)

NEWEST = 45


@pytest.fixture(params=[("26.05", 44), ("26.05", 43), ("24.11", 41), ("24.11", 40)], ids=lambda it: f"v0.0.{it[1]}")
def version(request: pytest.FixtureRequest) -> tuple[str, int]:
    slurm, api = request.param
    return slurm, api


@pytest.fixture
def slurm_version(version: tuple[str, int]) -> str:
    return version[0]


@pytest.fixture
async def client(slurm: SlurmBed, version: tuple[str, int], faults: Faults) -> AsyncIterator[Client]:
    """A client to which slurmrestd denies its newer versions."""
    async with faults.in_front_of(slurm.rest_url) as proxy:
        for newer in range(version[1] + 1, NEWEST + 1):
            proxy.respond(404, path=f"*/v0.0.{newer}/*")
        async with connect([proxy.url], MintedTokens(slurm.jwt_key)) as connected:
            assert (await connected.server()).api == version[1]
            yield connected

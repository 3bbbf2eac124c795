"""A client of the real Slurm, and waiting for what it does."""

from collections.abc import AsyncIterator

import pytest

from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from tests.bed.slurm import SlurmBed


@pytest.fixture
async def client(slurm: SlurmBed) -> AsyncIterator[Client]:
    async with connect([slurm.rest_url], MintedTokens(slurm.jwt_key)) as connected:
        yield connected

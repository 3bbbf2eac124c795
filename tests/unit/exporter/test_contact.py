"""An exporter that has not reached Slurm yet."""

import asyncio

from prometheus_client import CollectorRegistry

from isthmus.exporter.exporter import Exporter
from isthmus.exporter.metrics import ExporterMetrics
from isthmus.exporter.settings import Settings
from isthmus.slurm.auth import EnvironmentToken
from isthmus.slurm.client import connect


async def test_before_the_first_contact_there_is_no_number_of_jobs() -> None:
    async with connect(["http://127.0.0.1:1"], EnvironmentToken({"SLURM_JWT": "a.b.c"})) as client:
        exporter = Exporter(client, Settings(), ExporterMetrics(CollectorRegistry()))
        task = asyncio.get_running_loop().create_task(exporter.run())
        async with asyncio.timeout(30):
            while "no slurmrestd answers" not in exporter.contact.check().sentence:  # noqa: ASYNC110 - a check sends no events
                await asyncio.sleep(0.01)
        assert not exporter.contact.check().ok
        lines = [line for line in exporter.page.render().decode().splitlines() if not line.startswith("#")]
        assert [line for line in lines if "collector=" not in line] == ["isthmus_slurm_up 0"]
        exporter.drain()
        await task

"""Ways to reach a slurmrestd, and what happens when they break."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from isthmus.slurm.auth import FileToken, MintedTokens
from isthmus.slurm.client import Client, connect
from isthmus.slurm.errors import AnswerLost, NotFound, Unauthorized, UnknownVersion, Unreachable
from tests.bed.faults import Faults
from tests.bed.slurm import SlurmBed
from tests.flows.slurm.helpers import batch_job, new_key

STATES = "*/jobs/state/"


@asynccontextmanager
async def behind_tls(url: str, certificate: trustme.LeafCert) -> AsyncIterator[str]:
    """Put TLS in front of a slurmrestd, as a gateway does; gives the https address."""
    parts = urlsplit(url)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    under_way: set[asyncio.Task[None]] = set()

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        part_reader, part_writer = await asyncio.open_connection(parts.hostname, parts.port)
        loop = asyncio.get_running_loop()
        both = {loop.create_task(pour(reader, part_writer)), loop.create_task(pour(part_reader, writer))}
        under_way.update(both)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        for end in (writer, part_writer):
            end.close()
            with suppress(ConnectionError, ssl.SSLError):
                await end.wait_closed()
        under_way.difference_update(both)

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        while under_way:  # noqa: ASYNC110 - the connections end by themselves, now that the client is gone
            await asyncio.sleep(0.01)


async def test_tls_with_an_authority_of_ones_own(slurm: SlurmBed) -> None:
    authority = trustme.CA()
    async with behind_tls(slurm.rest_url, authority.issue_cert("127.0.0.1")) as url:
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        async with connect([url], MintedTokens(slurm.jwt_key), tls=trusting) as client:
            assert (await client.ping())[0].answers
            with pytest.raises(NotFound):
                await client.job(9_999_999)
            assert (await client.ping())[0].answers


async def test_a_certificate_that_nobody_vouches_for_is_not_talked_to(slurm: SlurmBed) -> None:
    async with (
        behind_tls(slurm.rest_url, trustme.CA().issue_cert("127.0.0.1")) as url,
        connect([url], MintedTokens(slurm.jwt_key)) as client,
    ):
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            await client.ping()


async def test_the_second_slurmrestd_takes_over_and_keeps_the_work(slurm: SlurmBed, faults: Faults) -> None:
    async with (
        faults.in_front_of(slurm.rest_url) as first,
        faults.in_front_of(slurm.rest_url) as second,
        connect([first.url, second.url], MintedTokens(slurm.jwt_key)) as client,
    ):
        await client.job_states()
        assert (first.count(path=STATES), second.count(path=STATES)) == (1, 0)
        first.refuse()
        await client.job_states()
        await client.submit(batch_job(), key=new_key())
        assert second.count(path=STATES) >= 1
        first.heal()
        asked = second.count()
        await client.ping()
        assert second.count() == asked + 1
        second.refuse()
        await client.ping()


async def test_reading_goes_on_elsewhere_when_an_answer_is_lost(slurm: SlurmBed, faults: Faults) -> None:
    async with (
        faults.in_front_of(slurm.rest_url) as first,
        connect([first.url, slurm.rest_url], MintedTokens(slurm.jwt_key)) as client,
    ):
        await client.server()
        cut = first.cut(after_bytes=40, path=STATES)
        await client.job_states()
        assert cut.used


async def test_an_answer_that_comes_twice_confuses_nobody(slurm: SlurmBed, faults: Faults) -> None:
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as client,
    ):
        one = (await client.submit(batch_job(), key=new_key())).job_id
        other = (await client.submit(batch_job(), key=new_key())).job_id
        proxy.duplicate(path="*/job/*")
        for _ in range(10):
            assert [job.job_id for job in await client.job(one)] == [one]
            assert [job.job_id for job in await client.job(other)] == [other]


async def test_slurmrestds_own_second_answers_confuse_nobody(client: Client) -> None:
    job_id = (await client.submit(batch_job(), key=new_key())).job_id
    for _ in range(20):
        with pytest.raises(NotFound):
            await client.job(9_999_999)
        assert [job.job_id for job in await client.job(job_id)] == [job_id]


async def test_silence_is_a_lost_answer(slurm: SlurmBed, faults: Faults) -> None:
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as client,
    ):
        await client.server()
        proxy.hang(path=STATES)
        with pytest.raises(AnswerLost, match=r"no answer within 0\.2 s"):
            await client.job_states(patience=0.2)
        proxy.heal()
        await client.job_states()


async def test_a_rotated_token_is_read_when_the_old_one_expires(slurm: SlurmBed, tmp_path: Path) -> None:
    path, new = tmp_path / "token", tmp_path / "new"

    def rotate(token: str) -> None:
        # A new file: if the same one were written twice within a tick of the kernel, its time would be the same.
        new.write_text(token)
        new.replace(path)

    rotate(slurm.token())
    async with connect([slurm.rest_url], FileToken(path)) as client:
        await client.job_states()
        rotate(slurm.token(lifetime=-60))
        with pytest.raises(Unauthorized):
            await client.job_states()
        rotate(slurm.token())
        await client.job_states()


async def test_a_token_refused_once_is_renewed_and_the_call_goes_through(slurm: SlurmBed, faults: Faults) -> None:
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        connect([proxy.url], MintedTokens(slurm.jwt_key)) as client,
    ):
        await client.server()
        proxy.respond(401, path=STATES, times=1)
        await client.job_states()
        assert proxy.count(path=STATES) == 2


async def test_a_server_that_is_upgraded_is_asked_for_its_version_again(slurm: SlurmBed, faults: Faults) -> None:
    async with faults.in_front_of(slurm.rest_url) as proxy:
        rule = proxy.respond(404, headers={"Content-Type": "text/plain"}, path="*/v0.0.4[3-5]/*")
        async with connect([proxy.url], MintedTokens(slurm.jwt_key)) as client:
            assert (await client.server()).api == 42
            rule.remove()
            proxy.respond(404, headers={"Content-Type": "text/plain"}, path=STATES, times=1)
            await client.job_states()
            assert (await client.server()).api == {"26.05": 45, "24.11": 42}[slurm.version]


async def test_a_server_that_we_do_not_know_is_named(slurm: SlurmBed, faults: Faults) -> None:
    async with faults.in_front_of(slurm.rest_url) as proxy:
        proxy.respond(404, path="/slurm/*")
        for offered, verdict in (("39", "too old"), ("46", "too new"), ("", "serves no Slurm API")):
            body = f'{{"paths": {{"/slurm/v0.0.{offered}/ping/": 1}}}}'.encode() if offered else b"{}"
            rule = proxy.respond(200, body=body, path="/openapi/v3")
            async with connect([proxy.url], MintedTokens(slurm.jwt_key)) as client:
                with pytest.raises(UnknownVersion, match=verdict):
                    await client.ping()
            rule.remove()

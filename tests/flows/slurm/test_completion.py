"""`isthmus-complete` on real Slurms: it ends jobs of the bridge with an exit status, and touches no others."""

import asyncio
import http.client
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from isthmus.domain.bridge import marker
from isthmus.domain.bridge.marker import Marker
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client
from isthmus.slurm.completion import Completer, to_helper
from isthmus.slurm.errors import AlreadyDone, CompleterAway, Denied, NotFound, NotNow
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_conf import COMPLETER_PORT
from tests.flows.slurm.helpers import batch_job, eventually, job_in_state, new_key

CLUSTER = "0b7c6a3e-1f0e-4c29-8d1e-6b1f6d3f7c11"


@pytest.fixture
def bed(slurm: SlurmBed) -> Iterator[SlurmBed]:
    """A Slurm with the helper beside it."""
    slurm.start("isthmus-complete")
    yield slurm
    slurm.stop("isthmus-complete")


@pytest.fixture
async def completer(bed: SlurmBed) -> AsyncIterator[Completer]:
    tokens = MintedTokens(bed.jwt_key, user="slurm")
    async with to_helper([bed.completer_url], tokens) as transport:
        yield Completer(transport, cluster=CLUSTER)


@pytest.fixture
async def running(client: Client) -> AsyncIterator[list[int]]:
    """Jobs that are cancelled after the test."""
    jobs: list[int] = []
    yield jobs
    for job_id in jobs:
        await client.cancel_job(job_id)


async def marked(client: Client, *, cluster: str = CLUSTER, **changes: Any) -> int:
    """Submit a job for a pod of this cluster."""
    mark = marker.write(Marker(cluster, "", "team", "web", "uid", pods=("team/web",), uids=("uid",)))
    changes = {"admin_comment": mark if cluster else None, "hold": False} | changes
    return (await client.submit_once(batch_job(**changes), key=new_key())).job_id


async def accounted(bed: SlurmBed, job_id: int, *words: str) -> None:
    """Wait until accounting says that a job ended so."""

    async def read() -> list[str]:
        seen[:] = bed.command("sacct", "-nPX", "-j", str(job_id), "-o", "State,ExitCode").strip().split("|")
        return seen

    seen: list[str] = []
    try:
        await eventually(read, lambda it: it == list(words))
    except TimeoutError:
        raise AssertionError(f"job {job_id} is accounted for as {seen}, not {words}") from None


async def test_jobs_end_with_the_state_and_code_of_their_pods(
    bed: SlurmBed, client: Client, completer: Completer
) -> None:
    # Of any job whatsoever, sacct of 24.11 shows codes from 128 on as so much less.
    ends = {0: ("COMPLETED", "0:0"), 3 << 8: ("FAILED", "3:0"), 9: ("FAILED", "0:9"), 127 << 8: ("FAILED", "127:0")}
    jobs = {status: await marked(client) for status in ends}
    for status, job_id in jobs.items():
        await job_in_state(client, job_id, "RUNNING")
        await completer.complete(job_id, status)
    for status, job_id in jobs.items():
        await accounted(bed, job_id, *ends[status])
        with pytest.raises(AlreadyDone):
            await completer.complete(job_id, status)


async def test_reports_and_efficiency_count_such_jobs(bed: SlurmBed, client: Client, completer: Completer) -> None:
    job_id = await marked(client)
    await job_in_state(client, job_id, "RUNNING")
    await eventually(
        lambda: asyncio.to_thread(bed.command, "squeue", "-hj", str(job_id), "-o", "%M"),
        lambda it: it.strip() > "0:01",
    )
    await completer.complete(job_id, 0)
    await accounted(bed, job_id, "COMPLETED", "0:0")
    listed = bed.command(
        "sacct", "-nPX", "--state=COMPLETED", "--starttime=now-1hour", "--endtime=now", "-o", "JobID"
    )
    assert str(job_id) in listed.split()
    efficiency = bed.command("sacct", "-nPX", "-j", str(job_id), "-o", "ElapsedRaw,CPUTimeRAW,AllocCPUS,End")
    elapsed, cpu_time, cpus, end = efficiency.strip().split("|")
    assert int(elapsed) > 0
    assert int(cpu_time) == int(elapsed) * int(cpus)
    assert end != "Unknown"
    assert "CANCELLED" not in bed.command("sacct", "-nPX", "-j", str(job_id), "-o", "State")
    # A report of the present hour exists only after the hour; that it can be made at all shows sound records.
    bed.command("sreport", "-nP", "job", "sizesbyaccount", "start=now-1hour", "end=now+1hour")


async def test_two_clusters_do_not_touch_each_others_jobs(
    client: Client, completer: Completer, running: list[int]
) -> None:
    others = ("another-cluster", CLUSTER[:-1], f"{CLUSTER}1", "")
    running.extend([await marked(client, cluster=cluster) for cluster in others])
    forged = f'{{"note":"{CLUSTER}","cluster":"{CLUSTER}","isthmus":1}}'
    running.append(await marked(client, admin_comment=forged))
    for job_id in running:
        await job_in_state(client, job_id, "RUNNING")
        with pytest.raises(NotFound, match=f"job {job_id} is not a job of cluster {CLUSTER}"):
            await completer.complete(job_id, 0)
        assert (await client.job(job_id))[0].job_state[0] == "RUNNING"
    with pytest.raises(NotFound):
        await completer.complete(99_999_999, 0)


async def test_a_job_that_waits_is_not_completed(client: Client, completer: Completer, running: list[int]) -> None:
    job_id = await marked(client, hold=True)
    running.append(job_id)
    with pytest.raises(NotNow, match="pending"):
        await completer.complete(job_id, 0)
    assert (await client.job(job_id))[0].job_state[0] == "PENDING"


async def test_slurm_decides_who_may(bed: SlurmBed, client: Client, running: list[int]) -> None:
    job_id = await marked(client)
    running.append(job_id)
    await job_in_state(client, job_id, "RUNNING")
    async with to_helper([bed.completer_url], MintedTokens(bed.jwt_key, user="alice")) as transport:
        with pytest.raises(Denied):
            await Completer(transport, cluster=CLUSTER).complete(job_id, 0)
    path = f"/jobs/{job_id}/complete?cluster={CLUSTER}&status=0"
    for token in ("", "a.b.c", bed.token("slurm", lifetime=-60), bed.token("slurm")[:-4] + "AAAA", "x\x01y"):
        assert post(bed, path, token=token) in {400, 401}, token
    assert (await client.job(job_id))[0].job_state[0] == "RUNNING"


async def test_a_connection_serves_one_token_only(bed: SlurmBed, client: Client, running: list[int]) -> None:
    """A proxy may send the requests of several users over one: nobody may borrow the token of another."""
    jobs = [await marked(client) for _ in range(3)]
    running.append(jobs[2])
    for job_id in jobs:
        await job_in_state(client, job_id, "RUNNING")
    connection = http.client.HTTPConnection(bed.address, COMPLETER_PORT, timeout=60)
    connection.connect()
    peer, token = connection.sock.getsockname(), bed.token("slurm")

    def ask(job_id: int, token: str) -> int:
        path = f"/jobs/{job_id}/complete?cluster={CLUSTER}&status=0"
        connection.request("POST", path, headers={"X-SLURM-USER-TOKEN": token})
        assert connection.sock.getsockname() == peer, "the connection stays the same"
        answer = connection.getresponse()
        answer.read()
        return answer.status

    assert [ask(job_id, token) for job_id in jobs[:2]] == [200, 200]
    assert ask(jobs[2], "a.b.c") == http.HTTPStatus.MISDIRECTED_REQUEST
    connection.close()
    assert (await client.job(jobs[2]))[0].job_state[0] == "RUNNING"


def post(bed: SlurmBed, path: str, *, token: str = "", method: str = "POST") -> int:
    """Send a request as no client of ours does, and return the status of the answer."""
    with socket.create_connection((bed.address, COMPLETER_PORT), timeout=60) as peer:
        head = f"X-SLURM-USER-TOKEN: {token}\r\n" if token else ""
        peer.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
        answer = http.client.HTTPResponse(peer)
        answer.begin()
        assert "error" in json.loads(answer.read())["errors"][0]
        return answer.status


def test_what_is_not_a_request_is_refused(bed: SlurmBed) -> None:
    token = bed.token("slurm")
    good = f"/jobs/1/complete?cluster={CLUSTER}&status="
    for path, status in (
        ("/", 404),
        (f"{good}", 404),
        (f"{good}-1", 404),
        (f"{good}1 ", 404),
        (f"{good}0&more=1", 404),
        (f"/jobs/-1/complete?cluster={CLUSTER}&status=0", 404),
        ('/jobs/1/complete?cluster=a"b&status=0', 404),
        (f"/jobs/1/complete?cluster={'a' * 64}&status=0", 404),
        (f"/jobs/0/complete?cluster={CLUSTER}&status=0", 400),
        (f"/jobs/4294967295/complete?cluster={CLUSTER}&status=0", 400),
        (f"/jobs/9999999999/complete?cluster={CLUSTER}&status=0", 400),
        (f"{good}99999", 400),
        (f"{good}65", 400),
        (f"{good}257", 400),
        (f"/{'a' * 70000}", 431),
    ):
        assert post(bed, path, token=token) == status, path[:80]
    assert post(bed, f"{good}0", token=token, method="GET") == 404


async def test_one_who_says_nothing_holds_up_nobody(bed: SlurmBed, client: Client, completer: Completer) -> None:
    with socket.create_connection((bed.address, COMPLETER_PORT)) as silent:
        silent.sendall(b"POST /jobs/1/com")
        job_id = await marked(client)
        await job_in_state(client, job_id, "RUNNING")
        await completer.complete(job_id, 0)
    await accounted(bed, job_id, "COMPLETED", "0:0")


async def test_the_time_without_the_helper_is_counted(slurm: SlurmBed) -> None:
    now = [0.0]
    tokens = MintedTokens(slurm.jwt_key, user="slurm")
    async with to_helper([slurm.completer_url], tokens) as transport:
        completer = Completer(transport, cluster=CLUSTER, clock=lambda: now[0])
        for moment in (5.0, 12.0):
            now[0] = moment
            with pytest.raises(CompleterAway, match="isthmus-complete does not answer"):
                await completer.complete(7, 0)
        assert completer.away_for == 7.0
        slurm.start("isthmus-complete")
        try:
            with pytest.raises(NotFound):
                await completer.complete(99_999_999, 0)
        finally:
            slurm.stop("isthmus-complete")
        assert completer.away_for == 0.0

"""A real exporter of a real Slurm: it shows what squeue, sinfo, sdiag and scontrol say at the same moment."""

import asyncio
import re
import socket
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from isthmus.domain.exporter import nodestates
from isthmus.domain.exporter.aliases import SETS
from isthmus.exporter.exporter import Exporter
from isthmus.processes import exporter as process
from tests.bed.faults import Faults
from tests.bed.promtool import promtool
from tests.bed.slurm import VERSIONS, SlurmBed
from tests.bed.waiting import PATIENCE, eventually
from tests.flows.exporter.scrapes import Scrape, exporting, until

_SETTINGS = {
    "Licenses": "matlab:10,ansys:5",
    "PriorityType": "priority/multifactor",
    "MessageTimeout": "5",
    "MinJobAge": "3600",
    "ReturnToService": "0",  # a node that is set down stays down until it is resumed
}
_NEWEST_SETTINGS = {"MetricsType": "metrics/openmetrics"}
_HOSTILE = 'a "quoted" \\ name\nwith a line, 漢字 and {braces}' + "x" * 10_000
# slurmctld counts records of a partition, user or account where we count tasks, and a node that jobs of a user
# share once. It writes megabytes where it says bytes, has a maximum under `min`, and its jobs that wait for a limit
# on nodes are not those to which it gives that reason.
_WRONG_THERE = re.compile(
    r"(partition|user|account)_jobs$|(user|account)_jobs_nodes_alloc"
    r"|mem_|memory|job_nodes|powering_up|wait_part_node_limit"
)
newest = pytest.mark.parametrize("slurm_version", VERSIONS[:1])
_REASONS = ("BeginTime", "Dependency", "JobArrayTaskLimit")
_GONE = ("isthmus_slurm_jobs", "slurm_job_info", "isthmus_slurm_nodes", "slurm_node_info")


@pytest.fixture(scope="module")
def beds() -> Iterator[dict[str, SlurmBed]]:
    """A Slurm of each version with jobs in every state, made when a test asks for it."""
    made: dict[str, SlurmBed] = {}
    yield made
    for bed in made.values():
        bed.__exit__()


@pytest.fixture
def busy(beds: dict[str, SlurmBed], slurm_version: str) -> SlurmBed:
    if slurm_version not in beds:
        more = _NEWEST_SETTINGS if slurm_version == VERSIONS[0] else {}
        bed = SlurmBed(slurm_version, nodes=2, settings=_SETTINGS | more)
        beds[slurm_version] = bed.__enter__()
        _fill(bed)
    return beds[slurm_version]


@pytest.fixture
async def exporter(busy: SlurmBed) -> AsyncIterator[Exporter]:
    async with exporting(busy) as running:
        yield running


def _fill(bed: SlurmBed) -> None:
    """Submit jobs that come to every state which needs neither minutes nor luck."""
    bed.command("sacctmgr", "-i", "add", "account", "physics", "GrpJobs=7", "GrpTRES=cpu=100")
    for user in ("alice", "root"):
        bed.command("sacctmgr", "-i", "add", "user", user, "account=physics", "FairShare=3")
    failed = bed.submit(script="exit 3")
    done = bed.submit(script="true")
    eventually(lambda: {_state(bed, failed), _state(bed, done)} == {"FAILED", "COMPLETED"}, "Slurm to get there")
    running = bed.submit("--licenses=matlab:2", "--nodelist=n1")
    suspended = bed.submit("--nodelist=n1")
    lost = bed.submit("--no-requeue", "--nodelist=n2")
    eventually(lambda: all(_state(bed, it) == "RUNNING" for it in (running, suspended, lost)), "Slurm to get there")
    bed.scontrol("suspend", suspended)
    bed.scontrol("update", "NodeName=n2", "State=DOWN", "Reason=the fan, says Bob")
    eventually(lambda: _state(bed, lost) == "NODE_FAIL", "Slurm to get there")
    bed.scontrol("update", "NodeName=n2", "State=RESUME")
    eventually(lambda: "idle" in bed.command("sinfo", "-hN", "-n", "n2", "-o%T"), "Slurm to get there")
    bed.scontrol("update", "NodeName=n2", "State=DRAIN", "Reason=slurm-operator: rollout")
    bed.submit("--hold")
    bed.submit(f"--dependency=afterok:{running}")
    bed.submit("--array=1-20%2", "--hold")
    bed.submit("--begin=now+1hour", "--account=physics", user="alice")
    cancelled = bed.submit("--hold")
    bed.command("scancel", cancelled)
    array = bed.submit("--array=1-5%1", "--nodelist=n1")
    eventually(lambda: "RUNNING" in bed.command("squeue", "-hr", "-j", array, "-o%T"), "Slurm to get there")
    requeued = bed.submit("--nodelist=n1")
    eventually(lambda: _state(bed, requeued) == "RUNNING", "Slurm to get there")
    bed.scontrol("requeuehold", requeued)
    bed.scontrol(
        "create",
        "reservation",
        "ReservationName=repair",
        "StartTime=now+3600",
        "Duration=60",
        "Nodes=n2",
        "Users=root",
    )


def _state(bed: SlurmBed, job_id: str) -> str:
    return bed.command("squeue", "-h", "-t", "all", "-j", job_id, "-o%T").strip()


def _queue(bed: SlurmBed) -> list[list[str]]:
    lines = bed.command("squeue", "-hr", "-t", "all", "-o%T|%P|%a|%q|%u|%r|%C").splitlines()
    return [line.split("|") for line in lines]


def _agrees(bed: SlurmBed, scrape: Scrape) -> bool:
    """Compare with what Slurm's commands say now."""
    queue = _queue(bed)
    wanted = Counter((it[1], it[2], it[3], it[0].lower()) for it in queue)
    assert scrape.of("isthmus_slurm_jobs", "partition", "account", "qos", "state") == dict(wanted)
    assert scrape.of("isthmus_slurm_user_jobs", "user", "state") == dict(
        Counter((it[4], it[0].lower()) for it in queue)
    )
    # Where Slurm has more to say than a word, squeue shows that instead of the reason.
    reasons = Counter(it[5] for it in queue if it[0] == "PENDING" and it[5] in _REASONS)
    shown = scrape.of("isthmus_slurm_jobs_pending", "reason")
    assert {reason: shown.get((reason,)) for reason in _REASONS} == {reason: reasons[reason] for reason in _REASONS}
    cpus = sum(int(it[6]) for it in queue if it[0] in {"RUNNING", "SUSPENDED", "COMPLETING"})
    assert sum(scrape.of("isthmus_slurm_user_cpus", "user").values()) == cpus

    nodes = [line.split("|") for line in bed.command("sinfo", "-hN", "-o%N|%T|%C|%m|%e").splitlines()]
    states = Counter((it[1].rstrip("*~#!%$@^-+"),) for it in nodes)
    assert scrape.of("isthmus_slurm_nodes", "state") == dict(states)
    numbers = {(it[0],): float(nodestates.NUMBERS[it[1].rstrip("*~#!%$@^-+")]) for it in nodes}
    assert scrape.of("isthmus_slurm_node_state", "node") == numbers
    for name, at in (("allocated", 0), ("idle", 1), ("total", 3)):
        of_sinfo = {(it[0],): float(it[2].split("/")[at]) for it in nodes if it[1] != "drained"}
        shown = {
            node: value
            for node, value in scrape.of(f"slurm_node_cpus_{name}", "node_name").items()
            if node in of_sinfo
        }
        assert shown == of_sinfo
    assert scrape.of("slurm_node_memory_total_bytes", "node_name") == {
        (it[0],): int(it[3]) * 2.0**20 for it in nodes
    }

    licences = {}
    for line in bed.scontrol("--oneliner", "show", "licenses").splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        licences[(fields["LicenseName"],)] = (float(fields["Total"]), float(fields["Used"]))
    assert scrape.of("isthmus_slurm_licenses", "license") == {name: total for name, (total, _) in licences.items()}
    assert scrape.of("isthmus_slurm_licenses_used", "license") == {
        name: used for name, (_, used) in licences.items()
    }
    return True


async def test_what_is_shown_is_what_slurms_commands_say(busy: SlurmBed, exporter: Exporter) -> None:
    scrape = await until(exporter, lambda it: _agrees(busy, it))
    states = {state for (state,) in scrape.of("isthmus_slurm_jobs", "state")}
    assert states >= {"pending", "running", "suspended", "failed", "completed", "cancelled", "node_fail"}
    assert scrape.of("isthmus_slurm_nodes_out", "reason_class") == {("operator",): 1}
    assert set(scrape.of("isthmus_slurm_node_drain_timestamp_seconds", "node", "owner")) == {("n2", "root")}
    assert scrape.value("isthmus_slurm_up") == 1
    assert scrape.value("isthmus_slurm_partition_up", partition="main") == 1
    assert scrape.value("isthmus_slurm_reservation_nodes", reservation="repair") == 1
    assert scrape.of("isthmus_slurm_controller_up", "host") == {("ctl",): 1}

    scrape = await until(exporter, lambda it: it.value("isthmus_slurm_accounting_up") == 1)
    assert scrape.value("isthmus_slurm_account_limit", account="physics", limit="jobs") == 7
    assert scrape.value("isthmus_slurm_account_limit", account="physics", limit="cpu") == 100
    shares = busy.command("sshare", "-nPa", "-o", "account,user,fairshare").splitlines()
    of_sshare = {
        (account.strip(), user): float(it) for account, user, it in (line.split("|") for line in shares) if user
    }
    shown = scrape.of("isthmus_slurm_user_fairshare", "account", "user")
    assert shown.keys() == of_sshare.keys()
    assert shown == pytest.approx(of_sshare, abs=0.01)

    # Each job of the queue has a line, with the labels of Soperator's.
    ids = set(busy.command("squeue", "-h", "-t", "all", "-o%A").split())
    assert {job_id for (job_id,) in scrape.of("slurm_job_info", "job_id")} == ids
    running = busy.command("squeue", "-h", "-t", "running,suspended", "-o%A|%N").splitlines()
    has_nodes = {tuple(line.split("|")) for line in running}
    assert has_nodes <= set(scrape.of("slurm_node_job", "job_id", "node_name"))


@newest
@pytest.mark.parametrize("name", ["own", *SETS])
async def test_promtool_finds_nothing_to_complain_of(busy: SlurmBed, name: str, tmp_path: Path) -> None:
    family = {"own": "slurm_job_info", "vpenso": "slurm_queue_running", "slinky": "slurm_jobs_total"}
    async with exporting(busy, alias=SETS.get(name)) as exporter:
        wanted = {family.get(name, "slurm_jobs"), "isthmus_slurm_account_limit"}
        scrape = await until(exporter, lambda it: wanted <= it.names)
    heads = [line.split()[2] for line in scrape.page.decode().splitlines() if line.startswith("# TYPE ")]
    assert len(heads) == len(set(heads))
    done = await asyncio.to_thread(promtool, tmp_path, "check", "metrics", stdin=scrape.page.decode())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@newest
async def test_other_names_have_the_values_of_slurmctlds_own_metrics(busy: SlurmBed) -> None:
    async with exporting(busy, alias=SETS["native"]) as exporter:

        def agrees(scrape: Scrape) -> bool:
            for path in ("jobs", "nodes", "partitions", "jobs-users-accts"):
                theirs = Scrape(_read(f"http://127.0.0.1:{busy.controller_port}/metrics/{path}"))
                differ = {
                    (sample.name, *sample.labels.values()): (sample.value, shown)
                    for sample in theirs.samples
                    if (shown := scrape.value(sample.name, **sample.labels)) != sample.value
                    and not _WRONG_THERE.search(sample.name)
                }
                assert differ == {}
            return True

        await until(exporter, agrees)


@newest
async def test_a_change_is_shown_because_slurmctld_counts_it(
    busy: SlurmBed, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In how many seconds, the benchmark holds against the bar; here, that one round of questions is enough.

    Without counters, nobody would list jobs again.
    """
    monkeypatch.setattr("isthmus.exporter.exporter._IDLE", 3600.0)
    async with faults.in_front_of(busy.rest_url) as proxy, exporting(busy, url=proxy.url) as exporter:

        def lists() -> int:
            return proxy.count(path="*/jobs/state*")

        await until(exporter, lambda it: _agrees(busy, it))
        before = lists()
        job_id = await asyncio.to_thread(busy.submit, "--hold")
        await until(exporter, lambda it: it.value("slurm_job_info", job_id=job_id))
        # One may have been under way when the job came, and one may have begun since it was shown.
        assert lists() - before <= 3
        await asyncio.to_thread(busy.command, "scancel", job_id)
        await until(exporter, lambda it: it.value("slurm_job_info", job_id=job_id, job_state="CANCELLED"))


@newest
async def test_a_scrape_asks_slurm_nothing(busy: SlurmBed, faults: Faults) -> None:
    async with (
        faults.in_front_of(busy.rest_url) as proxy,
        exporting(busy, url=proxy.url, interval=3600.0) as exporter,
    ):
        await until(exporter, lambda it: "slurm_job_info" in it.names)
        proxy.freeze()
        asked = proxy.count()
        for _ in range(20):
            exporter.page.render()
            await asyncio.sleep(0)
        assert proxy.count() == asked


@newest
async def test_requests_are_counted_as_sdiag_counts_them_and_counters_never_fall(
    busy: SlurmBed, exporter: Exporter
) -> None:
    def calls(scrape: Scrape) -> float | None:
        return scrape.value("slurm_controller_rpc_calls_total", message_type="REQUEST_JOB_STEP_INFO")

    busy.scontrol("show", "steps")
    before = await until(exporter, lambda it: calls(it) is not None)
    for _ in range(3):
        busy.scontrol("show", "steps")
    await until(exporter, lambda it: calls(it) == (calls(before) or 0) + 3)
    busy.command("sdiag", "--reset")
    busy.scontrol("show", "steps")
    after = await until(exporter, lambda it: calls(it) == (calls(before) or 0) + 4)
    for (kind,), count in before.of("slurm_controller_rpc_calls_total", "message_type").items():
        assert after.of("slurm_controller_rpc_calls_total", "message_type")[kind,] >= count


@newest
async def test_hostile_names_are_escaped_and_cut(busy: SlurmBed, exporter: Exporter) -> None:
    name = _HOSTILE.replace("\n", " ")[:900]
    job_id = busy.submit("--hold", f"--job-name={name}", f"--comment={_HOSTILE[:1000]}")
    busy.scontrol("update", "NodeName=n1", 'Comment="\\quoted\\" {and} 漢字')
    scrape = await until(exporter, lambda it: it.value("slurm_job_info", job_id=job_id))
    (shown,) = scrape.of("slurm_job_info", "job_name", job_id=job_id)
    assert shown[0].startswith(name[:200])
    assert len(shown[0]) <= 256
    busy.command("scancel", job_id)


@newest
async def test_jobs_from_accounting_and_no_series_for_jobs(busy: SlurmBed) -> None:
    async with exporting(busy, job_source="accounting") as exporter:
        ids = set(busy.command("squeue", "-h", "-t", "running", "-o%A").split())
        await until(exporter, lambda it: {key for (key,) in it.of("slurm_job_info", "job_id")} >= ids)
    async with exporting(busy, per_job=False) as exporter:
        scrape = await until(exporter, lambda it: "isthmus_slurm_jobs" in it.names)
        assert not [name for name in scrape.names if name.startswith(("slurm_job_", "slurm_node_job"))]


@newest
async def test_the_process_serves_metrics_and_health(busy: SlurmBed, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(busy.token())
    scrape, monitoring = (f"127.0.0.1:{_free_port()}" for _ in range(2))
    options = process.Options(
        servers=(busy.rest_url,), token_file=token, metrics_address=scrape, monitoring_address=monitoring
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(process.run(options))

        async def get(address: str) -> bytes:
            try:
                return await asyncio.to_thread(_read, f"http://{address}")
            except OSError:
                return b""

        async with asyncio.timeout(PATIENCE):
            while not await get(f"{monitoring}/readyz"):  # noqa: ASYNC110 - a server sends no events
                await asyncio.sleep(0.1)
        page = Scrape(await get(f"{scrape}/metrics"))
        assert "slurm_job_info" in page.names
        about = Scrape(await get(f"{monitoring}/metrics"))
        assert about.value("slurm_exporter_metrics_requests_total") == 1
        assert about.value("slurm_exporter_metrics_exported") == len(page.samples)
        assert about.value("slurm_exporter_collector_errors_total") == 0
        assert await get(f"{monitoring}/livez")
        running.cancel()


@newest
async def test_slurmdbd_away_disturbs_nothing_else(busy: SlurmBed, exporter: Exporter) -> None:
    await until(exporter, lambda it: it.value("isthmus_slurm_accounting_up") == 1)
    busy.stop("slurmdbd")
    try:
        scrape = await until(exporter, lambda it: it.value("isthmus_slurm_accounting_up") == 0)
        assert scrape.value("isthmus_slurm_up") == 1
        assert scrape.value("isthmus_slurm_account_limit", account="physics", limit="jobs") == 7
        await until(exporter, lambda it: _agrees(busy, it))
    finally:
        busy.start("slurmdbd")


@newest
async def test_slurmrestd_refusing_from_the_start_shows_no_jobs_instead_of_none(
    busy: SlurmBed, faults: Faults
) -> None:
    async with faults.in_front_of(busy.rest_url) as proxy, exporting(busy, url=proxy.url) as exporter:
        proxy.refuse()
        scrape = await until(exporter, lambda _: bool(exporter.contact.check().sentence))
        assert scrape.value("isthmus_slurm_up") == 0
        assert not exporter.contact.check().ok
        assert not scrape.names & set(_GONE)
        proxy.heal()
        await until(exporter, lambda it: it.value("isthmus_slurm_up") == 1 and set(_GONE) <= it.names)
        assert exporter.contact.check().ok


@newest
async def test_slurmctld_killed_leaves_the_last_values_and_says_how_old_they_are(
    busy: SlurmBed, exporter: Exporter
) -> None:
    before = await until(exporter, lambda it: _agrees(busy, it))
    busy.kill("slurmctld")
    try:
        away = await until(exporter, lambda it: it.value("isthmus_slurm_up") == 0)
        for name in _GONE:
            assert away.value(name) == before.value(name)
        age = away.value("isthmus_slurm_data_age_seconds", collector="jobs") or 0
        older = await until(
            exporter, lambda it: (it.value("isthmus_slurm_data_age_seconds", collector="jobs") or 0) > age
        )
        assert older.value("isthmus_slurm_jobs") == before.value("isthmus_slurm_jobs")
        assert exporter.contact.check().ok
    finally:
        busy.start("slurmctld")
    await until(exporter, lambda it: it.value("isthmus_slurm_up") == 1)
    await until(exporter, lambda it: _agrees(busy, it))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _read(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        return bytes(answer.read())

"""Every call to a real slurmctld and slurmdbd, on both versions."""

import math
import time
from collections.abc import Callable

import pytest

from isthmus.domain.languages.slurmconf import Directive
from isthmus.errors import Terminal
from isthmus.model.slurm import JobRequest, NodeChange, Number, ReservationRequest
from isthmus.slurm.accounting import Accounting
from isthmus.slurm.allocation import EXTERNAL_JOB
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from isthmus.slurm.errors import AlreadyDone, NotFound, NotNow, Unsupported
from isthmus.slurm.submission import key_of
from isthmus.slurm.versions import Feature
from tests.bed.slurm import SlurmBed
from tests.flows.slurm.helpers import batch_job, eventually, job_in_state, new_key

API = {"26.05": 45, "24.11": 42}


async def test_the_newest_version_that_both_know_is_spoken(slurm: SlurmBed, client: Client) -> None:
    server = await client.server()
    assert server.api == API[slurm.version]
    assert server.release.startswith(slurm.version)
    assert server.cluster == "bed"


async def test_every_endpoint_answers_over_a_unix_socket(slurm: SlurmBed) -> None:
    async with connect([f"unix://{slurm.rest_socket}"], MintedTokens(slurm.jwt_key)) as client:
        assert [ping.answers for ping in await client.ping()] == [True]


async def test_ping_diagnosis_and_reconfigure(client: Client) -> None:
    (ping,) = await client.ping()
    assert ping.answers
    assert ping.hostname == "ctl"
    assert (await client.diagnose()).server_thread_count > 0
    await client.reconfigure()
    assert [ping.answers for ping in await client.ping()] == [True]


async def test_a_batch_job_runs_and_tells_its_story(client: Client) -> None:
    key, began = new_key(), int(time.time())
    submission = await client.submit(batch_job("exit 3", hold=None, comment="by night"), key=key)
    job = await job_in_state(client, submission.job_id, "FAILED")
    assert job.name
    assert job.user_name == "root"
    assert job.partition == "main"
    assert job.nodes in {"n1", "n2"}
    assert job.exit_code.return_code.value == 3
    assert job.time_limit.value == 5
    assert job.comment == f"by night isthmus-key={key}"
    assert key_of(job.comment) == key
    assert began <= (job.submit_time.value or 0) <= (job.end_time.value or 0) <= time.time() + 1


async def test_states_are_of_all_jobs_or_of_those_asked_for(client: Client) -> None:
    first = (await client.submit(batch_job(), key=new_key())).job_id
    second = (await client.submit(batch_job(), key=new_key())).job_id
    every = {state.job_id: state.state for state in await client.job_states()}
    assert every[str(first)] == every[str(second)] == ("PENDING",)
    assert [state.job_id for state in await client.job_states([second, 9_999_999])] == [str(second)]
    assert await client.job_states([]) == ()
    many = await client.job_states([*range(5_000_000, 5_000_450), first])
    assert [state.job_id for state in many] == [str(first)]


async def test_an_array_has_a_state_for_each_task(client: Client) -> None:
    job_id = (await client.submit(batch_job(array="1-3,7"), key=new_key())).job_id
    states = {state.job_id for state in await client.job_states([job_id])}
    assert states == {f"{job_id}_{task}" for task in (1, 2, 3, 7)}
    assert {job.array_job_id.value for job in await client.job(job_id)} == {job_id}


async def test_slurm_knows_every_field_that_we_send(slurm: SlurmBed, client: Client) -> None:
    tomorrow = int(time.time()) + 86_400
    request = batch_job(
        comment="x",
        admin_comment='{"pods": []}',
        partition="main",
        constraints="",
        nodes="1",
        minimum_nodes=1,
        maximum_nodes=1,
        tasks_per_node=1,
        excluded_nodes=("n2",),
        shared=("mcs",),
        mcs_label="blue",
        nice=3,
        user_id="0",
        group_id="0",
        time_limit=Number.of(5),
        dependency="",
        licenses="",
        wckey="",
        tres_per_job="",
        begin_time=Number.of(tomorrow),
        deadline=tomorrow + 86_400,
        requeue=False,
        extra="{}",
        standard_output="/dev/null",
        standard_error="/dev/null",
    )
    submission = await client.submit(request, key=new_key())
    assert not [warning for warning in submission.warnings if "nknown" in warning]
    (job,) = await client.job(submission.job_id)
    assert job.excluded_nodes == "n2"
    assert job.admin_comment == '{"pods": []}'
    assert job.mcs_label == "blue"
    assert (job.eligible_time.value, job.deadline.value) == (tomorrow, tomorrow + 86_400)
    # How a job shares its nodes is told by no field that every version has.
    assert "=MCS" in slurm.scontrol("show", "job", str(job.job_id))
    assert (job.tasks.value, job.cpus_per_task.value, job.memory_per_node.value) == (1, 1, 16)
    assert job.standard_output == "/dev/null"
    assert job.batch_flag
    assert job.hold
    assert job.shares == ()


async def test_a_time_limit_may_be_infinite(client: Client) -> None:
    job_id = (await client.submit(batch_job(time_limit=Number.of(math.inf)), key=new_key())).job_id
    assert (await client.job(job_id))[0].time_limit.value == math.inf


async def test_a_job_tells_what_it_has_of_each_node(client: Client) -> None:
    request = batch_job(hold=None, minimum_nodes=2, tasks=3, memory_per_node=Number.of(24))
    job = await job_in_state(client, (await client.submit(request, key=new_key())).job_id, "RUNNING")
    await client.cancel_job(job.job_id)
    assert {(share.name, share.memory) for share in job.shares} == {("n1", 24), ("n2", 24)}
    assert sum(share.cpus for share in job.shares) == 3
    assert not job.has_whole_nodes


async def test_a_job_may_have_whole_nodes(client: Client) -> None:
    request = batch_job(hold=None, shared=("none",))
    job = await job_in_state(client, (await client.submit(request, key=new_key())).job_id, "RUNNING")
    await client.cancel_job(job.job_id)
    assert job.has_whole_nodes
    assert [share.cpus for share in job.shares] == [4]


async def test_a_job_that_begins_later_can_be_let_go(client: Client) -> None:
    later = Number.of(int(time.time()) + 3600)
    job_id = (await client.submit(batch_job("exit 0", hold=None, begin_time=later), key=new_key())).job_id
    assert (await client.job(job_id))[0].eligible_time == later
    await client.update_job(job_id, JobRequest(begin_time=Number.of(1)))
    await job_in_state(client, job_id, "COMPLETED")


async def test_a_job_is_changed(client: Client) -> None:
    job_id = (await client.submit(batch_job(), key=new_key())).job_id
    await client.update_job(job_id, JobRequest(time_limit=Number.of(7), comment="changed"))
    (job,) = await client.job(job_id)
    assert (job.time_limit.value, job.comment) == (7, "changed")


async def test_a_job_is_cancelled_once(client: Client) -> None:
    job_id = (await client.submit(batch_job(), key=new_key())).job_id
    await client.cancel_job(job_id)
    await job_in_state(client, job_id, "CANCELLED")
    if (await client.server()).api < 42:
        await client.cancel_job(job_id)
        return
    with pytest.raises(AlreadyDone):
        await client.cancel_job(job_id)
    with pytest.raises(NotFound, match="Invalid job id"):
        await client.cancel_job(9_999_999)


async def test_a_signal_reaches_a_running_job(slurm: SlurmBed, client: Client) -> None:
    begun = slurm.path(f"/tmp/{new_key().replace('/', '-')}")  # noqa: S108 - in the bed
    request = batch_job(f"touch /tmp/{begun.name}; sleep 600", hold=None)
    job_id = (await client.submit(request, key=new_key())).job_id

    async def has_begun() -> bool:
        return begun.exists()

    await eventually(has_begun, bool)
    await client.cancel_job(job_id, signal="USR1")
    job = await job_in_state(client, job_id, "FAILED")
    assert job.exit_code.status == ("SIGNALED",)
    assert job.exit_code.signal.name == "USR1"


@pytest.mark.parametrize(("signal", "state"), [("USR1", "COMPLETED"), ("USR2", "FAILED")])
async def test_a_script_ends_with_the_exit_code_that_a_signal_stands_for(
    slurm: SlurmBed, client: Client, signal: str, state: str
) -> None:
    begun = slurm.path(f"/tmp/{new_key().replace('/', '-')}")  # noqa: S108 - in the bed
    # Not one long sleep: a shell heeds its traps when the command is over that it waits for, and a command that is
    # just being started when the signal comes does not end by it.
    script = f"trap 'exit 0' USR1\ntrap 'exit 1' USR2\ntouch /tmp/{begun.name}\nwhile :; do sleep 0.1; done"
    job_id = (await client.submit(batch_job(script, hold=None), key=new_key())).job_id

    async def has_begun() -> bool:
        return begun.exists()

    await eventually(has_begun, bool)
    await client.cancel_job(job_id, signal=signal, batch=True)
    job = await job_in_state(client, job_id, state)
    assert job.exit_code.return_code.value == (state == "FAILED")


async def test_a_signal_to_a_job_that_waits_has_to_wait(client: Client) -> None:
    job_id = (await client.submit(batch_job(), key=new_key())).job_id
    with pytest.raises(NotNow, match="try again later"):
        await client.cancel_job(job_id, signal="USR1")


async def test_external_jobs_where_slurm_has_them(
    slurm_version: str, shared_slurm: Callable[..., SlurmBed]
) -> None:
    options = {"external_nodes": 1} if slurm_version == "26.05" else {}
    bed = shared_slurm(slurm_version, nodes=1, **options)
    request = JobRequest(
        name="outside",
        flags=(EXTERNAL_JOB,),
        current_working_directory="/tmp",  # noqa: S108 - in the bed
        environment=("A=B",),
        excluded_nodes=("n1",),
    )
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as client:
        if not (await client.server()).has(Feature.EXTERNAL_JOBS):
            with pytest.raises(Unsupported, match=r"external jobs needs Slurm 25\.11"):
                await client.submit(request, key=new_key())
            return
        job_id = (await client.submit(request, key=new_key())).job_id
        job = await job_in_state(client, job_id, "RUNNING")
        assert job.nodes == "e1"
        assert EXTERNAL_JOB in job.flags
        await client.cancel_job(job_id)
        await job_in_state(client, job_id, "CANCELLED")


async def test_nodes_are_read_drained_and_resumed(client: Client) -> None:
    listing = await client.nodes()
    assert listing is not None
    assert [node.name for node in listing.nodes] == ["n1", "n2"]
    assert {node.cpus for node in listing.nodes} == {4}
    assert await client.nodes(newer_than=listing.last_update + 100) is None

    await client.update_node("n1", NodeChange(state=("DRAIN",), reason="to be looked at", comment="ours"))
    node = await client.node("n1")
    assert "DRAIN" in node.state
    assert (node.reason, node.comment, node.reason_set_by_user) == ("to be looked at", "ours", "root")
    await client.update_node("n1", NodeChange(state=("RESUME",)))
    assert "DRAIN" not in (await client.node("n1")).state

    with pytest.raises(NotFound):
        await client.node("nowhere")
    with pytest.raises(NotFound, match="Invalid node name"):
        await client.update_node("nowhere", NodeChange(state=("RESUME",)))
    with pytest.raises(NotFound, match="Invalid node name"):
        await client.delete_node("nowhere")


async def test_nodes_are_made_and_deleted_where_slurm_can(client: Client) -> None:
    line = Directive.of(
        {"NodeName": "x1", "NodeAddr": "127.0.0.9", "CPUs": 2, "RealMemory": 512, "State": "External"}
    )
    if not (await client.server()).has(Feature.NEW_NODES):
        with pytest.raises(Unsupported, match=r"making nodes needs Slurm 25\.11"):
            await client.create_node(line)
        return
    await client.create_node(line)
    try:
        node = await client.node("x1")
        assert (node.cpus, node.real_memory, node.address) == (2, 512, "127.0.0.9")
        assert "EXTERNAL" in node.state
    finally:
        await client.delete_node("x1")
    with pytest.raises(NotFound):
        await client.node("x1")


async def test_partitions(client: Client) -> None:
    (partition,) = await client.partitions()
    assert partition.name == "main"
    assert partition.nodes.total >= 2
    assert partition.nodes.configured.startswith("n[1-2]")
    assert partition.partition.state == ("UP",)


async def test_reservations_are_made_changed_and_deleted_where_slurm_can(client: Client) -> None:
    start = int(time.time()) + 86_400
    request = ReservationRequest(
        name="maintenance",
        node_list=("n2",),
        users=("root",),
        flags=("MAINT", "IGNORE_JOBS"),
        start_time=Number.of(start),
        duration=Number.of(60),
    )
    if not (await client.server()).has(Feature.RESERVATIONS):
        assert await client.reservations() == ()
        with pytest.raises(Unsupported, match=r"needs Slurm 25\.05"):
            await client.save_reservation(request)
        with pytest.raises(Unsupported, match=r"needs Slurm 25\.05"):
            await client.delete_reservation("maintenance")
        return
    await client.save_reservation(request)
    (made,) = await client.reservations()
    assert (made.name, made.node_list, made.users) == ("maintenance", "n2", "root")
    assert made.start_time.value == start
    assert made.end_time.value == start + 3600
    assert "MAINT" in made.flags
    await client.save_reservation(ReservationRequest(name="maintenance", duration=Number.of(90)))
    (changed,) = await client.reservations()
    assert changed.end_time.value == start + 5400
    await client.delete_reservation("maintenance")
    assert await client.reservations() == ()
    with pytest.raises(NotFound, match="reservation"):
        await client.delete_reservation("maintenance")


async def test_the_accounts(client: Client) -> None:
    accounting = Accounting(client.calls)
    assert ("root", "bed") in [(it.account, it.cluster) for it in await accounting.associations()]
    assert [cluster.name for cluster in await accounting.clusters()] == ["bed"]


async def test_the_accounts_remember_jobs(client: Client) -> None:
    accounting = Accounting(client.calls)
    request = batch_job("exit 4", hold=None)
    job_id = (await client.submit(request, key=new_key())).job_id
    (past,) = await eventually(
        lambda: accounting.job(job_id), lambda jobs: bool(jobs) and jobs[0].state.current == ("FAILED",)
    )
    assert (past.name, past.user, past.cluster) == (request.name, "root", "bed")
    assert past.exit_code.return_code.value == 4
    assert past.time.end >= past.time.start >= past.time.submission > 0
    assert request.name
    named = await accounting.jobs(since=past.time.submission - 60, names=[request.name])
    assert [job.job_id for job in named] == [job_id]


async def test_a_signal_that_slurm_does_not_know_is_not_sent(client: Client) -> None:
    with pytest.raises(Terminal, match="does not support this signal"):
        await client.cancel_job(1, signal="WINCH")

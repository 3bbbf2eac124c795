"""What real refusals of both versions become."""

from collections.abc import Callable

import pytest

from isthmus.domain.languages.slurmconf import Directive
from isthmus.errors import Terminal
from isthmus.model.slurm import JobRequest, NodeChange, Number, ReservationRequest
from isthmus.slurm.accounting import Accounting
from isthmus.slurm.auth import FileToken, MintedTokens
from isthmus.slurm.client import Client, connect
from isthmus.slurm.errors import (
    AlreadyDone,
    AlreadyExists,
    DatabaseAway,
    Denied,
    NotFound,
    Refused,
    Unauthorized,
    Unreachable,
)
from isthmus.slurm.versions import Feature
from tests.bed.slurm import SlurmBed
from tests.flows.slurm.helpers import batch_job, new_key


async def test_an_unknown_partition_is_not_found(client: Client) -> None:
    with pytest.raises(NotFound, match="Invalid partition name specified"):
        await client.submit(batch_job(partition="nowhere"), key=new_key())


async def test_what_slurm_cannot_read_is_refused(client: Client) -> None:
    with pytest.raises(Refused, match="flag"):
        await client.submit(batch_job(flags=("NO_SUCH_FLAG",)), key=new_key())


async def test_a_job_without_a_script_is_refused(client: Client) -> None:
    with pytest.raises(Refused, match="script"):
        await client.submit(JobRequest(name="empty", environment=("A=B",)), key=new_key())


async def test_a_finished_job_cannot_be_changed(client: Client) -> None:
    job_id = (await client.submit(batch_job(), key=new_key())).job_id
    await client.cancel_job(job_id)
    with pytest.raises(AlreadyDone, match="already finished"):
        await client.update_job(job_id, JobRequest(comment="late"))


async def test_an_unknown_job_is_not_found(client: Client) -> None:
    with pytest.raises(NotFound, match="Invalid job id specified"):
        await client.job(9_999_999)
    with pytest.raises(NotFound, match="Invalid job id specified"):
        await client.update_job(9_999_999, JobRequest(comment="nobody"))


async def test_users_may_not_do_what_administrators_may(slurm: SlurmBed) -> None:
    async with connect([slurm.rest_url], MintedTokens(slurm.jwt_key, user="alice")) as client:
        with pytest.raises(Denied, match="an operator or administrator"):
            await client.update_node("n1", NodeChange(state=("DRAIN",), reason="mine"))
        with pytest.raises(Denied):
            await client.submit(batch_job(admin_comment="I am root"), key=new_key())


async def test_a_token_of_another_cluster_is_unauthorized(slurm: SlurmBed) -> None:
    key = slurm.path("/tmp/another.key")  # noqa: S108 - in the bed
    key.write_bytes(b"this is not the key of the cluster, but as long")
    async with connect([slurm.rest_url], MintedTokens(key)) as client:
        with pytest.raises(Unauthorized) as caught:
            await client.job_states()
        assert "jwt.key" in str(caught.value)


async def test_an_expired_token_is_unauthorized_and_not_shown(slurm: SlurmBed) -> None:
    path = slurm.path("/tmp/expired")  # noqa: S108 - in the bed
    token = slurm.token(lifetime=-10)
    path.write_text(token)
    async with connect([slurm.rest_url], FileToken(path)) as client:
        with pytest.raises(Unauthorized) as caught:
            await client.job_states()
        assert token not in str(caught.value)


async def test_a_name_that_is_taken_already_exists(client: Client) -> None:
    if not (await client.server()).has(Feature.NEW_NODES):
        return
    line = Directive.of({"NodeName": "twice", "NodeAddr": "127.0.0.9", "CPUs": 1, "State": "External"})
    await client.create_node(line)
    try:
        with pytest.raises(AlreadyExists, match="already exists"):
            await client.create_node(line)
    finally:
        await client.delete_node("twice")


async def test_a_node_too_many_is_refused_with_the_setting_that_would_help(
    slurm_bed: Callable[..., SlurmBed],
) -> None:
    bed = slurm_bed("26.05", nodes=1, accounting=False, settings={"MaxNodeCount": "2"})
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as client:
        await client.create_node(Directive.of({"NodeName": "e1", "CPUs": 1, "State": "External"}))
        with pytest.raises(Refused) as caught:
            await client.create_node(Directive.of({"NodeName": "e2", "CPUs": 1, "State": "External"}))
        assert "MaxNodeCount" in caught.value.remedy


@pytest.mark.parametrize("name", ["", "n[1-2]", "n1,n2", "n1 n2"])
async def test_a_name_is_one_name(client: Client, name: str) -> None:
    with pytest.raises(Terminal):
        await client.update_node(name, NodeChange(state=("DRAIN",), reason="too many"))
    found = await client.nodes()
    assert found
    assert found.nodes
    assert not [node for node in found.nodes if "DRAIN" in node.state]


async def test_names_do_not_break_out_of_the_path(client: Client) -> None:
    with pytest.raises(NotFound):
        await client.update_node("../node/n1", NodeChange(state=("DRAIN",), reason="climbing"))
    with pytest.raises(NotFound):
        await client.node("n1?x=/../n1")
    assert "DRAIN" not in (await client.node("n1")).state


async def test_without_slurmdbd_the_accounts_are_away(
    slurm_version: str, slurm_bed: Callable[..., SlurmBed]
) -> None:
    bed = slurm_bed(slurm_version, nodes=1)
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as client:
        await client.server()
        bed.kill("slurmdbd")
        with pytest.raises(DatabaseAway, match="check that slurmdbd runs"):
            await Accounting(client.calls).clusters()
        assert (await client.ping())[0].answers


async def test_without_slurmrestd_nothing_is_reachable(slurm_bed: Callable[..., SlurmBed]) -> None:
    bed = slurm_bed("26.05", nodes=1, accounting=False)
    async with connect([bed.rest_url, f"unix://{bed.rest_socket}"], MintedTokens(bed.jwt_key)) as client:
        await client.server()
        bed.kill("slurmrestd")
        with pytest.raises(Unreachable, match="check that slurmrestd runs"):
            await client.job_states()
        with pytest.raises(Unreachable) as caught:
            await client.save_reservation(ReservationRequest(name="x", duration=Number.of(1)))
        assert bed.address in str(caught.value)
        assert "slurmrestd.sock" in str(caught.value)

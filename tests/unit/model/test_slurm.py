"""One set of types for every API version; newer ones are read from the real Slurm in the flows."""

import msgspec
import pytest

from isthmus.model.slurm import Job, NodeShare

V40 = b"""{"job_id": 7, "job_resources": {"nodes": "n[1-2]", "allocated_cores": 3, "allocated_nodes": [
    {"nodename": "n1", "memory_allocated": 32, "cpus_used": 0,
     "sockets": {"0": {"cores": {"0": "allocated", "1": "allocated"}}, "1": {"cores": {"0": "allocated"}}}},
    {"nodename": "n2", "memory_allocated": 16, "sockets": {}}]}}"""

V41 = b"""{"job_id": 7, "job_resources": {"nodes": {"list": "n[1-2]", "whole": true, "allocation": [
    {"index": 0, "name": "n1", "cpus": {"count": 3, "used": 0}, "memory": {"used": 0, "allocated": 32}},
    {"index": 1, "name": "n2", "memory": {"used": 0, "allocated": 16}}]}}}"""


@pytest.mark.parametrize("text", [V40, V41])
def test_shares_of_nodes_read_the_same_in_every_version(text: bytes) -> None:
    job = msgspec.json.decode(text, type=Job)
    assert job.shares == (NodeShare("n1", cpus=3, memory=32), NodeShare("n2", cpus=0, memory=16))


def test_only_newer_versions_tell_whether_nodes_are_whole() -> None:
    assert msgspec.json.decode(V41, type=Job).has_whole_nodes
    assert not msgspec.json.decode(V40, type=Job).has_whole_nodes


@pytest.mark.parametrize("resources", [b"null", b"{}", b'{"nodes": null}', b'{"nodes": ""}', b'{"nodes": {}}'])
def test_a_job_that_waits_has_no_shares(resources: bytes) -> None:
    job = msgspec.json.decode(b'{"job_id": 7, "job_resources": ' + resources + b"}", type=Job)
    assert job.shares == ()
    assert not job.has_whole_nodes

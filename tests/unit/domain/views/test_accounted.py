"""A job from the accounts reads like one from slurmctld."""

import msgspec

from isthmus.domain.views import jobwhy, rows
from isthmus.domain.views.accounted import job_of
from isthmus.model.slurmdb import PastJob

RECORD = {
    "job_id": 12,
    "name": "train",
    "user": "ann",
    "account": "physics",
    "partition": "gpu,main",
    "nodes": "n[1-2]",
    "state": {"current": ["FAILED"], "reason": "None"},
    "time": {"submission": 100, "eligible": 110, "start": 160, "end": 460, "elapsed": 300},
    "tres": {
        "requested": [{"type": "cpu", "count": 8}, {"type": "mem", "count": 1024}],
        "allocated": [{"type": "cpu", "count": 8}, {"type": "gres", "name": "gpu", "count": 2}],
    },
    "exit_code": {"return_code": {"set": True, "number": 3}},
}


def test_it_has_the_same_row_and_the_same_gates() -> None:
    job = job_of(msgspec.convert(RECORD, PastJob))
    row = dict(zip(rows.JOB_COLUMNS, rows.job_row(job, now=1000.0), strict=True))
    assert {name: row[name] for name in ("label", "user", "partition", "phase", "cpus", "gpus", "hosts")} == {
        "label": "12",
        "user": "ann",
        "partition": "gpu",
        "phase": "failed",
        "cpus": 8,
        "gpus": 2,
        "hosts": "n[1-2]",
    }
    assert (row["submit"], row["start"], row["end"]) == (100, 160, 460)
    assert jobwhy.gates(job, (), now=1000.0)[-1].text == "it failed with exit code 3"


def test_one_that_never_had_nodes_did_not_start() -> None:
    record = {**RECORD, "tres": {}, "state": {"current": ["CANCELLED"]}}
    job = job_of(msgspec.convert(record, PastJob))
    assert (job.nodes, job.start_time.value) == ("", None)
    assert "before it had nodes" in jobwhy.gates(job, (), now=1000.0)[-1].text

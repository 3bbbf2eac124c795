"""Jobs are read from SWF and from what sacct prints."""

import pytest

from isthmus.domain.elastic.traces import Job, Trace, TraceError, read, write_swf

SWF = """\
; UnixStartTime: 1000000
; MaxNodes: 4
; MaxProcs: 32
1 0 5 60 8 -1 -1 8 120 -1 1 3 1 -1 1 -1 -1 -1
2 10 0 30 9 -1 -1 -1 -1 -1 1 3 1 -1 1 -1 -1 -1
3 20 -1 -1 -1 -1 -1 8 120 -1 5 3 1 -1 1 -1 -1 -1
4 5 0 100 -1 -1 -1 24 50 -1 0
rubbish
"""

SACCT = """\
JobID|Submit|Eligible|NNodes|ElapsedRaw|Timelimit|Priority|State
7|2026-01-05T08:00:00|2026-01-05T09:00:00|2|90|01:00:00|100|COMPLETED
7.batch|2026-01-05T08:00:00|2026-01-05T09:00:00|1|90|||COMPLETED
8_3|2026-01-05T08:00:10|Unknown|1|60|Partition_Limit|5|FAILED
9|2026-01-05T08:00:20|2026-01-05T08:00:20|1|0|1-00:00:00|5|CANCELLED by 1000
10|2026-01-05T08:00:30|2026-01-05T08:00:30|1|120|UNLIMITED|5|COMPLETED
"""


def test_swf_gives_jobs_in_order_with_whole_nodes() -> None:
    found = read(SWF)
    assert found.jobs == (
        Job("1", 1000000, 1, 60, 120),
        Job("4", 1000005, 3, 100, 100),
        Job("2", 1000010, 2, 30, 30),
    )
    assert (found.skipped, found.nodes, found.largest) == (2, 4, 3)


def test_processors_of_a_node_can_be_given() -> None:
    assert [it.nodes for it in read(SWF, cpus_per_node=4).jobs] == [2, 6, 3]


def test_sacct_gives_jobs_without_steps_and_those_that_never_ran() -> None:
    found = read(SACCT)
    nine = 1767603600.0
    assert found.jobs == (
        Job("8_3", nine - 3590, 1, 60, 60, 5),
        Job("10", nine - 3570, 1, 120, 365 * 86400, 5),
        Job("7", nine, 2, 90, 3600, 100),
    )
    assert found.skipped == 1


def test_columns_may_come_in_any_order_and_times_as_numbers() -> None:
    found = read("NNodes|Elapsed|JobID|TimelimitRaw|Submit\n3|00:02:00|1|10|1700000000\n")
    assert found.jobs == (Job("1", 1700000000, 3, 120, 600),)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(TraceError, match="no column NNodes, ElapsedRaw"):
        read("JobID|Submit\n1|2026-01-05T08:00:00\n")


@pytest.mark.parametrize("text", ["", "; only a comment\n", "JobID|Submit|NNodes|ElapsedRaw\n", "\x00\xff 1 2 3"])
def test_a_file_without_jobs_is_an_error_with_a_remedy(text: str) -> None:
    with pytest.raises(TraceError, match="Standard Workload Format"):
        read(text)


def test_what_is_written_is_read_again() -> None:
    jobs = (Job("1", 5000, 2, 60, 100), Job("2", 5060, 1, 10, 20))
    again = read(write_swf(Trace(jobs, nodes=8)))
    assert (again.jobs, again.nodes) == (jobs, 8)

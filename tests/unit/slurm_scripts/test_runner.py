"""What follows from the outcome of a check, and which checks run."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.slurm_scripts.node import Node

FAILS = {"command": "echo 93 % in use >&3; exit 1"}
PASSES = {"command": "true"}


def drain(reason: str) -> str:
    return f"update NodeName=n1 State=DRAIN Reason={reason}"


# --- reactions ----------------------------------------------------------------------------------------------------


def test_a_failed_check_in_a_prolog_drains_and_stops_the_job(node: Node) -> None:
    node.checks(FAILS)
    done = node.prolog()
    assert done.returncode == 1
    reason = "[node_problem] bad: 93 % in use [prolog]"
    assert node.calls == [drain(reason), f"notify 7 n1 failed a check before the job: {reason}"]
    assert reason in done.stdout, "Slurm logs what a failed prolog prints"


def test_a_failed_check_in_an_epilog_drains(node: Node) -> None:
    node.checks(FAILS)
    assert node.epilog().returncode == 0
    assert node.calls == [drain("[node_problem] bad: 93 % in use [epilog]")]


def test_a_prolog_without_findings_asks_slurmctld_nothing(node: Node) -> None:
    node.checks(PASSES)
    assert node.prolog().returncode == 0
    assert (node.calls, node.asked) == ([], 0)


def test_a_reason_has_no_details_unless_asked_for(node: Node) -> None:
    node.checks({**FAILS, "reason_base": "[user_problem] disk", "reason_append_details": False})
    node.health_check()
    assert node.calls == [drain("[user_problem] disk [hc_program]")]


def test_details_become_one_short_line(node: Node) -> None:
    node.checks({"command": r"printf 'one\n\ttwo\033[1m %1000d' 3 >&3; exit 1"})
    node.health_check()
    (call,) = node.calls
    assert call.startswith(drain("[node_problem] bad: one two [1m 3 [hc_program]"))
    node.checks({"command": "yes x | head -c 5000 >&3; exit 1"})
    node.health_check()
    assert len(node.calls[-1]) < 300


@pytest.mark.parametrize(
    "reason",
    [
        "bad disk, Anna",
        "[node_problem] bad2: x [hc_program]",
        "[node_problem] bad disk",
        "[node_problem] bad: job 7 [slurm_job]",
        "Not responding",
    ],
)
def test_a_drain_of_others_stays_as_it_is(node: Node, reason: str) -> None:
    node.is_said_to_be("IDLE", "DRAIN", reason=reason)
    node.checks(FAILS)
    node.health_check()
    assert node.prolog().returncode == 1, "no job starts on a bad node, whoever drained it"
    node.checks(PASSES)
    node.health_check()
    assert [it for it in node.calls if not it.startswith("notify")] == []


def test_a_node_that_somebody_set_down_keeps_its_reason(node: Node) -> None:
    node.is_said_to_be("DOWN", reason="power supply")
    node.checks(FAILS)
    node.health_check()
    assert node.calls == []


def test_a_drain_of_ours_is_lifted_when_the_check_passes_in_hc_program(node: Node) -> None:
    node.is_said_to_be("IDLE", "DRAIN", reason="[node_problem] bad: 93 % in use [prolog]")
    node.checks(PASSES)
    node.prolog()
    node.epilog()
    assert node.calls == []
    node.health_check()
    assert node.calls == ["update NodeName=n1 State=UNDRAIN"]


def test_a_prolog_lifts_nothing_while_it_comments(node: Node) -> None:
    node.is_said_to_be("IDLE", "DRAIN", reason="[node_problem] bad: 93 % in use [hc_program]")
    node.checks(PASSES, {**FAILS, "name": "other", "on_fail": "comment"})
    node.prolog()
    assert node.calls == ["update NodeName=n1 Comment=[node_problem] other: 93 % in use [prolog]"]


def test_a_drain_is_not_lifted_without_being_asked_for(node: Node) -> None:
    node.is_said_to_be("IDLE", "DRAIN", reason="[node_problem] bad [prolog]")
    node.checks({**PASSES, "on_ok": "none"})
    node.health_check()
    assert node.calls == []


def test_a_check_that_could_not_run_lifts_nothing(node: Node) -> None:
    node.is_said_to_be("IDLE", "DRAIN", reason="[node_problem] bad [prolog]")
    node.checks({"command": "exit 2"})
    node.health_check()
    assert node.calls == []


def test_a_node_goes_from_one_finding_to_the_next_without_being_open(node: Node) -> None:
    node.is_said_to_be("IDLE", "DRAIN", reason="[node_problem] first [hc_program]")
    node.checks({**PASSES, "name": "first"}, {**FAILS, "name": "second"})
    node.health_check()
    assert node.calls == [drain("[node_problem] second: 93 % in use [hc_program]")]


def test_comments_come_and_go_and_leave_those_of_others_alone(node: Node) -> None:
    comments = {"on_fail": "comment", "on_ok": "uncomment"}
    node.checks({**FAILS, **comments})
    assert node.prolog().returncode == 0, "a comment stops no job"
    ours = "[node_problem] bad: 93 % in use [prolog]"
    assert node.calls == [f"update NodeName=n1 Comment={ours}"]
    node.is_said_to_be("IDLE", comment="lent to physics")
    node.health_check()
    node.checks({**PASSES, **comments})
    node.health_check()
    assert len(node.calls) == 1
    node.is_said_to_be("IDLE", comment=ours)
    node.health_check()
    assert node.calls[1:] == ["update NodeName=n1 Comment="]


def test_a_finding_without_reaction_is_only_logged(node: Node) -> None:
    node.checks({**FAILS, "on_fail": "none"})
    assert node.prolog().returncode == 0
    assert (node.calls, node.asked) == ([], 0)
    assert "bad: failed: 93 % in use" in node.log


def test_without_slurmctld_nothing_changes_but_no_job_starts_on_a_bad_node(node: Node) -> None:
    node.slurmctld_is_away()
    node.checks(FAILS)
    node.health_check()
    assert node.calls == []
    assert node.prolog().returncode == 1
    assert "slurmctld does not say how this node is" in node.log


# --- checks that are broken ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo trouble; exit 2", "it ended with 2: trouble"),
        ("exit 255", "it ended with 255"),
        ("no-such-program", "it ended with 127"),
        ("/etc/passwd", "it ended with 126"),
        ("kill -9 $$", "signal 9 ended it"),
        ("python3 -c 'import nothing_like_this'", "it broke off: ModuleNotFoundError"),
        ("(", "it ended with 2"),
    ],
)
def test_a_broken_check_drains_nothing(node: Node, command: str, told: str) -> None:
    node.checks({"command": command}, {**PASSES, "name": "good"})
    assert node.prolog().returncode == 0
    node.health_check()
    assert node.calls == []
    assert f"bad: error: {told}" in node.log


def test_a_hanging_check_is_killed_with_all_that_it_started(node: Node) -> None:
    pids = node.directory / "pids"
    node.checks({"command": f"sleep 600 & echo $! > {pids}; sleep 600", "timeout": 0.5})
    began = time.monotonic()
    assert node.prolog().returncode == 0
    assert time.monotonic() - began < 60
    assert node.calls == []
    assert "bad: error: it was killed, as it did not end within 0.5 s" in node.log
    assert not is_alive(int(pids.read_text()))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_a_check_leaves_in_the_background_holds_up_nobody(node: Node) -> None:
    pids = node.directory / "pids"
    # In a session of its own, where no signal reaches it, with the pipes of the check.
    node.checks({"command": f"setsid sh -c 'echo $$ > {pids}; exec sleep 600' & while [ ! -s {pids} ]; do :; done"})
    began = time.monotonic()
    assert node.prolog().returncode == 0
    assert time.monotonic() - began < 60
    os.kill(int(pids.read_text()), 9)


def test_a_noisy_check_fills_nothing(node: Node) -> None:
    noise = "head -c 20000000 /dev/zero | tr '\\0' x"
    node.checks({"command": f"{noise}; {noise} >&2; {noise} >&3", "log": "$worker.$name.$context.out"})
    node.health_check()
    assert node.calls == []
    assert (node.directory / "log" / "n1.bad.hc_program.out").stat().st_size < 100_000


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"name": "bad"}]', "[1]", '"x"'])
def test_an_unreadable_list_of_checks_drains_nothing(node: Node, text: str) -> None:
    (node.scripts / "checks.json").write_text(text)
    assert node.prolog().returncode == 0
    assert node.calls == []
    assert "checks.json" in node.log
    assert node.check("bad").returncode == 2


def test_a_missing_list_of_checks_drains_nothing(node: Node) -> None:
    (node.scripts / "checks.json").unlink()
    assert node.prolog().returncode == 0
    assert "checks.json" in node.log


@pytest.mark.parametrize("text", ["this is no Python", "raise SystemExit(1)", "1 / 0"])
def test_a_damaged_runner_stops_no_job(node: Node, text: str) -> None:
    (node.scripts / "check_runner.py").write_text(text)
    assert node.prolog().returncode == 0
    assert node.epilog().returncode == 0
    node.health_check()


def test_a_node_without_python_runs_jobs(node: Node) -> None:
    node.checks(FAILS)
    (node.programs / "python3").unlink()
    done = node.run("/bin/sh", str(node.scripts / "prolog.sh"), PATH=str(node.programs))
    assert done.returncode == 0
    assert "nothing is checked" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": "a/b"}, "the name 'a/b' has other characters"),
        ({"contexts": ["sometimes"]}, "contexts cannot be 'sometimes'"),
        ({"on_fail": "reboot"}, "on_fail cannot be 'reboot'; use comment, drain, none"),
        ({"platforms": ["8 GPUs"]}, "platforms cannot have '8 GPUs'"),
        ({"timeout": -1}, "timeout is not a number of seconds"),
        ({"run_in_jail": "yes"}, "run_in_jail is not true or false"),
        ({"command": ["true"]}, "command is not a text"),
        ({"need_env": 3}, "need_env is not a list of words"),
    ],
)
def test_a_wrong_entry_is_named_and_the_others_count(node: Node, wrong: dict[str, Any], told: str) -> None:
    node.checks({**FAILS, **wrong}, {**FAILS, "name": "good", "field_of_tomorrow": 1})
    node.health_check()
    assert node.calls == [drain("[node_problem] good: 93 % in use [hc_program]")]
    assert f"entry 0: {told}" in node.log


# --- which checks run ---------------------------------------------------------------------------------------------


def ran(node: Node, entry: dict[str, Any], *, context: str = "prolog", **environ: str) -> bool:
    """Whether a check runs there."""
    mark = node.directory / "ran"
    mark.unlink(missing_ok=True)
    node.checks({"on_ok": "none", "command": f"touch {mark}", **entry})
    {"prolog": node.prolog, "epilog": node.epilog, "hc_program": node.health_check}[context](**environ)
    return mark.exists()


@pytest.mark.parametrize(
    ("contexts", "where"),
    [
        (["any"], {"prolog", "epilog", "hc_program"}),
        (["none"], set()),
        (["prolog", "epilog"], {"prolog", "epilog"}),
        ("hc_program", {"hc_program"}),
    ],
)
def test_checks_run_in_their_contexts(node: Node, contexts: Any, where: set[str]) -> None:
    found = {it for it in ("prolog", "epilog", "hc_program") if ran(node, {"contexts": contexts}, context=it)}
    assert found == where


@pytest.mark.parametrize(
    ("gres", "platform", "runs"),
    [
        ("", "any", True),
        ("", "CPU", True),
        ("", "GPU", False),
        ("gpu:8", "CPU", False),
        ("gpu:8", "8xGPU", True),
        ("gpu:8", "4xGPU", False),
        ("gpu:h100:8(S:0-1),nic:2", "8xH100", True),
        ("gpu:nvidia_h100_80gb_hbm3:8(S:0,1)", "8xH100", True),
        ("gpu:h100:8", "8xH200", False),
        ("gpu:a100:4,gpu:a100:4", "8xA100", True),
        ("gpu:8", "8xL40S", True),  # as nvidia-smi says
    ],
)
def test_checks_run_on_their_platforms(node: Node, gres: str, platform: str, *, runs: bool) -> None:
    node.program("nvidia-smi", "#!/bin/sh\necho NVIDIA L40S\n")
    node.is_said_to_be("IDLE", gres=gres)
    assert ran(node, {"platforms": [platform]}, context="hc_program") == runs


def test_a_check_for_a_platform_waits_for_slurmctld(node: Node) -> None:
    node.slurmctld_is_away()
    assert not ran(node, {"platforms": ["CPU"]}, context="hc_program")


def test_checks_of_gpus_leave_other_jobs_alone(node: Node) -> None:
    node.is_said_to_be("IDLE", gres="gpu:4")
    cpu = {"skip_for_cpu_jobs": True}
    assert not ran(node, cpu)
    assert node.asked == 0
    assert ran(node, cpu, SLURM_JOB_GPUS="0")
    assert ran(node, cpu, context="hc_program")
    partial = {"skip_for_partial_gpu_jobs": True}
    assert not ran(node, partial, SLURM_JOB_GPUS="0,1,2")
    assert ran(node, partial, SLURM_JOB_GPUS="0,1,2,3")


def test_a_check_for_drained_nodes_runs_on_them_alone(node: Node) -> None:
    entry = {"node_states": ["drain"]}
    assert not ran(node, entry, context="hc_program")
    node.is_said_to_be("IDLE", "DRAIN", reason="x")
    assert ran(node, entry, context="hc_program")


def test_a_check_can_need_settings(node: Node) -> None:
    entry = {"need_env": ["SITE_DISK"]}
    assert not ran(node, entry)
    assert ran(node, entry, SITE_DISK="/data")
    assert ran(node, {"need_env": ["CHECKS_NODE_STATE"]}, context="hc_program")


@pytest.mark.parametrize(
    ("comment", "runs"), [("skip_checks", False), ("a, skip_checks", False), ("no_skip_checks", True), ("", True)]
)
def test_the_comment_of_a_job_disables_all_checks(node: Node, comment: str, *, runs: bool) -> None:
    assert ran(node, {}, SLURM_JOB_COMMENT=comment) == runs


def test_a_check_sees_where_it_is(node: Node) -> None:
    node.is_said_to_be("IDLE", "DRAIN", gres="gpu:2", reason="x")
    out = node.directory / "out"
    node.checks(
        {"command": f"echo $CHECKS_CONTEXT $CHECKS_NAME $CHECKS_NODE $CHECKS_NODE_STATE $CHECKS_GPUS > {out}"}
    )
    node.health_check()
    assert out.read_text() == "hc_program bad n1 DRAIN,IDLE 2\n"


def test_slurmctld_is_asked_once_in_a_run(node: Node) -> None:
    node.checks(*({**PASSES, "name": f"c{n}", "platforms": ["CPU"]} for n in range(5)))
    node.health_check()
    assert node.asked == 1


def test_after_a_finding_in_a_prolog_no_more_is_checked(node: Node) -> None:
    mark = node.directory / "ran"
    node.checks(FAILS, {"name": "late", "command": f"touch {mark}"})
    node.prolog()
    assert not mark.exists()
    node.health_check()
    assert mark.exists()


def test_after_a_finding_in_an_epilog_what_cleans_up_has_its_turn(node: Node) -> None:
    mark = node.directory / "ran"
    node.checks(FAILS, {"name": "late", "command": f"touch {mark}"})
    node.epilog()
    assert mark.exists()


# --- one check ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("echo fine", 0, "fine\nbad: passed\n"),
        ("echo details >&3; exit 1", 1, "bad: failed: details\n"),
        ("exit 3", 2, "bad: error: it ended with 3\n"),
        ("sleep 60", 2, "bad: error: it was killed, as it did not end within 0.2 s\n"),
    ],
)
def test_one_check_runs_without_reactions(node: Node, command: str, code: int, told: str) -> None:
    node.checks({"command": command, "timeout": 0.2 if "sleep" in command else 30, "contexts": ["none"]})
    done = node.check("bad")
    assert (done.returncode, done.stdout) == (code, told)
    assert node.calls == []


def test_one_check_can_be_shown_another_context(node: Node) -> None:
    node.checks({"command": "echo $CHECKS_CONTEXT", "contexts": ["prolog"]})
    assert node.check("bad").stdout == "check\nbad: passed\n"
    words = (str(node.scripts / "check_runner.py"), "--check", "bad", "--context", "hc_program")
    assert node.run(*words).stdout == "hc_program\nbad: passed\n"


def test_an_unknown_check_has_not_passed(node: Node) -> None:
    done = node.check("nonesuch")
    assert (done.returncode, done.stdout) == (2, "nonesuch: error: not run: there is no such check\n")


def test_a_check_that_is_not_for_this_node_has_not_passed(node: Node) -> None:
    node.checks({**PASSES, "platforms": ["8xH100"]})
    assert node.check("bad").returncode == 2


# --- the shared root ----------------------------------------------------------------------------------------------


def test_a_check_inside_the_shared_root_enters_as_jobs_do(node: Node) -> None:
    (node.directory / "plugstack.conf").write_text("required isthmus_jail.so bind=/run/slurm root=/mnt/jail\n")
    node.program("isthmus-enter", f'#!/bin/sh\necho "$1 $2 $3" > {node.directory}/entered\nshift 3\nexec "$@"\n')
    mark = node.directory / "jail"
    node.checks(
        {"name": "inside", "command": "echo in >&3; exit 1", "run_in_jail": True},
        {"name": "outside", "command": f"echo $CHECKS_JAIL > {mark}"},
    )
    node.prolog(SLURM_CONF=str(node.directory / "slurm.conf"))
    assert (node.directory / "entered").read_text() == "root=/mnt/jail bind=/run/slurm --\n"
    assert mark.read_text() == "/mnt/jail\n", "those of the node itself come first"
    assert node.calls[0] == drain("[node_problem] inside: in [prolog]")


def test_without_a_shared_root_nothing_runs_inside(node: Node) -> None:
    assert not ran(node, {"run_in_jail": True})


def test_logs_are_bounded(node: Node) -> None:
    log = node.directory / "log" / "of" / "bad.out"
    node.checks({"command": "echo a line", "log": "of/$name.out"})
    node.prolog()
    assert log.read_text().endswith("passed \na line\n")
    log.write_bytes(b"x" * 2_000_000)
    node.prolog()
    assert log.stat().st_size < 1000
    assert log.with_name("bad.out.1").stat().st_size == 2_000_000


def test_the_shipped_list_is_sound(node: Node) -> None:
    entries = json.loads((node.scripts / "checks.json").read_text())
    for entry in entries:
        (program,) = [it for it in entry["command"].split() if it.startswith("checks/")]
        assert (node.scripts / program).exists()
        assert entry["reason_base"].endswith(f" {entry['name']}")
    node.prolog()
    node.health_check()
    assert "checks.json" not in node.log

import os
from pathlib import Path

import pytest

from isthmus.errors import Terminal
from isthmus.local import shell


def test_what_a_program_prints_is_returned() -> None:
    assert shell.run(["cat"], stdin="words\n") == "words\n"
    assert shell.run(["sh", "-c", "cat; echo $WORD"], env={"WORD": "env"}) == "env\n"


def test_a_failure_shows_the_end_of_both_outputs_and_the_remedy() -> None:
    script = "for n in $(seq 20); do echo line $n; done; echo trouble >&2; exit 3"
    with pytest.raises(Terminal) as caught:
        shell.run(["sh", "-c", script, "secret-word"], remedy="try again")
    said = str(caught.value)
    assert "ended with 3:\n" in said
    assert "    line 20\n    trouble\n  → try again" in said
    assert "line 8\n" not in said
    assert "secret-word" not in said


def test_a_failure_inside_a_machine_names_the_program_there() -> None:
    with pytest.raises(Terminal, match=r"^grep needle … ended with 1:"):
        shell.run(["nsenter", f"--target={os.getpid()}", "--uts", "--", "grep", "needle"], stdin="hay")


def test_a_program_that_is_not_there_is_named_with_the_remedy() -> None:
    with pytest.raises(Terminal, match=r"the program no-such-program is not on this machine\n  → install it"):
        shell.run(["no-such-program"], remedy="install it")


def test_what_cannot_be_run_says_why(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("words")
    with pytest.raises(Terminal, match=f"the program {plain} cannot be run: Permission denied"):
        shell.run([plain])
    plain.chmod(0o755)
    with pytest.raises(Terminal, match="cannot be run: Exec format error"):
        shell.run([plain])
    with pytest.raises(Terminal, match=f"true cannot be run: No such file or directory .*{tmp_path / 'absent'}"):
        shell.run(["true"], cwd=tmp_path / "absent")


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(Terminal, match="sleep did not end within 0 s"):
        shell.run(["sleep", "60"], timeout=0.05)


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert shell.run(["printf", r"a\377b"]) == "a�b"


def test_with_a_log_everything_goes_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert shell.run(["sh", "-c", "echo one; echo two >&2"], log=log) == ""
    with pytest.raises(Terminal, match=r"ended with 1:\n    one\n    two\n    three"):
        shell.run(["sh", "-c", "echo three; exit 1"], log=log)
    assert log.read_text() == "one\ntwo\nthree\n"

"""Live progress on a real terminal, a pseudo one, in a process of its own."""

import codecs
import os
import pty
import re
import select
import subprocess
import sys
import time

PATIENCE = 120
SCRIPT = """
import sys, threading
from isthmus.cli.live import LiveProgress
with LiveProgress() as progress:
    {body}
"""


class Terminal:
    """A program on a terminal, and everything that it has drawn there."""

    def __init__(self, body: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", "NO_COLOR": "1"}
        script = SCRIPT.format(body=body.replace("\n", "\n    "))
        self._process = subprocess.Popen(  # ended in `end`
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            text=True,
        )
        os.close(theirs)
        self.raw = ""
        # What is read at once may end within a character, when much has been drawn meanwhile.
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    @property
    def text(self) -> str:
        """What was drawn, without the codes that move the cursor and set colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.text:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.text!r}"
            self._read()

    def go_on(self) -> None:
        """Let the program pass its next `sys.stdin.readline()`."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> int:
        assert self._process.stdin
        self._process.stdin.close()
        deadline = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < deadline, f"it goes on after {self.text!r}"
        os.close(self._ours)
        return self._process.wait(timeout=PATIENCE)

    def _read(self) -> bool:
        """Read what there is, if anything; say whether more can come."""
        if not select.select([self._ours], [], [], 0.05)[0]:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other end was closed, and all is read
            return False
        self.raw += self._decoder.decode(data)
        return True


def test_a_step_shows_its_detail_and_what_is_next_and_leaves_one_line() -> None:
    terminal = Terminal("""
progress.plan("Build", "Run [it]")
with progress.step("Build") as step:
    step.detail("kubelet: 12 [packages] of [/all]")
    sys.stdin.readline()
with progress.step("Run [it]"):
    progress.note("a hint [/x]")
    sys.stdin.readline()
""")
    terminal.wait_for("kubelet: 12 [packages] of [/all]")
    terminal.wait_for("next: Run [it]")
    assert re.search(r"Build \d+ s · kubelet", terminal.text)
    terminal.go_on()
    terminal.wait_for("✓ Build")
    terminal.wait_for("· a hint [/x]")
    terminal.go_on()
    assert terminal.end() == 0
    assert re.search(r"✓ Run \[it\] \d+\.\d s", terminal.text)
    assert "Traceback" not in terminal.text


def test_a_failure_is_marked_and_the_terminal_left_in_order() -> None:
    terminal = Terminal("""
with progress.step("Build"):
    raise SystemExit(3)
""")
    assert terminal.end() == 3
    assert re.search(r"✗ Build \d+\.\d s", terminal.text)
    assert "✓" not in terminal.text
    hidden, shown = terminal.raw.rfind("\x1b[?25l"), terminal.raw.rfind("\x1b[?25h")
    assert shown > hidden, "the cursor is still hidden"
    assert terminal.raw.endswith(("\x1b[2K", "\x1b[?25h", "\n", "\r"))


def test_steps_of_several_threads_are_all_shown_at_once() -> None:
    terminal = Terminal("""
def work(number):
    with progress.step(f"Step {number}") as step:
        step.detail(f"detail {number}")
        done.wait()
done = threading.Event()
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads: thread.start()
sys.stdin.readline()
done.set()
for thread in threads: thread.join()
""")
    for number in range(3):
        terminal.wait_for(f"detail {number}")
    terminal.go_on()
    assert terminal.end() == 0
    for number in range(3):
        assert f"✓ Step {number}" in terminal.text

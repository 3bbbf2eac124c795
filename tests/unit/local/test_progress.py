import io
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from isthmus.local.parallel import for_each, together
from isthmus.local.progress import PlainProgress


def fail() -> None:
    raise ValueError("broken")


def test_a_step_is_a_line_at_its_beginning_and_one_at_its_end() -> None:
    out = io.StringIO()
    progress = PlainProgress(out)
    progress.plan("Build", "Run")
    with progress.step("Build") as step:
        step.detail("a part of it")
        progress.note("a hint")
    assert re.fullmatch(r"… Build\n· a hint\n✓ Build \(\d+\.\d s\)\n", out.getvalue())


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_step_that_fails_is_marked_and_the_error_goes_on(error: type[BaseException]) -> None:
    out = io.StringIO()
    with pytest.raises(error), PlainProgress(out).step("Build"):
        raise error
    assert re.fullmatch(r"… Build\n✗ Build \(\d+\.\d s\)\n", out.getvalue())


def test_steps_from_several_threads_do_not_mix_their_lines() -> None:
    out = io.StringIO()
    progress = PlainProgress(out)

    def work(number: int) -> None:
        with progress.step(f"Step {number}"):
            pass

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(work, range(200)))
    lines = out.getvalue().splitlines()
    assert len(lines) == 400
    assert all(re.fullmatch(r"… Step \d+|✓ Step \d+ \(\d+\.\d s\)", line) for line in lines)


def test_things_done_together_all_end_before_an_error_is_raised() -> None:
    done: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        together([fail, *(lambda number=number: done.append(number) for number in range(5))])
    for_each(range(5, 8), done.append)
    assert sorted(done) == list(range(8))

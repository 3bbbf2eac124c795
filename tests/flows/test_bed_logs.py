"""A failed test shows and keeps what its parts logged; one that passes leaves nothing."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

_TESTS = """
    import pytest
    from tests.bed import logs

    @pytest.fixture
    def part(request, tmp_path):
        (tmp_path / "daemon.log").write_text("".join(f"line {n}\\n" for n in range(1, 101)))
        (tmp_path / "silent.log").touch()
        with logs.shown(request.config, name="part", directory=tmp_path):
            yield

    def test_good(part):
        pass

    @pytest.mark.parametrize("word", ["a/b"])
    def test_bad(part, word):
        assert False

    def test_without_part():
        assert False
"""


def test_logs_of_a_failed_test_are_kept_and_shown_in_short(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makepyfile(_TESTS)
    result = pytester.runpytest_subprocess("-p", "tests.bed.logs")
    result.assert_outcomes(passed=1, failed=2)
    kept = pytester.path / "build/logs"
    (copy,) = kept.rglob("*.log")
    assert "test_bad-a-b" in str(copy)
    assert len(copy.read_text().splitlines()) == 100
    output = result.stdout.str()
    assert f"the end of {copy.relative_to(pytester.path)}" in output
    assert "line 96\nline 97\nline 98\nline 99\nline 100\n" in output
    assert "line 95" not in output

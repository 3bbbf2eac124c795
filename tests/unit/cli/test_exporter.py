"""The flags of `isthmus exporter`, and the variables that stand for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isthmus.cli import exporter
from isthmus.cli.main import app
from isthmus.errors import Terminal
from isthmus.processes import exporter as process
from isthmus.runtime import logs, loop


@pytest.fixture
def options_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., process.Options]:
    """Run the command with such flags and variables, and give what it would have run."""
    given: list[process.Options] = []
    monkeypatch.setattr(process, "run", given.append)
    monkeypatch.setattr(loop, "run", lambda _: None)
    monkeypatch.setattr(logs, "configure", lambda **_: None)

    def run(*flags: str, **variables: str) -> process.Options:
        done = CliRunner().invoke(app, ["exporter", *flags], env=variables)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return given[-1]

    return run


def test_defaults_are_those_of_soperator(options_of: Callable[..., process.Options]) -> None:
    options = options_of("--slurm-api-server=http://rest:6820")
    assert options.servers == ("http://rest:6820",)
    assert (options.mode, options.metric_set) == ("in-cluster", "own")
    assert (options.metrics_address, options.monitoring_address) == (":8080", ":8081")
    settings = options.settings
    assert (settings.interval, settings.inflight, settings.job_source, settings.lookback) == (
        30,
        1,
        "controller",
        3600,
    )
    assert settings.per_job
    assert (settings.limits.series, settings.limits.top) == (1000, 50)
    assert (options.usage_max_age, options.usage_max_bytes) == (90 * 86400, 500_000_000)


def test_variables_stand_for_flags_and_flags_win(options_of: Callable[..., process.Options]) -> None:
    options = options_of(
        "--top-k=7",
        "--per-job-metrics=false",
        SLURM_EXPORTER_SLURM_API_SERVER="http://a:6820,http://b:6820",
        SLURM_EXPORTER_TOP_K="9",
        SLURM_EXPORTER_COLLECTION_INTERVAL="1m",
        SLURM_EXPORTER_JOB_SOURCE="accounting",
        SLURM_EXPORTER_STANDALONE="true",
        SLURM_EXPORTER_DATA_DIR="/var/lib/exporter",
    )
    assert options.servers == ("http://a:6820", "http://b:6820")
    assert options.settings.limits.top == 7
    assert not options.settings.per_job
    assert (options.settings.interval, options.settings.job_source) == (60, "accounting")
    assert (options.mode, options.data_dir) == ("standalone", Path("/var/lib/exporter"))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "no slurmrestd is configured"),
        (("--slurm-api-server=http://a", "--job-source=both"), "'both' is not a job source"),
        (("--slurm-api-server=http://a", "--top-k=0"), "--top-k is 0"),
        (("--slurm-api-server=http://a", "--collection-interval=10ms"), "--collection-interval is 0.01"),
        (("--slurm-api-server=http://a", "--log-format=xml"), "'xml' is not a log format"),
        (("--slurm-api-server=http://a", "--collection-interval=soon"), "'soon' is not a valid duration"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options_of: Callable[..., process.Options], flags: tuple[str, ...], says: str
) -> None:
    with pytest.raises(Terminal, match=says):
        options_of(*flags)


def test_ages_and_sizes_are_read_as_people_write_them() -> None:
    assert [exporter.age(text) for text in ("90d", "12h", "0")] == [90 * 86400, 43200, 0]
    assert [exporter.size(text) for text in ("500MB", "1Gi", "12")] == [500_000_000, 1 << 30, 12]


async def test_without_any_token_it_says_what_to_set(tmp_path: Path) -> None:
    options = process.Options(servers=("http://127.0.0.1:1",))
    with pytest.raises(Terminal, match="there is no token for Slurm"):
        process.tokens(options, {})
    jwt: dict[str, Any] = {"SLURM_JWT": "a.b.c"}
    assert process.tokens(options, jwt).token() == "a.b.c"
    (tmp_path / "token").write_text("d.e.f\n")
    static = process.Options(servers=options.servers, mode="static-token", token_file=tmp_path / "token")
    assert process.tokens(static, jwt).token() == "d.e.f"


async def test_an_unknown_metric_set_is_refused() -> None:
    options = process.Options(servers=("http://127.0.0.1:1",), metric_set="everything")
    with pytest.raises(Terminal, match="use one of own, native, vpenso, slinky"):
        await process.run(options, environ={"SLURM_JWT": "a.b.c"})

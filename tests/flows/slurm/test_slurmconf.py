"""The real slurmctld reads what we render, and reads it as we meant it."""

from collections.abc import Callable

import pytest

from isthmus.domain.languages import slurmconf
from isthmus.domain.languages.slurmconf import Config, ConfigError, Directive, Include, Note
from tests.bed.slurm import SlurmBed

CONF = "/etc/slurm/slurm.conf"


def shown(bed: SlurmBed, setting: str) -> str:
    (line,) = [
        line for line in bed.scontrol("show", "config").splitlines() if line.split("=")[0].strip() == setting
    ]
    return line.partition("=")[2].strip()


def test_the_beds_own_file_survives_parsing(slurm: SlurmBed) -> None:
    text = slurm.path(CONF).read_text()
    config = slurmconf.parse(text)
    assert config.render() == text
    assert config.get("ClusterName") == "bed"
    assert [line.value for line in config.directives("NodeName")] == ["n1", "n2"]


def test_a_rendered_file_is_accepted_and_means_what_it_says(
    slurm_version: str, slurm_bed: Callable[..., SlurmBed]
) -> None:
    bed = slurm_bed(slurm_version, nodes=1, accounting=False)
    written = slurmconf.parse(bed.path(CONF).read_text())
    rebuilt = [Directive.of(dict(line.settings)) if isinstance(line, Directive) else line for line in written.lines]
    ours = (
        Note.of("added by a test"),
        Directive.of({"KillWait": 17}),
        Directive.of({"DisableRootJobs": True}),
        Include("/etc/slurm/more.conf"),
    )
    more = Config(
        (Directive.of({"PartitionName": "second", "Nodes": "ALL", "MaxTime": "1-00:00:00", "Hidden": True}),)
    )
    free_text = slurmconf.parse(
        "# by hand\nPartitionName=third Nodes=ALL \\\n   priorityTIER=7 # comment\nInactiveLimit=90\n"
    )
    bed.path("/etc/slurm/more.conf").write_text(more.render())
    lines = [line for line in rebuilt if not (isinstance(line, Directive) and line.key == "KillWait")]
    bed.path(CONF).write_text(Config((*lines, *ours, *free_text.lines)).render())
    bed.restart("slurmctld")
    assert shown(bed, "KillWait") == "17 sec"
    assert shown(bed, "DisableRootJobs").lower() == "yes"
    assert shown(bed, "InactiveLimit") == "90 sec"
    assert "MaxTime=1-00:00:00" in bed.scontrol("show", "partition", "second", "--all")
    assert "PriorityTier=7" in bed.scontrol("show", "partition", "third")


@pytest.mark.parametrize("value", ["x\nPartitionName=stolen Nodes=ALL", 'x" PartitionName="stolen', "x # y", "x\\"])
def test_what_would_break_out_of_its_field_never_reaches_the_file(value: str) -> None:
    with pytest.raises(ConfigError):
        Directive.of({"PartitionName": value})


def test_a_value_with_spaces_is_one_value_to_slurmctld_too(slurm_bed: Callable[..., SlurmBed]) -> None:
    bed = slurm_bed("26.05", nodes=1, accounting=False)
    line = Directive.of({"NodeName": "x1", "NodeAddr": "127.0.0.9", "Reason": "x CPUs=64 y", "State": "DOWN"})
    with bed.path(CONF).open("a") as conf:
        conf.write(f"{line.render()}\n")
    bed.restart("slurmctld")
    node = bed.scontrol("show", "node", "x1")
    assert "Reason=x CPUs=64 y" in node
    assert "CPUTot=1 " in node

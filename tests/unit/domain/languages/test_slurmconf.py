import pytest

from isthmus.domain.languages import slurmconf
from isthmus.domain.languages.slurmconf import Config, ConfigError, Directive, Include, Note, SpankPlugin, Value

WRITTEN = r"""# the cluster of the physics department
ClusterName=alpha   # not beta

slurmctldHost=ctl(192.0.2.1)
NodeName=n[1-4] CPUs=8 \
    Feature="big, fast" State=UNKNOWN
SchedulerParameters=bf_interval=5,defer
Prolog=/opt/a\#b.sh
  include nodes.conf
PartitionName=main Nodes=ALL Default=YES
PartitionName=test Nodes=n1
"""


def test_what_a_person_wrote_is_kept_to_the_letter() -> None:
    assert slurmconf.parse(WRITTEN).render() == WRITTEN


def test_reads_settings_as_slurmctld_does() -> None:
    config = slurmconf.parse(WRITTEN)
    assert config.get("CLUSTERNAME") == "alpha"
    assert config.get("SlurmctldHost") == "ctl(192.0.2.1)"
    assert config.get("SchedulerParameters") == "bf_interval=5,defer"
    assert config.get("Prolog") == "/opt/a#b.sh"
    assert config.get("Epilog") is None
    (node,) = config.directives("NodeName")
    assert node.settings == (
        ("NodeName", "n[1-4]"),
        ("CPUs", "8"),
        ("Feature", "big, fast"),
        ("State", "UNKNOWN"),
    )
    assert node.get("feature") == "big, fast"
    assert [line.value for line in config.directives("partitionname")] == ["main", "test"]
    assert list(config.includes()) == ["nodes.conf"]


def test_the_last_of_several_settings_counts() -> None:
    assert slurmconf.parse("A=1\nA=2\n").get("a") == "2"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ClusterName", "line 1: cannot read 'ClusterName'"),
        ("A=1\nB=\n", "line 2: cannot read 'B='"),
        ('A="open\n', "cannot read"),
        ("A=1 B", "cannot read 'B'"),
        ("A=1\\\n", "ends with a backslash"),
        ("A=1\x00", "NUL byte"),
    ],
)
def test_says_where_the_text_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        slurmconf.parse(text)


def test_builds_lines_with_quotes_where_they_are_needed() -> None:
    line = Directive.of({"NodeName": "n1", "CPUs": 8, "Feature": ("a", "b"), "Reason": "not now", "Hidden": False})
    assert line.render() == 'NodeName=n1 CPUs=8 Feature=a,b Reason="not now" Hidden=NO'


@pytest.mark.parametrize(
    "value",
    [
        "x\nPartitionName=mine",
        "x\rPartitionName=mine",
        "x\u2028PartitionName=mine",
        "x\x0bPartitionName=mine",
        "x\x00",
        "x # the rest is silence",
        "x#",
        'x" SlurmdUser="root',
        "x\\",
        "x\\ny",
        "",
        ("a,b", "c"),
        ("a\nb",),
    ],
)
def test_nothing_can_be_smuggled_in_through_a_value(value: Value) -> None:
    with pytest.raises(ConfigError):
        Directive.of({"NodeName": value})


@pytest.mark.parametrize("key", ["", "A B", "A=1 B", "A\nB", "#A", "Include", "include", "A\u00e9", "A+"])
def test_nothing_can_be_smuggled_in_through_a_key(key: str) -> None:
    with pytest.raises(ConfigError):
        Directive.of({key: "x"})


def test_a_value_with_spaces_stays_one_value() -> None:
    line = Directive.of({"Reason": "x SlurmdUser=root", "Weight": 1})
    assert slurmconf.parse_line(line.render()).settings == (("Reason", "x SlurmdUser=root"), ("Weight", "1"))


def test_a_setting_stands_once_in_a_line() -> None:
    with pytest.raises(ConfigError, match="twice"):
        Directive.of({"CPUs": 1, "cpus": 2})


@pytest.mark.parametrize("path", ["", "a b", "a\nb", "a#b", 'a"b', "a\\b", "$(x)"])
def test_paths_are_checked(path: str) -> None:
    with pytest.raises(ConfigError):
        SpankPlugin.of(path, required=True)
    with pytest.raises(ConfigError):
        SpankPlugin.of("/a.so", required=True, arguments=[path])


@pytest.mark.parametrize("text", ["a\nb", "a\\", "a\u2029b"])
def test_comments_end_with_their_line(text: str) -> None:
    with pytest.raises(ConfigError):
        Note.of(text)


def test_renders_a_file_of_built_lines() -> None:
    config = Config(
        (
            Note.of("made by Isthmus"),
            Directive.of({"ClusterName": "alpha"}),
            Include("/etc/slurm/nodes.conf"),
            SpankPlugin.of("/usr/lib/chroot.so", required=True, arguments=["/jail", "mode=ro"]),
            SpankPlugin.of("x.so", required=False),
        )
    )
    assert config.render() == (
        "# made by Isthmus\nClusterName=alpha\nInclude /etc/slurm/nodes.conf\n"
        "required /usr/lib/chroot.so /jail mode=ro\noptional x.so\n"
    )


@pytest.mark.parametrize("text", ["", "# x", "Include x", "A=1\nB=2", "A=1 \\", "A=1 \\ "])
def test_one_line_is_one_line_of_settings(text: str) -> None:
    with pytest.raises(ConfigError):
        slurmconf.parse_line(text)

"""Which files JailedConfigs come to."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.jailedconfigs import files
from isthmus.domain.operator.jailedconfigs.files import File
from isthmus.errors import Terminal
from isthmus.model.jailedconfig import JailedConfig
from isthmus.model.objects import ConfigMap


def config(
    name: str, *items: dict[str, Any], cluster: str = "one", key: str = "", age: int = 0, **spec: Any
) -> Any:
    labels = {"app.kubernetes.io/instance": cluster} | ({"slurm.nebius.ai/jailed-aggregation": key} if key else {})
    made = datetime(2026, 1, 1, 0, 0, 30 - age, tzinfo=UTC)
    wish = {"configMap": {"name": name}, "items": items or ({"key": "a", "path": f"/etc/{name}"},), **spec}
    meta = {"name": name, "namespace": "ns", "labels": labels, "creationTimestamp": made}
    return msgspec.convert({"metadata": meta, "spec": wish}, JailedConfig)


FOUND = ConfigMap(data={"a": "text ü", "b": "b"}, binary_data={"c": b"\0\xff"})


def test_keys_become_files_with_their_modes() -> None:
    made = files.files_of(
        config(
            "x",
            {"key": "a", "path": "/etc/a"},
            {"key": "b", "path": "/opt/b", "mode": 0o755},
            {"key": "c", "path": "/opt/c"},
            defaultMode=0o600,
        ),
        FOUND,
    )
    assert made == (
        File("/etc/a", "text ü".encode(), 0o600),
        File("/opt/b", b"b", 0o755),
        File("/opt/c", b"\0\xff", 0o600),
    )


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([{"key": "z", "path": "/etc/z"}], "has no key z"),
        ([{"key": "a", "path": "/etc/../z"}], "has the part '..'"),
        ([{"key": "a", "path": "/a"}, {"key": "b", "path": "/a"}], "/a is listed twice"),
        ([{"key": "a", "path": "/a", "mode": 0o111}], "mode 0111 of /a is not valid"),
    ],
)
def test_what_cannot_be_is_said_with_what_to_do(items: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(Terminal, match=said) as refused:
        files.files_of(config("x", *items), FOUND)
    assert refused.value.remedy


def test_a_missing_key_is_told_with_those_that_are_there() -> None:
    with pytest.raises(Terminal) as refused:
        files.files_of(config("x", {"key": "z", "path": "/z"}), FOUND)
    assert refused.value.remedy == "add it, or name another (existing keys: a, b, c)"


def test_the_hash_is_of_content_mode_and_place_and_of_no_order() -> None:
    a, b = File("/a", b"1", 0o644), File("/b", b"2", 0o644)
    assert files.hash_of([a, b]) == files.hash_of([b, a])
    for other in (File("/a", b"x", 0o644), File("/a", b"1", 0o600), File("/c", b"1", 0o644)):
        assert files.hash_of([other, b]) != files.hash_of([a, b])


def test_an_aggregation_is_of_one_cluster_alone() -> None:
    mine, second = config("mine", key="common", age=1), config("second", key="common", age=2)
    strange, alone = config("strange", key="common", cluster="two"), config("common")
    everything = [mine, second, strange, alone]
    assert files.members(everything, files.group(mine)) == [second, mine]
    assert files.members(everything, files.group(strange)) == [strange]
    assert files.members(everything, files.group(alone)) == [alone]


def test_a_path_belongs_to_the_older_of_two() -> None:
    same = {"key": "a", "path": "/etc/same"}
    old, new = config("z-old", same, age=9), config("a-new", same)
    assert files.taken(new, [old, new]) == "/etc/same is written by the older JailedConfig z-old"
    assert not files.taken(old, [old, new])

"""Kubeconfig from outside: whatever the bytes, settings or a clear error."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from isthmus.errors import IsthmusError
from isthmus.kube.config import load

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["c", "u", "here"])
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
fields = st.sampled_from(
    ["server", "token", "tokenFile", "client-certificate-data", "client-key", "exec", "proxy-url", "username"]
)
parts = st.dictionaries(fields, anything, max_size=4)


@st.composite
def shapes(draw: st.DrawFn) -> Any:
    """Something that looks like a kubeconfig, with anything in any place."""
    return {
        "current-context": draw(st.just("here") | anything),
        "clusters": [{"name": "c", "cluster": draw(parts | anything)}],
        "users": [{"name": "u", "user": draw(parts | anything)}],
        "contexts": draw(st.just([{"name": "here", "context": {"cluster": "c", "user": "u"}}]) | anything),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubeconfig") / "config"


@given(shapes())
def test_any_content_is_settings_or_a_clear_error(path: Path, content: Any) -> None:
    path.write_text(yaml.safe_dump(content))
    with suppress(IsthmusError):
        load(path)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=300))
@example(b"[" * 100_000)
@example(b"{a: " * 100_000)
@example(b"- " * 100_000)
@example(b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nclusters: &d [*c,*c]\nusers: [*d,*d]\n")
@example(b"a: &a [*a]\nclusters: *a\n")
@example(b"&a [*a]")
@example(b"? [a, b]\n: c\n")
@example(b"2001-99-99: x")
@example(b"clusters: 0o99999999999\n")
@example(b"\x00\xff\xfe")
@example(b"!!python/object/apply:os.system ['true']")
@example(b"<<: 3")
def test_any_bytes_are_settings_or_a_clear_error(path: Path, noise: bytes) -> None:
    path.write_bytes(noise)
    with suppress(IsthmusError):
        load(path)

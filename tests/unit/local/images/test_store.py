"""Seeding is work on files; that containerd and kubelet accept the result is tested on the local cluster."""

from pathlib import Path

import pytest

from isthmus.local.images import store
from isthmus.local.images.store import Store

CONTENT = "io.containerd.content.v1.content/blobs/sha256"
SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
METADATA = "io.containerd.metadata.v1.bolt/meta.db"


@pytest.fixture
def filled(tmp_path: Path) -> Store:
    root = tmp_path / "store"
    for name in (
        METADATA,
        "io.containerd.snapshotter.v1.overlayfs/metadata.db",
        f"{CONTENT}/abc",
        f"{SNAPSHOTS}/1/fs/x",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return Store(root)


@pytest.mark.usefixtures("cache_home")
def test_a_node_has_its_own_databases(tmp_path: Path, filled: Store) -> None:
    store.seed(filled, tmp_path / "node")
    (tmp_path / "node" / METADATA).write_text("changed by the node")
    assert (filled.root / METADATA).read_text() == METADATA


@pytest.mark.usefixtures("cache_home")
def test_what_a_node_removes_stays_in_the_store(tmp_path: Path, filled: Store) -> None:
    store.seed(filled, tmp_path / "node")
    (tmp_path / "node" / CONTENT / "abc").unlink()
    (tmp_path / "node" / SNAPSHOTS / "1").unlink()
    assert (filled.root / CONTENT / "abc").exists()
    assert (filled.root / SNAPSHOTS / "1/fs/x").exists()


@pytest.mark.usefixtures("cache_home")
def test_nothing_large_is_copied(tmp_path: Path, filled: Store) -> None:
    store.seed(filled, tmp_path / "node")
    assert (tmp_path / "node" / CONTENT / "abc").samefile(filled.root / CONTENT / "abc")
    assert (tmp_path / "node" / SNAPSHOTS / "1/fs/x").samefile(filled.root / SNAPSHOTS / "1/fs/x")


def test_a_store_that_was_never_complete_is_replaced(cache_home: Path) -> None:
    (cache_home / "store/1/root").mkdir(parents=True)
    root, record = store._current()
    assert root == cache_home / "store/2/root"
    assert record.images == {}
    assert not (cache_home / "store/1").exists()


def test_a_damaged_store_is_left_to_the_nodes_that_use_it(cache_home: Path, filled: Store) -> None:
    root = cache_home / "store/1/root"
    root.parent.mkdir(parents=True)
    filled.root.rename(root)
    store._write_record(root, {"isthmus.local/pause:1": "sha256:abc"})
    assert store._current()[0] == root
    (root / CONTENT / "abc").unlink()
    assert store._current()[0] == cache_home / "store/2/root"
    assert (root / SNAPSHOTS / "1/fs/x").exists()

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import msgspec

from isthmus.local.images import oci
from isthmus.local.images.enclosure import SOURCE_DATE_EPOCH, run_enclosed
from isthmus.local.images.recipes import IMAGES


def packed(tree: Path) -> bytes:
    target = io.BytesIO()
    oci.write_layer(tree, target)
    return target.getvalue()


def members(layer: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        return {member.name: member for member in archive}


def test_the_order_in_which_files_were_made_does_not_show(tmp_path: Path) -> None:
    for tree, names in (("a", ["x", "y", "dir/z"]), ("b", ["dir/z", "y", "x"])):
        for name in names:
            path = tmp_path / tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
            path.chmod(0o640)
    assert packed(tmp_path / "a") == packed(tmp_path / "b")
    assert list(members(packed(tmp_path / "a"))) == ["dir", "dir/z", "x", "y"]


def test_times_before_the_epoch_are_kept_and_later_ones_are_cut(tmp_path: Path) -> None:
    for name, seconds in (("old", 1_000_000_000), ("new", SOURCE_DATE_EPOCH + 5)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (seconds, seconds))
    found = members(packed(tmp_path))
    assert found["old"].mtime == 1_000_000_000
    assert found["new"].mtime == SOURCE_DATE_EPOCH


def test_no_names_of_owners_are_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.chown(tmp_path / "file", 64030, 101)
    file = members(packed(tmp_path))["file"]
    assert (file.uid, file.gid, file.uname, file.gname) == (64030, 101, "", "")


def test_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "c").symlink_to("./a")
    found = members(packed(tmp_path))
    assert found["b"].islnk()
    assert found["b"].linkname == "a"
    assert found["c"].linkname == "./a"


def test_what_an_overlay_removed_becomes_whiteouts(tmp_path: Path) -> None:
    for name in ("lower/gone", "lower/stays", "lower/replaced/old"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name in ("upper", "work", "merged"):
        (tmp_path / name).mkdir()
    script = """
        cd "$BASE"
        mount -t overlay overlay merged -o lowerdir=lower,upperdir=upper,workdir=work
        cd merged
        rm gone
        rm -r replaced
        mkdir replaced
        echo new > replaced/new
    """
    run_enclosed(["sh", "-euc", script], "change an overlay", env={"BASE": str(tmp_path)})
    found = members(packed(tmp_path / "upper"))
    assert list(found) == [".wh.gone", "replaced", "replaced/.wh..wh..opq", "replaced/new"]
    assert found[".wh.gone"].isreg()
    assert found[".wh.gone"].size == 0


def test_file_capabilities_are_kept(tmp_path: Path) -> None:
    may_bind_low_ports = bytes.fromhex("0100000200040000000000000000000000000000")
    (tmp_path / "program").write_text("x")
    os.setxattr(tmp_path / "program", "security.capability", may_bind_low_ports)
    kept = members(packed(tmp_path))["program"].pax_headers["SCHILY.xattr.security.capability"]
    assert kept.encode(errors="surrogateescape") == may_bind_low_ports


def test_the_config_says_how_to_start() -> None:
    layer = oci.Descriptor(oci.LAYER, "sha256:abc", 3)
    config = json.loads(oci.config(IMAGES["isthmus"], [layer], architecture="arm64"))
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/isthmus"]
    assert config["config"]["User"] == "65532:65532"
    assert (config["architecture"], config["os"]) == ("arm64", "linux")
    assert config["rootfs"]["diff_ids"] == ["sha256:abc"]
    assert "created" not in config


def test_an_archive_is_an_oci_layout(tmp_path: Path) -> None:
    content = b"a manifest"
    blob = oci.describe(content, oci.MANIFEST)
    index = oci.index([("isthmus.local/slurm:26.05", blob, "arm64")])
    with (tmp_path / "archive.tar").open("wb") as target:
        oci.write_archive(index, [(blob, io.BytesIO(content))], target)
    with tarfile.open(tmp_path / "archive.tar") as archive:
        texts = {member.name: handle.read() for member in archive if (handle := archive.extractfile(member))}
    path = f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"
    assert texts.keys() == {"oci-layout", "index.json", path}
    assert texts[path] == content
    (entry,) = msgspec.json.decode(texts["index.json"])["manifests"]
    assert entry["digest"] == blob.digest
    assert entry["platform"] == {"architecture": "arm64", "os": "linux"}
    assert entry["annotations"] == {
        "io.containerd.image.name": "isthmus.local/slurm:26.05",
        "org.opencontainers.image.ref.name": "26.05",
    }

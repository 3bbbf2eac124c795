"""Builds a whole image that needs no network: one program on an empty root."""

import multiprocessing
import shutil
import stat
import tarfile
from pathlib import Path

import pytest

from isthmus.errors import Terminal
from isthmus.local.architecture import AMD64, ARCHITECTURES, ARM64, native
from isthmus.local.images import blobs, build, layers
from isthmus.local.images.build import Image
from isthmus.local.progress import PlainProgress

from .conftest import Steps


def make(steps: Steps, binaries: dict[str, Path]) -> Image:
    (image,) = build.build(["coredns"], steps, binaries=binaries)
    return image


def make_and_report(binaries: dict[str, Path], titles: "multiprocessing.Queue[tuple[str, list[str]]]") -> None:
    steps = Steps()
    titles.put((make(steps, binaries).digest, steps.titles))


@pytest.mark.usefixtures("cache_home")
def test_a_second_build_does_nothing(steps: Steps, binaries: dict[str, Path]) -> None:
    first = make(steps, binaries)
    assert steps.titles == ["Layer coredns", "Packing coredns"]
    assert make(steps, binaries) == first
    assert steps.titles == ["Layer coredns", "Packing coredns"]
    assert build.list_images() == [first]


def test_an_empty_cache_gives_the_same_digest(cache_home: Path, steps: Steps, binaries: dict[str, Path]) -> None:
    first = make(steps, binaries)
    shutil.rmtree(cache_home)
    assert make(steps, binaries).digest == first.digest
    assert len(steps.titles) == 4


@pytest.mark.usefixtures("cache_home")
def test_another_program_gives_another_image(steps: Steps, binaries: dict[str, Path]) -> None:
    first = make(steps, binaries)
    binaries["coredns"].write_bytes(b"newer")
    assert make(steps, binaries).digest != first.digest


@pytest.mark.usefixtures("cache_home")
def test_everybody_may_read_the_files_of_a_recipe_and_only_root_write_them(
    steps: Steps, binaries: dict[str, Path]
) -> None:
    tree = layers.ensure("coredns", steps, binaries=binaries).path
    modes = [stat.S_IMODE((tree / "etc" / name).stat().st_mode) for name in ("passwd", "group")]
    assert modes == [0o644, 0o644]


@pytest.mark.usefixtures("cache_home")
def test_a_truncated_blob_is_packed_again(steps: Steps, binaries: dict[str, Path]) -> None:
    first = make(steps, binaries)
    with blobs.path_of(first.layers[0]).open("r+b") as blob:
        blob.truncate(1000)
    assert build.list_images() == []
    assert make(steps, binaries) == first
    assert blobs.verified(first.layers[0])
    assert steps.titles == ["Layer coredns", "Packing coredns", "Packing coredns"]


@pytest.mark.usefixtures("cache_home")
def test_a_tree_that_lost_a_file_is_made_again_before_it_is_packed(steps: Steps, binaries: dict[str, Path]) -> None:
    first = make(steps, binaries)
    tree = layers.ensure("coredns", steps, binaries=binaries)
    (tree.path / "etc/passwd").unlink()
    blobs.path_of(first.layers[0]).unlink()
    assert make(steps, binaries) == first
    assert steps.titles.count("Layer coredns") == 2


def test_what_a_killed_build_left_is_thrown_away(cache_home: Path, steps: Steps, binaries: dict[str, Path]) -> None:
    tree = layers.ensure("coredns", steps, binaries=binaries)
    entry = tree.path.parent
    entry.rename(entry.with_name(f"{entry.name}.partial"))
    (entry.with_name(f"{entry.name}.partial") / "tree/half").write_text("made")
    make(steps, binaries)
    assert not (tree.path / "half").exists()
    assert [path.name for path in (cache_home / "layers").iterdir()] == [entry.name]


@pytest.mark.usefixtures("cache_home")
def test_two_processes_wait_for_each_other(binaries: dict[str, Path]) -> None:
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[tuple[str, list[str]]] = context.Queue()
    makers = [context.Process(target=make_and_report, args=(binaries, results)) for _ in range(2)]
    for maker in makers:
        maker.start()
    (one, done_by_one), (two, done_by_two) = (results.get(timeout=180) for _ in makers)
    for maker in makers:
        maker.join()
    assert one == two
    assert sorted(done_by_one + done_by_two) == ["Layer coredns", "Packing coredns"]


@pytest.mark.usefixtures("cache_home")
def test_who_is_overtaken_by_another_maker_at_the_very_end_is_done_as_well(
    steps: Steps, binaries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, others = Path.rename, list[Image]()

    def overtaken(path: Path, target: Path) -> Path:
        if target.name == "coredns.json":
            monkeypatch.setattr(Path, "rename", rename)
            others.append(make(steps, binaries))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", overtaken)
    assert [make(steps, binaries)] == others == build.list_images()


@pytest.mark.usefixtures("cache_home")
def test_archives_are_complete_and_reproducible(tmp_path: Path, steps: Steps, binaries: dict[str, Path]) -> None:
    image = make(steps, binaries)
    (one,) = build.write_archives([image], tmp_path / "one")
    (two,) = build.write_archives([image], tmp_path / "two")
    assert one.name == "coredns.oci.tar"
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as archive:
        sizes = {member.name: member.size for member in archive}
    for blob in image.blobs:
        assert sizes[f"blobs/sha256/{blob.digest.removeprefix('sha256:')}"] == blob.size


@pytest.mark.usefixtures("cache_home")
def test_a_blob_with_other_content_never_leaves_the_cache(
    tmp_path: Path, steps: Steps, binaries: dict[str, Path]
) -> None:
    image = make(steps, binaries)
    path = blobs.path_of(image.layers[0])
    path.write_bytes(b"x" * image.layers[0].size)
    with pytest.raises(Terminal, match="damaged"):
        build.write_archives([image], tmp_path)
    assert make(steps, binaries) == image
    assert build.write_archives([image], tmp_path)


@pytest.mark.usefixtures("cache_home")
def test_architectures_are_kept_apart_in_the_cache(tmp_path: Path, steps: Steps, binaries: dict[str, Path]) -> None:
    other = next(each for each in ARCHITECTURES.values() if each != native())
    own = make(steps, binaries)
    (foreign,) = build.build(["coredns"], steps, binaries=binaries, architecture=other)
    again = build.build(["coredns"], steps, binaries=binaries, architecture=other)
    assert len(steps.titles) == 4
    assert steps.titles[2:] == [f"Layer {other.marked('coredns')}", f"Packing {other.marked('coredns')}"]
    assert again == [foreign]
    # A node of this machine gets its own, though the same program went into both.
    assert build.list_images() == [own]
    assert (own.architecture, foreign.architecture) == (native().name, other.name)
    assert own.digest != foreign.digest
    names = [path.name for path in build.write_archives([own, foreign], tmp_path)]
    assert sorted(names) == ["coredns-arm64.oci.tar", "coredns.oci.tar"]


@pytest.mark.usefixtures("cache_home")
def test_a_layer_of_another_architecture_stands_upon_layers_of_that_architecture() -> None:
    amd64, arm64 = (layers.plan("slurm-spank-26.05", architecture=each) for each in (AMD64, ARM64))
    mine, theirs = ([plan, *plan.parents, *plan.origins.values()] for plan in (amd64, arm64))
    assert not {each.path for each in mine} & {each.path for each in theirs}
    assert {each.architecture for each in theirs} == {ARM64}


@pytest.mark.usefixtures("cache_home")
def test_an_unknown_image_is_answered_with_the_known_ones() -> None:
    with pytest.raises(Terminal, match=r"no image 'slrum'(.|\n)*slurm-26\.05"):
        build.build(["slrum"], PlainProgress())


@pytest.mark.usefixtures("cache_home")
def test_a_program_that_was_not_built_is_named() -> None:
    with pytest.raises(Terminal, match="needs the program jobset"):
        build.build(["jobset"], PlainProgress())

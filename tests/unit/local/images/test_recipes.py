import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from isthmus.cli.lifecycle import Slurm
from isthmus.local.architecture import AMD64, ARM64
from isthmus.local.images import apt, sources
from isthmus.local.images.layers import installed_version
from isthmus.local.images.recipes import IMAGES, LAYERS, PLUGIN, SLURMS, layer_for, reference, running


def test_every_image_and_parent_names_a_layer() -> None:
    for image in IMAGES.values():
        assert image.layer in LAYERS
    for layer in LAYERS.values():
        assert not layer.parent or layer.parent in LAYERS
        assert all(origin in LAYERS for origin, _ in layer.copies)


def test_a_layer_is_of_the_same_release_as_its_parent() -> None:
    for layer in LAYERS.values():
        if layer.packages and layer.parent:
            assert LAYERS[layer.parent].suite == layer.suite


def test_every_slurm_is_made_alike() -> None:
    for kind in ("slurm", "login"):
        newest, *others = (LAYERS[f"{kind}-{version}"] for version in SLURMS)
        for it in others:
            assert (it.packages, it.script, it.remove) == (newest.packages, newest.script, newest.remove)


def test_a_local_cluster_can_have_every_slurm_that_there_are_images_of() -> None:
    assert [str(it) for it in Slurm] == list(SLURMS)


def test_scripts_pass_the_shell_that_runs_them() -> None:
    for layer in LAYERS.values():
        scripts = [layer.script, *(text for text in layer.files.values() if text.startswith("#!/bin/sh"))]
        for script in filter(None, scripts):
            subprocess.run(["sh", "-n"], input=script, check=True, text=True)


def test_every_image_in_which_slurm_runs_has_our_plugin_for_its_version_and_not_what_made_it() -> None:
    for kind in ("slurm", "login"):
        for version in SLURMS:
            layer = LAYERS[IMAGES[f"{kind}-{version}"].layer]
            assert (f"spank-{version}", PLUGIN) in layer.copies
            while layer.parent:
                assert "libslurm-dev" not in layer.packages
                layer = LAYERS[layer.parent]


def test_our_plugin_lies_where_each_architecture_has_its_libraries() -> None:
    for architecture, directory in ((AMD64, "x86_64-linux-gnu"), (ARM64, "aarch64-linux-gnu")):
        copies = [path for _, path in layer_for("login-spank-26.05", architecture).copies]
        assert copies == [f"usr/lib/{directory}/slurm-wlm/isthmus_jail.so", "usr/sbin/isthmus-enter"]


def test_wheels_are_those_of_the_architecture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called: list[str] = []
    monkeypatch.setattr(sources, "run", lambda words, **_: called.extend(map(str, words)))
    source = sources.find(LAYERS["packages"], {}, ARM64)
    assert source
    source.fill(tmp_path)
    chosen = {word for before, word in pairwise(called) if before == "--platform"}
    assert chosen == {"manylinux_2_28_aarch64", "manylinux2014_aarch64"}


@pytest.mark.parametrize(
    ("image", "layers"),
    [
        ("coredns", []),
        ("pause", ["debian-trixie", "catatonit"]),
        ("isthmus", ["debian-trixie", "python", "packages", "isthmus"]),
        ("slurm-26.05", ["debian-forky", "slurm-26.05", "spank-tools-26.05", "spank-26.05"]),
    ],
)
def test_layers_that_run_their_own_programs_are_known(image: str, layers: list[str]) -> None:
    assert running(IMAGES[image].layer) == layers


def test_references_tell_versions_apart() -> None:
    assert reference("slurm-26.05") == "isthmus.local/slurm:26.05"
    assert reference("login-24.11") == "isthmus.local/login:24.11"
    assert len({reference(name) for name in IMAGES}) == len(IMAGES)


def test_the_main_archive_is_chosen_from_the_machines_own() -> None:
    targets = (
        "Debian|Debian-Security|http://mirror.example/debian-security/\n"
        "Docker|Docker CE|https://packages.example/docker/\n"
        "Debian|Debian|http://mirror.example/debian/\n"
    )
    assert apt.choose(targets) == "http://mirror.example/debian/"


def test_a_machine_that_never_updated_its_lists_still_has_a_mirror() -> None:
    assert apt.choose("||http://mirror.example/debian-security/\n||http://mirror.example/debian/\n") == (
        "http://mirror.example/debian/"
    )


def test_an_address_that_could_break_a_list_of_sources_is_not_taken() -> None:
    assert apt.choose("Debian|Debian|http://mirror.example/debian main\\ndeb [trusted=yes] x\n") == ""


def test_a_version_is_that_of_the_package_and_no_other() -> None:
    status = "Package: slurm\nVersion: 0.4.4-1\n\nPackage: slurmctld\nStatus: ok\nVersion: 26.05.5-1\n"
    assert installed_version(status, "slurmctld") == "26.05.5-1"
    assert installed_version(status, "slurmd") == ""

import subprocess

from isthmus.local.images import apt
from isthmus.local.images.layers import installed_version
from isthmus.local.images.recipes import IMAGES, LAYERS, PLUGIN, reference


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


def test_both_slurms_are_made_alike() -> None:
    for kind in ("slurm", "login"):
        new, old = (LAYERS[f"{kind}-{version}"] for version in ("26.05", "24.11"))
        assert (new.packages, new.script, new.remove) == (old.packages, old.script, old.remove)


def test_scripts_pass_the_shell_that_runs_them() -> None:
    for layer in LAYERS.values():
        scripts = [layer.script, *(text for text in layer.files.values() if text.startswith("#!/bin/sh"))]
        for script in filter(None, scripts):
            subprocess.run(["sh", "-n"], input=script, check=True, text=True)


def test_every_image_in_which_slurm_runs_has_our_plugin_for_its_version_and_not_what_made_it() -> None:
    for kind in ("slurm", "login"):
        for version in ("26.05", "24.11"):
            layer = LAYERS[IMAGES[f"{kind}-{version}"].layer]
            assert (f"spank-{version}", PLUGIN) in layer.copies
            while layer.parent:
                assert "libslurm-dev" not in layer.packages
                layer = LAYERS[layer.parent]


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

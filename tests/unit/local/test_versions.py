import shutil
import sys
from pathlib import Path

import pytest

import isthmus
from isthmus.local import binaries, versions
from isthmus.local.images import layers
from isthmus.local.images.recipes import SLURMS
from isthmus.local.versions import Component, parse_packages


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def look() -> dict[tuple[str, str], Component]:
    """Each component by its name and the beginning of where it comes from."""
    return {(each.name, each.origin.split()[0]): each for each in versions.components()}


@pytest.mark.usefixtures("cache")
def test_what_is_not_there_yet_is_told_with_the_version_that_it_will_have() -> None:
    found = look()
    assert found["Isthmus", str(Path(isthmus.__file__).parent)].version == isthmus.__version__
    assert found["Python", sys.executable].version.startswith("3.")
    for module in binaries.MODULES.values():
        name = versions._TITLES.get(module.name, module.name)
        assert found[name, "Go"] == Component(name, module.version, "Go module", "not built yet")
    assert found["PodGroup", "Go"].state == "not fetched yet"
    assert found["MariaDB", "Debian"].version == "1:11.8.*"
    assert {each.state for each in found.values() if each.name in {"Slurm", "MariaDB"}} == {"not built yet"}


@pytest.mark.usefixtures("cache")
def test_the_version_in_an_image_is_read_from_its_layer() -> None:
    status = layers.plan("mariadb").path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text("Package: mariadb-server\nStatus: install ok installed\nVersion: 1:11.8.6-0+deb13u1\n")
    found = look()["MariaDB", "Debian"]
    assert (found.version, found.state) == ("1:11.8.6-0+deb13u1", "built")
    assert found.origin == "Debian trixie, in the images mariadb"


@pytest.mark.usefixtures("cache")
def test_every_slurm_that_there_are_images_of_is_told_once() -> None:
    slurms = [each for each in versions.components() if each.name == "Slurm"]
    assert [(each.version, each.origin) for each in slurms] == [
        (f"{version}.*", f"Debian {suite}, in the images slurm-{version}, login-{version}")
        for version, suite in SLURMS.items()
    ]


@pytest.mark.usefixtures("cache")
def test_packages_of_the_host_have_the_versions_that_dpkg_knows() -> None:
    found = look()["containerd", "Debian"]
    assert found.state == "installed"
    assert found.version[0].isdigit()


@pytest.mark.usefixtures("cache")
def test_a_host_without_dpkg_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not shutil.which("dpkg-query")
    assert look()["containerd", "Debian"] == Component("containerd", "-", "Debian package", "not installed")


def test_a_package_that_was_removed_but_not_purged_is_not_installed() -> None:
    assert parse_packages("installed runc 1.1.5\nconfig-files nftables 1.0.6\n") == {"runc": "1.1.5"}

"""The wheel is enough: what the commands need beside code is found from an installed copy, away from the clone."""

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from isthmus import __version__
from isthmus.errors import Terminal
from isthmus.local import resources
from isthmus.local.architecture import native
from isthmus.local.images import sources
from isthmus.local.images.recipes import LAYERS, SLURMS

ROOT = Path(__file__).parents[2]
BROUGHT_ALONG = ("charts", "images/spank", "requirements.lock")
# Layers that are made of our own files. Equal keys mean equal files, so equal images.
OURS = ("packages", "isthmus", *(f"spank-{it}" for it in SLURMS))
KEYS = f"""
import json
from isthmus.local.architecture import native
from isthmus.local.images import sources
from isthmus.local.images.recipes import LAYERS, SLURMS
print(json.dumps({{name: sources.find(LAYERS[name], {{}}, native()).key for name in {OURS}}}))
"""


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", home, cwd=ROOT)
    (built,) = home.glob("isthmus-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; its dependencies are lent by the one that runs the tests."""
    home = tmp_path_factory.mktemp("away")
    run(sys.executable, "-m", "venv", "--without-pip", home / "venv", cwd=home)
    python = home / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=home)
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home)
    # Files of this directory are found, but no .pth in it is read: this clone stays out of sight.
    Path(packages.strip(), "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return home


def test_a_wheel_holds_every_file_that_is_brought_along_and_no_other(wheel: Path) -> None:
    tracked = run("git", "ls-files", *BROUGHT_ALONG, cwd=ROOT).split()
    prefix = f"isthmus/{resources.IN_WHEEL}/"
    with zipfile.ZipFile(wheel) as archive:
        held = [name for name in archive.namelist() if not name.startswith("isthmus-")]
        data = {name.removeprefix(prefix): archive.read(name) for name in held if name.startswith(prefix)}
    assert data == {name: (ROOT / name).read_bytes() for name in tracked}
    assert all(name.startswith("isthmus/") for name in held)


def test_charts_are_found_from_a_wheel(installed: Path) -> None:
    isthmus = installed / "venv/bin/isthmus"
    directory = Path(run(isthmus, "chart", "path", "slurm-bridge", cwd=installed).strip())
    assert directory.is_relative_to(installed)
    assert (directory / "Chart.yaml").is_file()
    _, *rows = run(isthmus, "chart", "list", cwd=installed).splitlines()
    there = {row.split()[0]: row.split()[-1] for row in rows}
    assert there == {name: str(directory.with_name(name)) for name in resources.charts()}


def test_the_manual_page_comes_with_a_wheel_and_has_every_command(installed: Path) -> None:
    page = (installed / "venv/share/man/man1/isthmus.1").read_text()
    assert page.startswith('.\\" Made by')
    assert ".SS isthmus why [OPTIONS] {JOB|POD}" in page
    assert all(line.isprintable() for line in page.splitlines())


def test_images_are_the_same_from_a_wheel_and_from_a_clone(installed: Path) -> None:
    there = json.loads(run(installed / "venv/bin/python", "-c", KEYS, cwd=installed))
    here = {name: found.key for name in OURS if (found := sources.find(LAYERS[name], {}, native()))}
    assert there == here
    assert set(here) == set(OURS)


def test_the_krew_plugin_is_what_its_manifest_says_and_starts_the_wheel(
    tmp_path: Path, wheel: Path, installed: Path
) -> None:
    run(ROOT / "scripts/krew", "https://example.org/krew", f"--out={tmp_path}", f"--wheel={wheel}", cwd=ROOT)
    spec = yaml.safe_load((tmp_path / "slurm.yaml").read_text())["spec"]
    (linux,) = [it for it in spec["platforms"] if it["selector"]["matchLabels"]["os"] == "linux"]
    packed = tmp_path / linux["uri"].rpartition("/")[2]
    assert hashlib.sha256(packed.read_bytes()).hexdigest() == linux["sha256"]
    with tarfile.open(packed) as held:
        held.extractall(tmp_path / "plugin", filter="data")
    assert len(spec["shortDescription"]) <= 50, "krew shows no more"
    # As if the launcher had installed it before.
    home = tmp_path / "data/isthmus" / f"kubectl-slurm-{__version__}"
    home.parent.mkdir(parents=True)
    home.symlink_to(installed / "venv")
    started = subprocess.run(
        [tmp_path / "plugin" / linux["bin"], "--help"],
        env={"PATH": os.environ["PATH"], "XDG_DATA_HOME": str(tmp_path / "data")},
        check=False,
        capture_output=True,
        text=True,
    )
    assert started.returncode == 0, started.stderr
    assert "kubectl slurm" in started.stdout


def test_charts_of_a_clone_are_those_at_its_top() -> None:
    assert resources.chart("isthmus-operator") == ROOT / "charts/isthmus-operator"
    assert set(resources.charts()) == {path.name for path in (ROOT / "charts").iterdir()}


def test_a_chart_that_there_is_not_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(Terminal, match=r"no chart 'slrum'(.|\n)*isthmus-operator, .*slurm-bridge, slurm-cluster"):
        resources.chart("slrum")


def test_an_installation_that_lacks_something_says_what_and_where() -> None:
    with pytest.raises(Terminal, match=r"isthmus lacks charts/nothing(.|\n)*pip"):
        resources.find("charts/nothing")

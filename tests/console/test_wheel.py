"""The wheel in a fresh environment without Node includes the page."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from tests.console.browsing import PATIENCE, browser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.local_broker import ThrowAwayBroker

ROOT = Path(__file__).parent.parent.parent


def run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=280,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as for a release."""
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)])
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The `millstream` command of a fresh environment without Node and repository."""
    folder = tmp_path / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    environment = {"PATH": str(programs), "MILLSTREAM_HOME": str(tmp_path / "home"),
                   "HOME": str(tmp_path), "PYTHONPATH": ""}  # fmt: skip
    yield folder / "bin" / "python", environment
    run([str(folder / "bin" / "python"), "-m", "millstream.cli.main", "down"], **environment)


def test_the_wheel_has_the_page_its_licences_and_the_demo_but_no_sources_of_the_page(
    wheel: Path,
) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    page = [name for name in names if name.startswith("millstream/console/dist/")]
    assert "millstream/console/dist/index.html" in page
    assert any(name.endswith(".js") for name in page)
    licences = zipfile.ZipFile(wheel).read("millstream/console/dist/licences.txt").decode()
    assert licences.count("Permission is hereby granted") >= 2
    assert "millstream/cli/demo/examples/shop.py" in names
    assert not [name for name in names if "node_modules" in name or name.endswith(".tsx")]


def test_the_installed_wheel_serves_the_page_without_node_and_without_other_hosts(
    installed: tuple[Path, dict[str, str]], broker: ThrowAwayBroker
) -> None:
    python, environment = installed
    where = run([str(python), "-c", "import millstream; print(millstream.__file__)"], **environment)
    assert str(python.parent.parent) in where
    millstream = [str(python), "-m", "millstream.cli.main"]
    run([*millstream, "up", "--kafka", broker.address], **environment)
    said = run([*millstream, "status", "-o", "json"], **environment)
    import json

    link = json.loads(said)["page"]
    with browser() as browsed:
        browsed.page.goto(link)
        expect(browsed.page.get_by_text("No jobs yet")).to_be_visible(timeout=PATIENCE)
        assert browsed.hosts() == {link.split("/")[2]}
        assert browsed.complaints == []

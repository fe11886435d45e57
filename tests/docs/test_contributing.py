"""CONTRIBUTING.md: its map lists every folder, and its worked examples work as they stand.

An example is a section: blocks with a path as their title are new files, diffs are changes. Here
each is applied to a copy of the package, linted, and its test is run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGE = ROOT / "src" / "millstream"

_SECTION = re.compile(r"^### (Add .+)\n((?:(?!##).*\n?)*)", re.MULTILINE)
_BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `([\w/]+)/` \| (.+\.) \|$", re.MULTILINE)


class Block(NamedTuple):
    """A new file, or a diff of an existing one."""

    language: str
    path: str
    text: str


def sections(document: str) -> dict[str, list[Block]]:
    return {
        found[1]: [Block(*block) for block in _BLOCK.findall(found[2])]
        for found in _SECTION.finditer(document)
    }


def apply(block: Block, tree: Path) -> None:
    """Write a new file, or replace each hunk of a diff where its old lines are, exactly once."""
    file = tree / block.path
    if block.language != "diff":
        assert not file.exists(), f"{block.path} exists already"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text)
        return
    text = file.read_text()
    for hunk in block.text.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(old) == 1, f"{block.path} has {text.count(old)} places like:\n{old}"
        text = text.replace(old, new)
    file.write_text(text)


def folders() -> Iterator[str]:
    for file in PACKAGE.rglob("__init__.py"):
        if file.parent != PACKAGE:
            yield file.parent.relative_to(PACKAGE).as_posix()


def test_the_map_has_one_sentence_for_every_folder() -> None:
    rows = _ROW.findall(CONTRIBUTING)

    assert sorted(name for name, _ in rows) == sorted(folders())
    assert all(len(sentence.split()) > 1 for _, sentence in rows)


def test_the_map_lists_the_layers_in_the_order_of_imports() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [name for layer in settings["contracts"][0]["layers"] for name in layer.split(" : ")]
    packages = [name for name in reversed(layers) if (PACKAGE / name).is_dir()]

    assert [name for name, _ in _ROW.findall(CONTRIBUTING) if "/" not in name] == packages


def test_there_is_an_example_of_everything_that_is_often_added() -> None:
    assert list(sections(CONTRIBUTING)) == [
        f"Add {what}" for what in ("a source", "a sink", "an operator", "an aggregate", "a command")
    ]


@pytest.mark.parametrize("title", sections(CONTRIBUTING))
def test_a_worked_example_works(title: str, tmp_path: Path) -> None:
    blocks = sections(CONTRIBUTING)[title]
    shutil.copytree(
        PACKAGE,
        tmp_path / "src" / "millstream",
        ignore=shutil.ignore_patterns("__pycache__", "dist"),
    )
    for block in blocks:
        apply(block, tmp_path)

    changed = [block.path for block in blocks]
    tests = [path for path in changed if path.startswith("tests/")]
    assert tests
    settings = f"--config={ROOT / 'pyproject.toml'}"
    succeed(["ruff", "check", "--no-cache", settings, *changed], tmp_path)
    succeed(["ruff", "format", "--no-cache", "--diff", settings, *changed], tmp_path)
    succeed(["pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *tests], tmp_path)


def succeed(command: list[str], tree: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("diff", ["-x = 2\n+x = 3\n", "-y\n+z\n"])
def test_a_diff_that_matches_nowhere_or_twice_is_refused(diff: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny\ny\n")

    with pytest.raises(AssertionError, match=r"a\.py has \d places"):
        apply(Block("diff", "a.py", diff), tmp_path)


def test_hunks_are_applied_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 2\nz = 3\n")

    apply(Block("diff", "a.py", " z = 3\n+u = 4\n@@\n-x = 1\n+x = 0\n y = 2\n"), tmp_path)

    assert (tmp_path / "a.py").read_text() == "x = 0\ny = 2\nz = 3\nu = 4\n"

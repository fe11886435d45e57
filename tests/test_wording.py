"""No banned word in the whole tree, and the list finds one wherever it is planted."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests import wording

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A new repository, because only files that git tracks are checked."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    return tmp_path


def offences(tree: Path, name: str, text: str) -> list[str]:
    """The banned words found when `text` is a tracked file of the tree."""
    file = tree / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    subprocess.run(["git", "add", "--all"], cwd=tree, check=True)
    found = wording.banned_words(tree, wording.checked_files(tree, ["."]))
    return [f"{offence.file}:{offence.line} {offence.word}" for offence in found]


# The planted words are put together here, so that this file contains none of them.
_SAID, _FIX, _OUT, _AGAIN = "to" + "ld", "me" + "nd", "o" + "ut", "a" + "new"


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("src/a.py", f'x = "the driver is {_SAID} about it"\n', _SAID),
        ("src/b.py", f'x = f"{{1}} could not {_FIX} the topic"\n', _FIX),
        ("src/c.py", f"x = 1  # a run that was shut {_OUT}\n", f"shut {_OUT}"),
        ("src/d.py", f"def was_{_SAID}(): ...\n", _SAID),
        ("src/e.py", f"class Is{_SAID.title()}By: ...\n", _SAID.title()),
        ("src/f.py", f"{_SAID}_rows = 1\n", _SAID),
        ("src/g.py", f'"""{_FIX.title()}ing of a topic."""\n', f"{_FIX.title()}ing"),
        ("tests/test_h.py", f"def test_topics_made_{_AGAIN}(): ...\n", _AGAIN),
        ("docs/i.md", f"A run shuts the earlier\none {_OUT}.\n", f"shuts the earlier one {_OUT}"),
        ("docs/l.md", f"A table of {_AGAIN} rows\n", _AGAIN),
        ("web/j.tsx", f"const was{_SAID.title()} = <p>…</p>;\n", _SAID.title()),
        ("Makefile", f"x: ; echo {_SAID}\n", _SAID),
    ],
)
def test_a_planted_word_is_found(tree: Path, name: str, text: str, word: str) -> None:
    [found] = offences(tree, name, text)

    assert found.partition(":")[0] == name
    assert found.partition(" ")[2] == word


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/a.py", "recommend = 'a household recommendation'\n"),
        ("src/b.py", "lesson, blest = 1, 2\n"),
        ("docs/c.md", "Amended pull requests.\n"),
        ("web/picture.png", _SAID),
    ],
)
def test_a_word_that_only_contains_a_banned_one_is_not(tree: Path, name: str, text: str) -> None:
    assert offences(tree, name, text) == []


def test_an_offence_says_what_to_write_instead(tree: Path) -> None:
    (tree / "a.py").write_text(f"x = 1\n{_SAID} = 2\n")

    [offence] = wording.banned_words(tree, ["a.py"])

    assert str(offence).startswith(f"a.py:2 {_SAID!r}; write: report")


def test_the_tree_holds_no_banned_word() -> None:
    found = wording.banned_words(wording.ROOT, wording.checked_files())

    assert [str(offence) for offence in found] == []


def test_every_exception_is_still_needed() -> None:
    for (file, word), reason in wording.ALLOWED.items():
        assert word in (wording.ROOT / file).read_text().lower()
        assert reason.strip()


@pytest.mark.parametrize("pattern", wording.BANNED)
def test_every_entry_of_the_list_is_a_pattern_with_a_suggestion(pattern: str) -> None:
    assert re.compile(pattern)
    assert wording.BANNED[pattern].strip()

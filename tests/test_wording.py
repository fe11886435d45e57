"""The list of banned words finds them wherever they are: in strings, comments, names and pages."""

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
    """A repository of its own, as the list looks only at files that git tracks."""
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
_TOLD, _MEND, _OUT = "to" + "ld", "me" + "nd", "o" + "ut"


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("src/a.py", f'x = "the driver is {_TOLD} about it"\n', _TOLD),
        ("src/b.py", f'x = f"{{1}} could not {_MEND} the topic"\n', _MEND),
        ("src/c.py", f"x = 1  # a run that was shut {_OUT}\n", f"shut {_OUT}"),
        ("src/d.py", f"def was_{_TOLD}(): ...\n", _TOLD),
        ("src/e.py", f"class Is{_TOLD.title()}By: ...\n", _TOLD.title()),
        ("src/f.py", f"{_TOLD}_rows = 1\n", _TOLD),
        ("src/g.py", f'"""{_MEND.title()}ing of a topic."""\n', f"{_MEND.title()}ing"),
        ("tests/test_h.py", f"def test_a_topic_that_is_made_a{'new'}_is_refused(): ...\n", "anew"),
        ("docs/i.md", f"A run shuts the earlier\none {_OUT}.\n", f"shuts the earlier one {_OUT}"),
        ("web/j.tsx", f"const was{_TOLD.title()} = <p>…</p>;\n", _TOLD.title()),
        ("Makefile", f"x: ; echo {_TOLD}\n", _TOLD),
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
        ("web/picture.png", _TOLD),
    ],
)
def test_a_word_that_only_contains_a_banned_one_is_not(tree: Path, name: str, text: str) -> None:
    assert offences(tree, name, text) == []


def test_an_offence_says_what_to_write_instead(tree: Path) -> None:
    (tree / "a.py").write_text(f"x = 1\n{_TOLD} = 2\n")

    [offence] = wording.banned_words(tree, ["a.py"])

    assert str(offence).startswith(f"a.py:2 {_TOLD!r}; write: report")


@pytest.mark.parametrize("pattern", wording.BANNED)
def test_every_entry_of_the_list_is_a_pattern_with_a_suggestion(pattern: str) -> None:
    assert re.compile(pattern)
    assert wording.BANNED[pattern].strip()

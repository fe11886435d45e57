"""Paths and links in the documents exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.links import leads

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "millstream"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TOP = {folder.name for base in (ROOT, PACKAGE) for folder in base.iterdir() if folder.is_dir()}

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"`([\w-]+/[\w./-]*)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def broken(text: str, document: Path) -> list[str]:
    """Paths of this repository that do not exist, and links to missing pages or headings."""
    prose = _FENCE.sub("", text)
    paths = [path for path in _PATH.findall(prose) if path.split("/")[0] in TOP]
    return [path for path in paths if not exists(path)] + [
        link for link in _LINK.findall(prose) if "://" not in link and not leads(link, document)
    ]


def exists(path: str) -> bool:
    """Whether a path exists in the repository or the package; records may be given by number."""
    bases = (ROOT, PACKAGE)
    return any((b / path).exists() or any(b.glob(f"{path.rstrip('/')}-*.md")) for b in bases)


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[path.relative_to(ROOT).as_posix() for path in DOCUMENTS]
)
def test_the_paths_and_links_of_a_document_lead_somewhere(document: Path) -> None:
    assert broken(document.read_text(), document) == []


def test_every_decision_record_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = _LINK.findall((folder / "README.md").read_text())

    assert index == sorted(file.name for file in folder.glob("0*.md"))


@pytest.mark.parametrize(
    "text",
    [
        "see `engine/no_such_module.py`",
        "see `tests/no_such_folder/`",
        "see `docs/decisions/0099`",
        "[gone](no-such-page.md)",
        "[gone](../README.md#no-such-heading)",
    ],
)
def test_broken_paths_and_links_are_found(text: str) -> None:
    assert len(broken(text, ROOT / "docs" / "jobs.md")) == 1


def test_code_blocks_and_other_folders_are_left_alone() -> None:
    text = "```\n`engine/nothing.py`\n```\n`counts/today.parquet`, <https://example.com/a/b>\n"

    assert broken(text, ROOT / "docs" / "jobs.md") == []

"""The glossary names what exists: modules, classes, metrics, public names, pages and records."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from tests.docs.links import leads

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "millstream"
GLOSSARY = ROOT / "docs" / "glossary.md"

_ENTRY = re.compile(r"^### (.+)\n((?:(?!### ).*\n?)*)", re.MULTILINE)
_NAMED = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)]+)\)")


def entries(text: str) -> dict[str, str]:
    """Each term with the text below it."""
    return {found[1]: found[2] for found in _ENTRY.finditer(text)}


def missing(text: str, document: Path = GLOSSARY) -> list[str]:
    """Names on the `In code:` lines, and links, that do not exist."""
    offences = []
    for term, body in entries(text).items():
        named = [
            name
            for line in body.splitlines()
            if line.startswith("In code: ")
            for name in _NAMED.findall(line)
        ]
        offences += [f"{term}: {name}" for name in named if not exists(name)]
        if not named:
            offences.append(f"{term}: no code")
        offences += [f"{term}: {link}" for link in _LINK.findall(body) if not leads(link, document)]
    return offences


def exists(name: str) -> bool:
    """Whether a path, public name, metric or identifier is part of the package."""
    if name.endswith(("/", ".py")):
        return (SRC / name).exists()
    if name.startswith("ms."):
        import millstream

        return name.removeprefix("ms.") in dir(millstream)
    if name.startswith("millstream_"):
        from millstream.console.metrics import HELP

        return name in HELP
    return name in identifiers()


@cache
def identifiers() -> frozenset[str]:
    """Classes and constants that a module of the package defines."""
    defined = re.compile(r"^(?:class (\w+)|([A-Za-z_]\w*)(?:: [^=]+)? = )", re.MULTILINE)
    return frozenset(
        found[1] or found[2]
        for file in SRC.rglob("*.py")
        for found in defined.finditer(file.read_text())
    )


def test_everything_the_glossary_names_exists() -> None:
    assert missing(GLOSSARY.read_text()) == []


def test_the_terms_are_many_distinct_and_in_alphabetical_order() -> None:
    terms = re.findall(r"^### (.+)$", GLOSSARY.read_text(), re.MULTILINE)

    assert len(terms) >= 60
    assert terms == sorted(set(terms), key=str.lower)


@pytest.mark.parametrize(
    "line",
    [
        "In code: `engine/no_such_module.py`",
        "In code: `no_such_folder/`",
        "In code: `ms.no_such_name`",
        "In code: `NoSuchClass`",
        "In code: `engine/` · Metric: `millstream_no_such_total`",
        "In code: `engine/` · Decided: [99](decisions/0099-none.md)",
        "In code: `engine/` · See [jobs](jobs.md#no-such-heading)",
        "No code at all.",
    ],
)
def test_a_name_or_a_link_that_does_not_exist_is_found(line: str) -> None:
    assert len(missing(f"### Term\nMeaning.\n{line}\n")) == 1

"""Every public name is listed with a status, and the list holds no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import millstream
import millstream.testing

PAGE = Path(__file__).parents[2] / "docs" / "public-names.md"
BUILTINS = {"max", "min", "sum"}  # public, but not part of `import *`

_ROW = re.compile(r"^\| `([\w.]+)` \| (\w+) \| .+ \|$", re.MULTILINE)


def listed(page: str) -> list[tuple[str, str]]:
    return [(name.replace("millstream.testing.", "testing."), s) for name, s in _ROW.findall(page)]


def public() -> set[str]:
    top = {f"ms.{name}" for name in {*millstream.__all__, *BUILTINS}}
    return top | {f"testing.{name}" for name in millstream.testing.__all__}


def test_the_page_lists_exactly_the_public_names() -> None:
    names = [name for name, _ in listed(PAGE.read_text())]

    assert sorted(names) == sorted(public())


def test_every_name_is_stable_or_experimental() -> None:
    assert {status for _, status in listed(PAGE.read_text())} == {"stable", "experimental"}


@pytest.mark.parametrize("name", sorted({*millstream.__all__, *BUILTINS}))
def test_every_public_name_can_be_reached(name: str) -> None:
    assert getattr(millstream, name) is not None


def test_what_dir_shows_is_public_or_a_part_of_the_module() -> None:
    shown = {name for name in dir(millstream) if not name.startswith("_")}
    modules = {file.stem for file in Path(millstream.__path__[0]).iterdir()}

    assert shown - modules - {"annotations", "TYPE_CHECKING", "Any"} == {
        *millstream.__all__,
        *BUILTINS,
    }

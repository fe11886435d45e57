"""Errors: one sentence of three clauses, one exit code, one familiar parent."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING

import pytest

from millstream import errors
from millstream.errors import InvalidSpec, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator


def kinds(parent: type[MillstreamError] = MillstreamError) -> Iterator[type[MillstreamError]]:
    yield parent
    for child in parent.__subclasses__():
        yield from kinds(child)


OURS = [kind for kind in kinds() if kind.__module__ == errors.__name__]


def test_a_message_is_need_got_and_do_in_one_sentence() -> None:
    error = InvalidSpec("tumbling needs a size", got="'0 s'", do='write tumbling("10 s")')

    assert str(error) == "tumbling needs a size; got '0 s'; write tumbling(\"10 s\")"
    assert (error.need, error.got, error.do) == (
        "tumbling needs a size",
        "'0 s'",
        'write tumbling("10 s")',
    )


@pytest.mark.parametrize(
    ("got", "do", "expected"),
    [(None, None, "need"), ("it", None, "need; got it"), (None, "act", "need; act"),
     ("", None, "need; got ")],
)  # fmt: skip
def test_an_empty_clause_is_omitted(got: str | None, do: str | None, expected: str) -> None:
    assert str(MillstreamError("need", got=got, do=do)) == expected


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_the_tree_in_the_docstring_matches_the_classes(kind: type[MillstreamError]) -> None:
    line = re.search(
        rf"^.*\b{kind.__name__} .*exit (\d+)(?: +\((\w+)\))?$", errors.__doc__ or "", re.M
    )

    assert line is not None, f"{kind.__name__} is not drawn"
    assert kind.exit_code == int(line[1])
    familiar = [parent.__name__ for parent in kind.__bases__ if parent.__module__ == "builtins"]
    assert [name for name in familiar if name != "Exception"] == ([line[2]] if line[2] else [])


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_an_error_can_be_pickled(kind: type[MillstreamError]) -> None:
    error = kind("need", got="it", do="act")

    again = pickle.loads(pickle.dumps(error))

    assert type(again) is kind
    assert str(again) == "need; got it; act"
    assert (again.need, again.got, again.do) == ("need", "it", "act")


def test_the_tree_names_only_existing_classes() -> None:
    drawn = re.findall(r"^[ │├└─]+(\w+) .*exit \d+", errors.__doc__ or "", re.MULTILINE)

    assert sorted(drawn) == sorted(kind.__name__ for kind in OURS)

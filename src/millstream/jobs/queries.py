"""Asking a job's state: the value of one key, and the batch it is true for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidInput
from millstream.jobs.registry import Book

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.engine.inspection.inspect import States
    from millstream.jobs.folders import StackPlace

_TRIES = 5


def state(place: StackPlace, name: str) -> dict[str, Any]:
    """What the steps of a job remember, as of its last commit.

    Raises:
        NotFound: no such job, or it has no checkpoint yet.
    """
    from millstream.engine.inspection.inspect import looked_at, states

    told = states(looked_at(_checkpoint(place, name)))
    return {"job": name, "batch": told.batch, "at": _text(told.at), "steps": _plain(told.steps)}


def state_of_key(place: StackPlace, name: str, step: str, key: Sequence[str]) -> dict[str, Any]:
    """What one step remembers of one key; `key` is `NAME=VALUE` for each of its columns.

    A step with one key column takes the bare value too.

    Raises:
        NotFound: no such job or step.
        InvalidInput: the key is not one of that step.
    """
    from millstream.engine.inspection.inspect import looked_at, of_key, spec_on_disk, states

    found = looked_at(_checkpoint(place, name))
    known = [row["step"] for row in states(found).steps]
    wanted = pairs(key, spec_on_disk(found, step)["keys"] if step in known else [])
    told = _while_it_runs(lambda: of_key(found, step, wanted))
    return {"job": name, "step": step, "key": wanted, "batch": told.batch, "at": _text(told.at),
            "rows": _plain(told.steps)}  # fmt: skip


def _while_it_runs(ask: Callable[[], States]) -> States:
    """A job that runs may sweep a file between its naming and its reading: then newer ones are
    there, and asking again finds them."""
    for _ in range(_TRIES):
        try:
            return ask()
        except FileNotFoundError:
            continue
    return ask()


def pairs(texts: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping.

    >>> pairs(["auction=7"], ["auction"]), pairs(["a=b"], ["page"])
    ({'auction': '7'}, {'page': 'a=b'})
    """
    wanted: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if len(names) == 1 and (not equals or name not in names):
            name, value = names[0], text
        elif not equals:
            raise InvalidInput(f"key needs NAME=VALUE for {', '.join(names)}", got=repr(text))
        if name in wanted:
            raise InvalidInput("key needs each name once", got=repr(text))
        wanted[name] = value
    return wanted


def _checkpoint(place: StackPlace, name: str) -> Path:
    with Book(place.book, read_only=True) as book:
        return Path(book.job(name).checkpoint)


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: _text(value) for name, value in row.items()} for row in rows]


def _text(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)

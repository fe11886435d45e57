"""The `on` of a join: which column of the left is compared with which of the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from millstream.errors import InvalidSpec

On = str | Sequence[str] | Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]


def pairs(on: On, *, step: str) -> Pairs:
    """The pairs of column names (left, right) of the user's `on`.

    >>> pairs({"user": "id"}, step="join")
    (('user', 'id'),)

    Raises:
        InvalidSpec: no name, something that is not a name, or a name twice on one side.
    """
    found = [(on, on)] if isinstance(on, str) else _several(on)
    if not found or not all(isinstance(n, str) and n.strip() for pair in found for n in pair):
        raise InvalidSpec(
            f"the `on` of {step} needs a column, a list of them, or a dict of left to right",
            got=repr(on),
            do=f'write {step}(…, on="id") or {step}(…, on={{"user": "id"}})',
        )
    for side in zip(*found, strict=True):
        twice = sorted({name for name in side if side.count(name) > 1})
        if twice:
            raise InvalidSpec(
                f"the `on` of {step} needs each column once on its side",
                got=", ".join(twice),
                do="name it once",
            )
    return tuple(found)


def _several(on: object) -> list[tuple[str, str]]:
    if isinstance(on, Mapping):
        return list(on.items())
    if isinstance(on, Sequence):
        return [(name, name) for name in on]
    return []


def said(on: Pairs) -> str:
    """The pairs as a user would write them."""
    if all(left == right for left, right in on):
        return repr(on[0][0]) if len(on) == 1 else repr([left for left, _ in on])
    return repr(dict(on))


def said_suffix(suffix: str | None) -> str:
    """The suffix as a user would write it, after other arguments."""
    return "" if suffix is None else f', suffix="{suffix}"'


def check_how(how: object, kinds: object, *, step: str) -> None:
    """Refuse an unsupported kind of join."""
    known = get_args(kinds)
    if how not in known:
        raise InvalidSpec(
            f"the `how` of {step} needs one of {', '.join(known)}",
            got=repr(how),
            do=f'write {step}(…, how="left"), or leave it out for "inner"',
        )


def need_whole_key(on: Pairs, key: Sequence[str], *, step: str) -> None:
    """Refuse columns of a table that are not its key: several of its rows could match."""
    if {theirs for _, theirs in on} != set(key):
        columns = ", ".join(f'"column of the left": "{name}"' for name in key)
        raise InvalidSpec(
            f"{step} needs the whole key of the right table",
            got=f"on={said(on)}, where its key is {', '.join(key)}",
            do=f"name each of its columns: on={{{columns}}}",
        )

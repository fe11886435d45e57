"""Names of topics and groups: which are valid, and suggestions for misspelled ones."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from millstream.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST = 249


def check_topic(name: object) -> str:
    """The name, if it is a valid topic name.

    >>> check_topic("bids.late")
    'bids.late'
    """
    if isinstance(name, str) and _LEGAL.fullmatch(name) and name not in {".", ".."}:
        if len(name) <= _LONGEST:
            return name
        raise InvalidInput(
            f"a topic name needs at most {_LONGEST} characters",
            got=f"{len(name)}, beginning {name[:40]!r}",
            do="shorten it",
        )
    raise InvalidInput(
        "a topic name needs letters, digits, '.', '_' and '-' only",
        got=repr(name),
        do="choose another name",
    )


def check_group(name: object) -> str:
    """The name, if it is a valid group name: text that is not blank and has no zero byte."""
    if isinstance(name, str) and name.strip() and "\0" not in name:
        return name
    raise InvalidInput("a group needs a name", got=repr(name), do='write for instance "reports"')


def no_such(kind: str, name: str, existing: Iterable[str], *, do: str | None = None) -> NotFound:
    """The error for a name that does not exist, with similar names."""
    names = sorted(existing)
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        advice = "did you mean " + " or ".join(near) + "?"
    else:
        advice = do or (f"there are {', '.join(names[:10])}" if names else f"there is no {kind}")
    return NotFound(f"the {kind} {name} does not exist", do=advice)

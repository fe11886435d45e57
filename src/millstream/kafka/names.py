"""Names on the log: what a topic or group may be called, and which one was meant."""

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
    """The name, if Kafka can have a topic of that name.

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
    """The name, if a group can have it: any text that is not empty and has no zero in it."""
    if isinstance(name, str) and name.strip() and "\0" not in name:
        return name
    raise InvalidInput("a group needs a name", got=repr(name), do='write for instance "reports"')


def no_such(kind: str, name: str, existing: Iterable[str], *, do: str | None = None) -> NotFound:
    """The error for a name that does not exist, with the names near it."""
    names = sorted(existing)
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        advice = "did you mean " + " or ".join(near) + "?"
    else:
        advice = do or (f"there are {', '.join(names[:10])}" if names else f"there is no {kind}")
    return NotFound(f"the {kind} {name} does not exist", do=advice)

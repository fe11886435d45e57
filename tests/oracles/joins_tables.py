"""The join of two tables in plain Python: the whole view, recomputed from both tables."""

from __future__ import annotations

from typing import Any

from tests.oracles.joins import sane

Row = dict[str, Any]


def view(
    left: list[Row], right: list[Row], *, on: list[tuple[str, str]], how: str
) -> list[tuple[Row | None, Row | None]]:
    """All pairs, and rows alone where `how` shows them; null matches nothing."""
    found: list[tuple[Row | None, Row | None]] = []
    met: set[int] = set()
    for ours in left:
        mine = [theirs for theirs in right if all(_equal(ours[a], theirs[b]) for a, b in on)]
        found += [(ours, theirs) for theirs in mine]
        met |= {id(theirs) for theirs in mine}
        if not mine and how in ("left", "full"):
            found.append((ours, None))
    if how in ("right", "full"):
        found += [(None, theirs) for theirs in right if id(theirs) not in met]
    return found


def _equal(left: Any, right: Any) -> bool:
    return left is not None and right is not None and bool(sane(left) == sane(right))

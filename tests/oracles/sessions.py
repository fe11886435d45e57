"""Session windows said again in plain Python, row by row, from DESIGN §3 alone.

A batch first takes its rows in, then closes what its watermark allows. A session closes
when the watermark is beyond its last time + gap. Bounds beyond 64 bits are the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LEAST, GREATEST = -(2**63), 2**63 - 1
Row = dict[str, Any]


@dataclass
class Batch:
    """Rows (with `_time`, perhaps `_sign`), the watermarks before and after, and the clock."""

    rows: list[Row]
    before: int
    after: int
    clock: int = 0


@dataclass
class Left:
    """What must leave in one batch: panes as dicts, late rows."""

    panes: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)


def chains(rows: list[Row], gap: int) -> list[list[Row]]:
    """Rows of one key, parted where more than the gap lies between one and the next."""
    found: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: int(row["_time"])):
        if found and row["_time"] - found[-1][-1]["_time"] <= gap:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def beyond(watermark: int, time: int) -> bool:
    """Whether a watermark is beyond a time; at the end of time it is beyond all."""
    return watermark > time or watermark == GREATEST


def once(batches: list[Batch], *, gap: int, key: str, value: str) -> list[Left]:
    """Every session when it closes, and the late rows, batch by batch."""
    open_rows: dict[Any, list[Row]] = {}
    lefts = []
    for batch in batches:
        left = Left()
        keys = [*open_rows, *(row[key] for row in batch.rows if row[key] not in open_rows)]
        for name in dict.fromkeys(keys):
            known = open_rows.pop(name, [])
            new = [row for row in batch.rows if row[key] == name]
            for chain in chains(known + new, gap):
                end = chain[-1]["_time"] + gap
                if not any(row is old for row in chain for old in known) and beyond(
                    batch.before, end
                ):
                    left.late += chain
                elif beyond(batch.after, end):
                    left.panes.append({key: name, **shown(chain, gap, value)})
                else:
                    open_rows.setdefault(name, []).extend(chain)
        lefts.append(left)
    return lefts


def shown(rows: list[Row], gap: int, value: str) -> Row:
    """The bounds and the aggregates of a session: n, total, least, most."""
    values = [row[value] for row in rows if row[value] is not None]
    return {
        "window_start": rows[0]["_time"],
        "window_end": min(rows[-1]["_time"] + gap, GREATEST),
        "n": len(rows),
        "total": sum(values) if values else None,
        "least": min(values, default=None),
        "most": max(values, default=None),
    }

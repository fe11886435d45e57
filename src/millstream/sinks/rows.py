"""Staged rows: the user's columns, retractions, and the last change per key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidSpec
from millstream.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.sinks.spec import Staged

SIGN = "_sign"
RETRACT = "retract"
CHUNK = 50_000
_POSITION = "_position"


def columns_of(table: pa.Table) -> list[str]:
    """The names of the user's columns; internal columns begin with `_`."""
    return [name for name in table.column_names if not name.startswith("_")]


def visible(table: pa.Table) -> pa.Table:
    """The user's columns, cast to the types of the schema."""
    user = table.select(columns_of(table))
    loose = [pa.field(part.name, part.type) for part in Schema.from_arrow(user.schema).arrow()]
    return user.cast(pa.schema(loose)).combine_chunks()


def chunks(staged: Staged, size: int = CHUNK) -> Iterator[pa.Table]:
    """The rows of an output in order, at most `size` at a time."""
    for table in staged.tables():
        for start in range(0, table.num_rows, size):
            yield table.slice(start, size)


def appended(staged: Staged, size: int = CHUNK) -> Iterator[pa.Table]:
    """The rows for a sink that only appends.

    Retractions are appended like other rows if the column `retract` marks them.

    Raises:
        InvalidSpec: there are retractions, and no column marks them.
    """
    for table in chunks(staged, size):
        signed = SIGN in table.column_names and RETRACT not in table.column_names
        if signed and pc.min(table[SIGN]).as_py() < 0:
            raise InvalidSpec(
                f"the output {staged.output!r} needs a sink with key=, because it retracts rows",
                got=f"{staged.sink!r}, which only appends",
                do='set key=[…], or mark retractions: .trigger(panes="retracting")',
            )
        yield visible(table)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a keyed table: each key occurs once, in one of the two tables."""

    upserts: pa.Table
    deletes: pa.Table


def changes(staged: Staged, keys: tuple[str, ...], size: int = CHUNK) -> Iterator[Changes]:
    """The last change of each key, per chunk: an upsert, or a delete (sign −1)."""
    for table in chunks(staged, size):
        _check_keys(staged, keys, table)
        last = _last_per_key(table, keys)
        if SIGN not in last.column_names:
            yield Changes(visible(last), visible(last.slice(0, 0)).select(keys))
            continue
        upserted = pc.greater(last[SIGN], 0)
        deleted = last.filter(pc.invert(upserted))
        yield Changes(visible(last.filter(upserted)), visible(deleted).select(keys))


def _last_per_key(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    positions = pa.array(np.arange(table.num_rows))
    keyed = table.select(keys).append_column(_POSITION, positions)
    last = keyed.group_by(list(keys)).aggregate([(_POSITION, "max")])[f"{_POSITION}_max"]
    if len(last) == table.num_rows:
        return table
    return table.take(pa.array(np.sort(last.to_numpy())))


def _check_keys(staged: Staged, keys: tuple[str, ...], table: pa.Table) -> None:
    missing = [key for key in keys if key not in table.column_names]
    if missing:
        raise InvalidSpec(
            f"{staged.sink!r} needs its key among the columns of the output {staged.output!r}",
            got=f"no column {', '.join(missing)}",
            do=f"choose among {', '.join(columns_of(table))}",
        )

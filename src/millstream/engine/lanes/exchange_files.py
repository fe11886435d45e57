"""The shuffle between the two jobs of a wide batch: Arrow files, one per task that read rows.

A file holds the record batches of all parts of the state, one part after the other. It is deleted
after its batch, and no checkpoint record names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One task's file: the side of the step, and the number of record batches per part.

    With `broadcast` the file has one part, which every part of the state reads.
    """

    file: str
    side: int
    parts: tuple[int, ...]
    bytes: int
    broadcast: bool = False

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        return cls(**{**body, "parts": tuple(body["parts"])})


def write(
    path: Path, parts: Sequence[Sequence[pa.Table]], side: int, *, broadcast: bool = False
) -> Exchanged:
    """Write the tables of every part of the state to one file."""
    schema = next(table.schema for tables in parts for table in tables)
    size, counts = 0, []
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, schema) as writer:
        for tables in parts:
            batches = [batch for table in tables for batch in table.to_batches()]
            for batch in batches:
                writer.write_batch(batch)
                size += batch.nbytes
            counts.append(len(batches))
    return Exchanged(path.name, side, tuple(counts), size, broadcast)


def sides(
    folder: Path, exchanged: Sequence[Exchanged], part: int | None = None, *, count: int = 1
) -> list[list[pa.Table]]:
    """The exchanged tables for one part of the state, or for all of them, by side of the step.

    A step has `count` sides; broadcast tables are one more side after them.
    """
    sides: list[list[pa.Table]] = [[] for _ in range(count)]
    for one in exchanged:
        while len(sides) <= one.side:
            sides.append([])
        whole = part is None or one.broadcast
        first = 0 if whole else sum(one.parts[:part])
        last = sum(one.parts) if part is None or one.broadcast else first + one.parts[part]
        if last > first:
            with pa.memory_map(str(folder / one.file)) as source:
                reader = pa.ipc.open_file(source)
                batches = [reader.get_batch(place) for place in range(first, last)]
            sides[one.side].append(pa.Table.from_batches(batches))
    return sides


def remove(folder: Path, exchanged: Sequence[Exchanged]) -> None:
    """Remove the files after the batch."""
    for one in exchanged:
        (folder / one.file).unlink(missing_ok=True)

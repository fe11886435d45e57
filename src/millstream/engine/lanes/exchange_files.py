"""The exchange by Arrow files in the checkpoint's folder, one per task that reads rows.

A file holds the record batches of all parts of the state, one part after the other. It is deleted
after its batch, and no checkpoint record names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.engine.lanes.exchange import Exchanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.engine.lanes.work import Files


@dataclass(frozen=True)
class ExchangeFiles:
    """The exchange files of one stage of a batch."""

    files: Files

    def send(
        self, parts: Sequence[Sequence[pa.Table]], side: int, *, broadcast: bool = False
    ) -> Exchanged:
        """Write the tables of every part of the state to one file."""
        name = self.files.name("exchange")
        schema = next(table.schema for tables in parts for table in tables)
        size, counts = 0, []
        path = str(self.files.staged / name)
        with pa.OSFile(path, "wb") as out, pa.ipc.new_file(out, schema) as writer:
            for tables in parts:
                batches = [batch for table in tables for batch in table.to_batches()]
                for batch in batches:
                    writer.write_batch(batch)
                    size += batch.nbytes
                counts.append(len(batches))
        return Exchanged(name, side, tuple(counts), size, broadcast)

    def receive(
        self, exchanged: Sequence[Exchanged], part: int, sides: int
    ) -> list[list[pa.Table]]:
        """Map the record batches of one part of the state."""
        found: list[list[pa.Table]] = [[] for _ in range(sides)]
        for one in exchanged:
            while len(found) <= one.side:
                found.append([])
            first = 0 if one.broadcast else sum(one.parts[:part])
            last = sum(one.parts) if one.broadcast else first + one.parts[part]
            if last > first:
                with pa.memory_map(str(self.files.staged / one.name)) as source:
                    reader = pa.ipc.open_file(source)
                    batches = [reader.get_batch(place) for place in range(first, last)]
                found[one.side].append(pa.Table.from_batches(batches))
        return found

    def remove(self, exchanged: Sequence[Exchanged]) -> None:
        """Delete the files."""
        for one in exchanged:
            (self.files.staged / one.name).unlink(missing_ok=True)

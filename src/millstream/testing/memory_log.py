"""Topics in memory and sinks that remember: what Drive has in the place of Kafka."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.plan.columns import record_keys
from millstream.plan.graph import Node, Stateful
from millstream.sinks.memory import visible
from millstream.sources.memory import Memory
from millstream.sources.rows_reader import RowsReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.plan.graph import Output
    from millstream.sinks.spec import Staged

Row = dict[str, Any]


@dataclass
class MemoryLog:
    """Records by topic and partition; an offset is a place in a list."""

    records: dict[str, dict[int, list[Row]]] = field(default_factory=dict)

    def append(self, topic: str, partition: int, record: Row) -> None:
        """One more record: key, value, headers, and a timestamp or None.

        Without a timestamp, its event time is never too far ahead of it.
        """
        part = self.partition(topic, partition)
        part.append({**record, "partition": partition, "offset": len(part)})

    def partition(self, topic: str, partition: int) -> list[Row]:
        """One partition, there from the moment it is first named."""
        return self.records.setdefault(topic, {}).setdefault(partition, [])

    def partitions(self, topic: str) -> dict[int, list[Row]]:
        """A topic as it is now; one that nothing was fed to has one empty partition."""
        parts = self.records.setdefault(topic, {})
        if not parts:
            parts[0] = []
        return parts


class MemoryReader(RowsReader):
    """One topic in memory, read as raw records."""

    def __init__(self, log: MemoryLog, topic: str) -> None:
        super().__init__(lambda: log.partitions(topic))


@dataclass(frozen=True)
class Left:
    """Rows that left in one batch by one door, in the order they are shown."""

    output: str
    door: str
    rows: list[Row]


class RecordingWriter:
    """Keeps what leaves, each batch once, in one place for all doors."""

    def __init__(
        self, ledger: dict[str, str], left: list[list[Left]], outputs: Sequence[Output]
    ) -> None:
        self._ledger, self._left = ledger, left
        self._keys = {output.name: order_of(output.input) for output in outputs}

    def recover(self, expected: str | None) -> str | None:
        """The intent written last."""
        return self._ledger.get("drive")

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Keep a batch's rows; those for a `Memory` are in its list, too."""
        kept = [Left(staged.output, staged.kind, self._rows(staged)) for staged in outputs]
        for staged, left in zip(outputs, kept, strict=True):
            if isinstance(staged.sink, Memory):
                staged.sink.rows.extend(left.rows)
        self._left.append(kept)
        self._ledger["drive"] = intent

    def _rows(self, staged: Staged) -> list[Row]:
        rows = [row for table in staged.tables() for row in table.to_pylist()]
        if staged.is_table:
            rows = _last_of_each(rows, staged.keys)
        if staged.kind == "late":
            rows.sort(key=lambda row: tuple(row["origin"].values()))
        elif staged.kind == "dead":
            rows.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
        elif (keys := self._keys[staged.output]) is not None:
            rows.sort(key=lambda row: [_rank(row.get(name)) for name in (*keys, "_time")])
        return [_told(row) for row in rows]

    def close(self) -> None:
        """Nothing is held."""


def _last_of_each(changes: list[Row], keys: Sequence[str]) -> list[Row]:
    """What a batch makes of each key of a table, as sinks hold it: its new row, or its end."""
    if not keys:
        return changes
    of_key: dict[str, list[Row]] = {}
    for row in changes:
        of_key.setdefault(repr([row[key] for key in keys]), []).append(row)
    return [rows[-1] for rows in of_key.values()
            if not (rows[0]["_sign"] > 0 > rows[-1]["_sign"])]  # fmt: skip


def _told(row: Row) -> Row:
    """A row as it left; one that takes an earlier one back says so, by `retract` or `_sign`."""
    (told,) = visible([row])
    taken = row.get("_sign") == -1 and "retract" not in told
    return {**told, "_sign": -1} if taken else told


def order_of(node: Node) -> tuple[str, ...] | None:
    """The columns that rows of one batch are shown by: the operator's keys, then the window.

    None for rows that no operator made: they are shown in the order they were fed.
    """
    below = [node]
    while below:
        found = below.pop()
        if isinstance(found, Stateful):
            return record_keys(node) or tuple(node.columns or ())
        below += found.inputs
    return None


def _rank(value: Any) -> tuple[Any, ...]:
    """Nulls first, then values as they are, NaN last; nested ones by their text."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, repr(value) if isinstance(value, dict | list) else value)

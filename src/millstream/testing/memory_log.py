"""Topics in memory and a writer that records rows: what `Drive` uses instead of Kafka."""

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
    """Records by topic and partition; an offset is an index into a list."""

    records: dict[str, dict[int, list[Row]]] = field(default_factory=dict)

    def append(self, topic: str, partition: int, record: Row) -> None:
        """Append a record: key, value, headers, and a timestamp or None.

        Without a timestamp, its event time is never too far in the future.
        """
        part = self.partition(topic, partition)
        part.append({**record, "partition": partition, "offset": len(part)})

    def partition(self, topic: str, partition: int) -> list[Row]:
        """One partition, created on first use."""
        return self.records.setdefault(topic, {}).setdefault(partition, [])

    def partitions(self, topic: str) -> dict[int, list[Row]]:
        """The partitions of a topic; a new topic has one empty partition."""
        parts = self.records.setdefault(topic, {})
        if not parts:
            parts[0] = []
        return parts


class MemoryReader(RowsReader):
    """One topic in memory, read as raw records."""

    def __init__(self, log: MemoryLog, topic: str) -> None:
        super().__init__(lambda: log.partitions(topic))


@dataclass(frozen=True)
class Emitted:
    """Rows of one batch and kind (result, late or dead), in the order they are shown."""

    output: str
    kind: str
    rows: list[Row]


class RecordingWriter:
    """Keeps the rows of all outputs, late rows and dead rows, each batch once."""

    def __init__(
        self, ledger: dict[str, str], emitted: list[list[Emitted]], outputs: Sequence[Output]
    ) -> None:
        self._ledger, self._emitted = ledger, emitted
        self._keys = {output.name: order_of(output.input) for output in outputs}

    def recover(self, expected: str | None) -> str | None:
        """The intent of the last write."""
        return self._ledger.get("drive")

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Keep a batch's rows; those for a `Memory` are also appended to its list."""
        kept = [Emitted(staged.output, staged.kind, self._rows(staged)) for staged in outputs]
        for staged, emitted in zip(outputs, kept, strict=True):
            if isinstance(staged.sink, Memory):
                staged.sink.rows.extend(emitted.rows)
        self._emitted.append(kept)
        self._ledger["drive"] = intent

    def _rows(self, staged: Staged) -> list[Row]:
        rows = [row for table in staged.tables() for row in table.to_pylist()]
        if staged.is_table:
            rows = _last_changes(rows, staged.keys)
        if staged.kind == "late":
            rows.sort(key=lambda row: tuple(row["origin"].values()))
        elif staged.kind == "dead":
            rows.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
        elif (keys := self._keys[staged.output]) is not None:
            rows.sort(key=lambda row: [_rank(row.get(name)) for name in (*keys, "_time")])
        return [_visible(row) for row in rows]

    def close(self) -> None:
        """There is nothing to close."""


def _last_changes(changes: list[Row], keys: Sequence[str]) -> list[Row]:
    """The last change of each key of a table, as a keyed sink applies it."""
    if not keys:
        return changes
    of_key: dict[str, list[Row]] = {}
    for row in changes:
        of_key.setdefault(repr([row[key] for key in keys]), []).append(row)
    return [rows[-1] for rows in of_key.values()
            if not (rows[0]["_sign"] > 0 > rows[-1]["_sign"])]  # fmt: skip


def _visible(row: Row) -> Row:
    """The user columns of a row; a retraction is marked by `retract` or `_sign`."""
    (shown,) = visible([row])
    retracted = row.get("_sign") == -1 and "retract" not in shown
    return {**shown, "_sign": -1} if retracted else shown


def order_of(node: Node) -> tuple[str, ...] | None:
    """The columns by which rows of a batch are sorted: the operator's keys, then the window.

    None for rows without a stateful operator: they keep the order in which they were fed.
    """
    below = [node]
    while below:
        found = below.pop()
        if isinstance(found, Stateful):
            return record_keys(node) or tuple(node.columns or ())
        below += found.inputs
    return None


def _rank(value: Any) -> tuple[Any, ...]:
    """A sort key: nulls first, then values, NaN last; nested values by their text."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, repr(value) if isinstance(value, dict | list) else value)

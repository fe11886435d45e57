"""`Memory` as a sink: rows are kept in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.sources.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sinks.spec import Staged


class MemoryWriter:
    """Appends the rows of each batch to their `Memory` sinks, once."""

    def __init__(self, ledger: dict[str, str]) -> None:
        self._ledger = ledger

    def recover(self, expected: str | None) -> str | None:
        """Return the intent written last in this process."""
        return self._ledger.get("memory")

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Append the rows of a batch."""
        for staged in outputs:
            rows = [row for table in staged.tables() for row in visible(table.to_pylist())]
            assert isinstance(staged.sink, Memory)
            staged.sink.rows.extend(rows)
        self._ledger["memory"] = intent

    def close(self) -> None:
        """Nothing to close."""


def visible(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the engine's internal columns."""
    return [{k: v for k, v in row.items() if not k.startswith("_")} for row in rows]

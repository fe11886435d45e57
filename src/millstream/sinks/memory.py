"""`Memory` as a sink: rows kept in this process, for trying things out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.sources.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sinks.spec import Staged


class MemoryWriter:
    """Puts each batch's rows into their `Memory` sinks, once."""

    def __init__(self, ledger: dict[str, str]) -> None:
        self._ledger = ledger

    def recover(self, expected: str | None) -> str | None:
        """The intent taken last in this process."""
        return self._ledger.get("memory")

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Take a batch's rows."""
        for staged in outputs:
            rows = [row for table in staged.tables() for row in visible(table.to_pylist())]
            assert isinstance(staged.sink, Memory)
            staged.sink.rows.extend(rows)
        self._ledger["memory"] = intent

    def close(self) -> None:
        """Nothing is held."""


def visible(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the engine's own columns."""
    return [{k: v for k, v in row.items() if not k.startswith("_")} for row in rows]

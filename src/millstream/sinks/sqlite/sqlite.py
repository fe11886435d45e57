"""`Sqlite`: a table in a SQLite file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.sinks.keys import keys_of

if TYPE_CHECKING:
    from millstream.sinks.spec import Opening, Writer


@dataclass(frozen=True)
class Sqlite:
    """A table in a SQLite file; a missing file or table is created.

    Without `key` the sink appends. With `key`, a row replaces the row with the same key, and a
    retraction deletes it. Times are ISO text in UTC; decimals and nested values are text as in
    JSON.

    >>> Sqlite("out.db", "hot", key="auction").keys
    ('auction',)
    """

    path: str | Path
    table: str
    key: str | list[str] | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | Path) or not str(self.path):
            raise InvalidSpec("Sqlite needs a file path", got=repr(self.path),
                              do='write Sqlite("out.db", "table")')  # fmt: skip
        if not isinstance(self.table, str) or not self.table or "\0" in self.table:
            raise InvalidSpec("Sqlite needs a table name", got=repr(self.table),
                              do=f'write Sqlite({str(self.path)!r}, "table")')  # fmt: skip
        object.__setattr__(self, "key", keys_of(self.key, "Sqlite") or None)

    @property
    def name(self) -> str:
        """The default name of an output that writes here."""
        return self.table

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; empty for a table that only appends."""
        return keys_of(self.key, "Sqlite")

    @property
    def system(self) -> str:
        """All tables of one file commit together."""
        return f"sqlite {self.path}"

    def writer(self, opening: Opening) -> Writer:
        """Return a writer for the file."""
        from millstream.sinks.sqlite.database import SqliteDatabase
        from millstream.sinks.tables.writer import TableWriter

        return TableWriter(SqliteDatabase(Path(self.path)), opening)

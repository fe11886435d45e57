"""`Postgres`: a table in a PostgreSQL database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.kafka import secrets
from millstream.sinks.keys import keys_of

if TYPE_CHECKING:
    from millstream.sinks.spec import Opening, Writer

DEFAULT = "${env:DATABASE_URL}"


@dataclass(frozen=True)
class Postgres:
    """A table in a PostgreSQL database; a missing table is created.

    Without `key` the sink appends. With `key`, a row replaces the row with the same key, and a
    retraction deletes it. `table` may name a schema: `"shop.hot"`. `url` is an address or a
    reference to one, `${env:SHOP_URL}`, which is resolved when the database is opened; the
    default is `DATABASE_URL`.

    >>> Postgres("hot", key=["auction", "window_start"], url="postgresql://me:secret@db/shop")
    Postgres('hot', key=('auction', 'window_start'), url='postgresql://me:***@db/shop')
    """

    table: str
    key: str | list[str] | tuple[str, ...] | None = None
    url: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        parts = self.table.split(".") if isinstance(self.table, str) else []
        if not 1 <= len(parts) <= 2 or not all(parts) or "\0" in self.table:
            raise InvalidSpec("Postgres needs a table name, with or without a schema",
                              got=repr(self.table), do='write Postgres("shop.hot")')  # fmt: skip
        if self.url is not None and (not isinstance(self.url, str) or not self.url.strip()):
            raise InvalidSpec("Postgres needs an address as url=", got=repr(self.url),
                              do='write url="${env:SHOP_URL}", or leave it out')  # fmt: skip
        object.__setattr__(self, "key", keys_of(self.key, "Postgres") or None)

    def __repr__(self) -> str:
        more = f", key={self.key!r}" if self.key else ""
        return f"Postgres({self.table!r}{more}, url={self.shown!r})"

    @property
    def name(self) -> str:
        """The default name of an output that writes here."""
        return self.table

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; empty for a table that only appends."""
        return keys_of(self.key, "Postgres")

    @property
    def shown(self) -> str:
        """The address without its password; references are not resolved."""
        return secrets.masked_address(self.url or DEFAULT)

    @property
    def system(self) -> str:
        """All tables of one database commit together."""
        return f"postgres {self.shown}"

    def writer(self, opening: Opening) -> Writer:
        """Return a writer for the database."""
        from millstream.sinks.postgres.database import PostgresDatabase
        from millstream.sinks.tables.writer import TableWriter

        return TableWriter(PostgresDatabase(self.url or DEFAULT, self.shown), opening)

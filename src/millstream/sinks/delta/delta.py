"""`Delta`: a Delta Lake table in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.sinks.keys import keys_of

if TYPE_CHECKING:
    from millstream.sinks.spec import Opening, Writer


@dataclass(frozen=True)
class Delta:
    """A Delta Lake table in a folder; a missing table is created.

    Without `key` the sink appends. With `key`, a row replaces the row with the same key, and a
    retraction deletes it; this is a merge, which reads the files that contain those keys.

    >>> Delta("lake/hot", key="auction").name
    'hot'
    """

    path: str | Path
    key: str | list[str] | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | Path) or not str(self.path) or "://" in str(self.path):
            raise InvalidSpec("Delta needs a local folder", got=repr(self.path),
                              do='write Delta("lake/hot")')  # fmt: skip
        object.__setattr__(self, "key", keys_of(self.key, "Delta") or None)

    @property
    def name(self) -> str:
        """The default name of an output that writes here."""
        return Path(self.path).name or "delta"

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; empty for a table that only appends."""
        return keys_of(self.key, "Delta")

    @property
    def system(self) -> str:
        """Each table is its own system."""
        return f"delta {self.path}"

    def writer(self, opening: Opening) -> Writer:
        """Return a writer for the table."""
        from millstream.sinks.delta.writer import DeltaWriter

        return DeltaWriter(Path(self.path), opening)

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
    """A Delta Lake table in a folder; a missing one is made.

    Without `key` it appends. With it, a row takes the place of the one with the same key, and a
    row that is retracted deletes it (a merge: it reads the files that hold those keys).

    >>> Delta("lake/hot", key="auction").name
    'hot'
    """

    path: str | Path
    key: str | list[str] | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | Path) or not str(self.path) or "://" in str(self.path):
            raise InvalidSpec("Delta needs a folder of this machine", got=repr(self.path),
                              do='write Delta("lake/hot")')  # fmt: skip
        object.__setattr__(self, "key", keys_of(self.key, "Delta") or None)

    @property
    def name(self) -> str:
        """The default name of an output that ends here."""
        return Path(self.path).name or "delta"

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say which row is meant; none for a table that only grows."""
        return keys_of(self.key, "Delta")

    @property
    def system(self) -> str:
        """A table is a system of its own."""
        return f"delta {self.path}"

    def writer(self, opening: Opening) -> Writer:
        """The table, opened for one run."""
        from millstream.sinks.delta.writer import DeltaWriter

        return DeltaWriter(Path(self.path), opening)

"""Raw records whose value is a row in some format: those of topics and of `Memory`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.sources.spec import Opened

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.formats.spec import Format
    from millstream.schema import Schema


@dataclass(frozen=True, slots=True)
class Values:
    """Each raw record is one row: its value, decoded."""

    format: Format

    def open(self, raw: pa.Table, schema: Schema) -> Opened:
        decoded = self.format.decode(raw["value"], schema)
        return Opened(raw, decoded, raw["value"].nbytes)

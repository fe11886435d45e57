"""Reads pieces of files where they are decoded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.errors import DataGone
from millstream.formats.choice import format_of
from millstream.formats.csv.format import Csv
from millstream.formats.spec import Decoded
from millstream.sources.files import lines, parquet
from millstream.sources.slices import parts_of, records, together
from millstream.sources.spec import Opened

if TYPE_CHECKING:
    from millstream.formats.spec import Format
    from millstream.schema import Schema

_SHOWN = 1 << 16


@dataclass(frozen=True, slots=True)
class FileRows:
    """Reads rows from pieces of files of one format, in both lanes."""

    format: str

    def open(self, raw: pa.Table, schema: Schema) -> Opened:
        return together((self._opened(raw, part, schema) for part in parts_of(raw)), raw, schema)

    def _opened(self, raw: pa.Table, part: dict[str, Any], schema: Schema) -> Opened:
        decoded, size = self._decoded(part, schema)
        count = part["take"]
        if decoded.good.size + decoded.bad.size != count:
            raise DataGone(f"{part['path']} needs to stay as it was when the job first saw it",
                           got="another number of rows")  # fmt: skip
        offsets = pa.array(np.arange(part["first"], part["first"] + count))
        stamps = pa.array(np.full(count, part["stamp"], np.int64))
        return Opened(records(raw, offsets, stamps), decoded, size)

    def _decoded(self, part: dict[str, Any], schema: Schema) -> tuple[Decoded, int]:
        if part["broken"] is not None:
            none = np.empty(0, np.int64)
            empty = schema.arrow().empty_table()
            return Decoded(empty, none, np.zeros(1, np.int64), [part["broken"]], 0), 0
        path = Path(part["path"])
        if self.format == "parquet":
            made = parquet.read(path, part["at"], part["skip"], part["take"], schema)
            return made, made.table.nbytes
        values = lines.read(path, part["at"], part["end"], with_ends=self.format != "text",
                            quoted=part["quoted"])  # fmt: skip
        rows = values.slice(part["skip"], part["take"])
        return self._format(part).decode(rows, schema), rows.nbytes

    def _format(self, part: dict[str, Any]) -> Format:
        if self.format == "csv" and part["header"] is not None:
            return Csv(tuple(part["header"]))
        return format_of(self.format)


def original(part: dict[str, Any], format_: str) -> bytes | None:
    """The row of a piece with a single row, as in the file; of an unreadable file its beginning.

    A row of a Parquet file is returned as JSON, because it has no bytes of its own.
    """
    path = Path(part["path"])
    if part["broken"] is not None:
        try:
            with path.open("rb") as file:
                return file.read(_SHOWN)
        except OSError:
            return None
    if format_ == "parquet":
        return parquet.as_json(path, part["at"], part["skip"])
    rows = lines.read(path, part["at"], part["end"], quoted=part["quoted"])
    value: bytes = rows[part["skip"]].as_py()
    return value

"""Late and bad rows in files, read as the records that a topic would hold."""

from __future__ import annotations

import base64
import json
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import Damaged
from millstream.kafka.records import EPOCH, Record
from millstream.sinks.files.writer import committed, committed_rows
from millstream.sinks.kafka.messages import ENVELOPE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.plan.side_outputs import SideOutput
    from millstream.sources.files.files import Files

Row = dict[str, Any]


class KeptRows:
    """Late or bad rows in a folder that the `Files` sink writes, JSON or Parquet.

    They are numbered from 0 in the order in which they were committed.
    """

    def __init__(self, files: Files, kind: SideOutput) -> None:
        self._folder, self._format, self._kind = Path(files.path), files.format, kind
        self.where = str(files.path)

    @property
    def folder(self) -> Path:
        """Their folder."""
        return self._folder

    def count(self) -> int:
        """Their number."""
        return sum(rows for _, rows in committed_rows(self._folder))

    def records(self, first: int = 0) -> Iterator[Record]:
        """The committed rows from a number on; a job may write and merge files meanwhile."""
        number = first
        while True:
            try:
                for record in self._from(number):
                    yield record
                    number += 1
            except FileNotFoundError:  # the job has merged it into a larger one
                continue
            return

    def newest(self) -> Record | None:
        """The row committed last."""
        rows = (row for path in committed(self._folder)[-1:] for row in self._rows(path))
        last = deque(rows, maxlen=1)
        return self._record(last[0], 0, EPOCH) if last else None

    def _from(self, first: int) -> Iterator[Record]:
        number = 0
        for path, rows in committed_rows(self._folder):
            if number + rows <= first:
                number += rows
                continue
            written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            for row in self._rows(path):
                if number >= first:
                    yield self._record(row, number, written)
                number += 1

    def _rows(self, path: Path) -> Iterator[bytes | Row]:
        if self._format == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(1_000):
                    yield from batch.to_pylist()
            return
        with path.open("rb") as lines:
            yield from lines

    def _record(self, row: bytes | Row, number: int, written: datetime) -> Record:
        body = row if isinstance(row, dict) else _parsed(row, self._folder)
        if self._kind == "dead":
            return _dead(body, number, written, self.where)
        value = row.rstrip(b"\n") if isinstance(row, bytes) else _text(body).encode()
        return Record(self.where, 0, number, written, None, value)


def _parsed(line: bytes, folder: Path) -> Row:
    try:
        row: Row = json.loads(line)
    except ValueError:
        raise Damaged(f"the rows in {folder} need to be intact",
                      got="a line that is not JSON", do="restore the folder from a copy"
                      ) from None  # fmt: skip
    return row


def _dead(row: Row, number: int, written: datetime, where: str) -> Record:
    """A bad row in the envelope of the dead topic: its headers, then reason and origin."""
    headers = [(str(one["key"]), _bytes(one.get("value"))) for one in row.get("headers") or ()]
    envelope = [(f"millstream.{name}", str(row[name]).encode()) for name in ENVELOPE]
    return Record(where, 0, number, _moment(row.get("timestamp")), _bytes(row.get("key")),
                  _bytes(row.get("value")), (*headers, *envelope))  # fmt: skip


def _bytes(value: str | bytes | None) -> bytes | None:
    """JSON holds bytes as base64."""
    return base64.b64decode(value) if isinstance(value, str) else value


def _moment(value: str | datetime | None) -> datetime:
    if value is None:
        return EPOCH
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _text(row: Row) -> str:
    return json.dumps(row, default=lambda value: value.isoformat())

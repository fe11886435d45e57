"""Rows and writers for the tests of single sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.sinks.spec import Opening, OpenSink, Staged

if TYPE_CHECKING:
    from millstream.sinks.spec import Writer

JOB = "a" * 32


def staged(sink: OpenSink, output: str = "out", **columns: Any) -> Staged:
    """Columns as one staged output."""
    table = columns["table"] if "table" in columns else pa.table(columns)
    return Staged(output, "result", sink, (), table.num_rows, lambda: iter([table]))


def opened(*sinks: OpenSink, recovered: bool = True, **said: Any) -> Writer:
    """A writer for these sinks, which has taken its place."""
    told = {"pipeline": "shop", "job": JOB, "epoch": 1, "sinks": sinks, "patience": 20.0, **said}
    writer = sinks[0].writer(Opening(**told))
    if recovered:
        writer.recover(None)
    return writer

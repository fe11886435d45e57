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


def opened(*sinks: OpenSink, recovered: bool = True, **options: Any) -> Writer:
    """Return a writer for these sinks, recovered unless stated otherwise."""
    settings = {
        "pipeline": "shop",
        "job": JOB,
        "epoch": 1,
        "sinks": sinks,
        "patience": 20.0,
        **options,
    }
    writer = sinks[0].writer(Opening(**settings | options))
    if recovered:
        writer.recover(None)
    return writer

"""A run that stops just before its commit: `python -m tests.sinks.frozen postgres|sqlite PLACE`.

It prints `held`, waits for a line, continues, and prints how it ended.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.sinks.batches import opened, staged

import millstream as ms

if TYPE_CHECKING:
    from millstream.sinks.spec import OpenSink


def sink_of(kind: str, place: str) -> OpenSink:
    return ms.Postgres("hot", url=place) if kind == "postgres" else ms.Sqlite(place, "hot")


def hold(point: str) -> None:
    if point == "before a sink's commit":
        print("held", flush=True)
        sys.stdin.readline()


def main(kind: str, place: str) -> None:
    sink = sink_of(kind, place)
    writer = opened(sink, on_step=hold)
    try:
        writer.write("one", 1, [staged(sink, n=[1])])
    except Exception as error:
        print(type(error).__name__, flush=True)
    else:
        print("written", flush=True)
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

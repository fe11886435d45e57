"""Decode and encode of a six-field bid in CSV, Avro and Protobuf, beside their usual readers.

`python -m benchmarks.formats`. CPU time of one process, medians; what ours gives is checked
against the generated rows. The others tell no bad rows from good ones.
"""

from __future__ import annotations

import io
import json
import statistics
import time
from typing import TYPE_CHECKING, Any

import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.csv
from google.protobuf import descriptor_pb2, message_factory

from benchmarks.decode import BIDS, Rate, bids
from millstream.formats.avro.decode import decode_exactly as avro_exactly
from millstream.formats.avro.format import Avro
from millstream.formats.avro.schema import parsed
from millstream.formats.csv.decode import decode_exactly as csv_exactly
from millstream.formats.csv.format import Csv
from millstream.formats.framing import BARE
from millstream.formats.protobuf.decode import decode_exactly as protobuf_exactly
from millstream.formats.protobuf.format import Protobuf
from millstream.formats.protobuf.schema import descriptor

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.formats.spec import Format

AVRO = json.dumps({"type": "record", "name": "bid", "fields": [
    {"name": "auction", "type": "long"}, {"name": "bidder", "type": "long"},
    {"name": "price", "type": ["null", "double"]}, {"name": "channel", "type": "string"},
    {"name": "url", "type": ["null", "string"]},
    {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]})  # fmt: skip
_ROUNDS = 5
Work = tuple[int, "Callable[[], object]"]


def described() -> bytes:
    """A descriptor set with the message `Bid`."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="bid.proto", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    message = file.message_type.add(name="Bid")
    types = (kind.TYPE_INT64, kind.TYPE_INT64, kind.TYPE_DOUBLE, kind.TYPE_STRING, kind.TYPE_STRING)
    for number, (name, type_) in enumerate(zip(BIDS.names, types, strict=False), start=1):
        message.field.add(name=name, number=number, type=type_, label=kind.LABEL_OPTIONAL)
    message.field.add(name="ts", number=6, type=kind.TYPE_MESSAGE, label=kind.LABEL_OPTIONAL,
                      type_name=".google.protobuf.Timestamp")  # fmt: skip
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def run(rows: int = 200_000) -> list[Rate]:
    """Every format with its peers, in turn within each round."""
    _, meant = bids(rows)
    columns = zip(zip(*meant, strict=True), BIDS.arrow().types, strict=True)
    table = pa.Table.from_arrays([pa.array(c, k) for c, k in columns], schema=BIDS.arrow())
    rates: list[Rate] = []
    for name, format_, peers in _formats():
        values = format_.encode(table)
        assert format_.decode(values, BIDS).table.equals(table)
        works: dict[str, Work] = {
            "millstream": (rows, lambda f=format_, v=values: f.decode(v, BIDS)),
            "millstream, encode": (rows, lambda f=format_: f.encode(table)),
            **peers(values.slice(0, rows // 10)),
        }
        rates += _timed(name, works)
    return rates


def _timed(name: str, works: dict[str, Work]) -> list[Rate]:
    taken: dict[str, list[float]] = {engine: [] for engine in works}
    for _ in range(_ROUNDS):
        for engine, (_, work) in works.items():
            begun = time.process_time()
            work()
            taken[engine].append(time.process_time() - begun)
    return [Rate(name, engine, works[engine][0] / statistics.median(seconds))
            for engine, seconds in taken.items()]  # fmt: skip


def _formats() -> list[tuple[str, Format, Callable[[pa.Array], dict[str, Work]]]]:
    return [
        ("csv", Csv(), _csv),
        ("avro", Avro(AVRO, BARE), _avro),
        ("protobuf", Protobuf(described(), "Bid"), _protobuf),
    ]


def _csv(few: pa.Array) -> dict[str, Work]:
    lines = b"\n".join(few.to_pylist())
    options = pyarrow.csv.ReadOptions(column_names=list(BIDS.names), use_threads=False)
    return {
        "millstream, exact path": (len(few), lambda: csv_exactly(few, BIDS)),
        "pyarrow.csv": (len(few), lambda: pyarrow.csv.read_csv(io.BytesIO(lines), options)),
    }


def _avro(few: pa.Array) -> dict[str, Work]:
    schema: Any = fastavro.parse_schema(json.loads(AVRO))
    records = few.to_pylist()
    rows = [fastavro.schemaless_reader(io.BytesIO(raw), schema) for raw in records]
    whole = io.BytesIO()
    fastavro.writer(whole, schema, rows)
    content = whole.getvalue()
    return {
        "millstream, exact path": (len(few), lambda: avro_exactly(few, BIDS, parsed(AVRO))),
        "fastavro, one by one": (
            len(few),
            lambda: [fastavro.schemaless_reader(io.BytesIO(raw), schema) for raw in records],
        ),
        "fastavro, one container": (len(few), lambda: list(fastavro.reader(io.BytesIO(content)))),
        "polars, one container": (len(few), lambda: pl.read_avro(io.BytesIO(content))),
    }


def _protobuf(few: pa.Array) -> dict[str, Work]:
    files = described()
    kind = message_factory.GetMessageClass(descriptor(files, "Bid"))
    records = few.to_pylist()
    return {
        "millstream, exact path": (len(few), lambda: protobuf_exactly(few, BIDS, files, "Bid")),
        "protobuf, no columns": (len(few), lambda: [kind.FromString(raw) for raw in records]),
    }


def report() -> None:
    """Run, and print a line for each rate."""
    for rate in run():
        print(f"{rate.records:10} {rate.engine:26} {rate.nanoseconds:8.0f} ns for a row")


if __name__ == "__main__":
    report()

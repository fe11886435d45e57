"""Avro, Protobuf and CSV decoders, compared with libraries that could replace them.

`python -m benchmarks.kept.formats [ROWS [CASE]]`. Input is one binary array, as a fetch from Kafka
gives it: one buffer and offsets, with Confluent's header before each Avro or Protobuf record.
Output is an Arrow table of the format's schema, and the numbers of the bad records. Each decoder
reads records that are all good, and the same with one bad record in a hundred. CPU time of this
process, medians; `wrong` counts records with another outcome than ours. jetliner and ptars are
measured if they are installed.
"""

from __future__ import annotations

import io
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.message import DecodeError

from benchmarks.decode import BIDS, bids
from millstream.formats.avro import decode as avro_decode
from millstream.formats.avro.format import Avro
from millstream.formats.avro.schema import parse_schema
from millstream.formats.csv import decode as csv_decode
from millstream.formats.csv.format import Csv
from millstream.formats.framing import Framing, encode_index
from millstream.formats.protobuf import decode as protobuf_decode
from millstream.formats.protobuf.format import Protobuf
from millstream.formats.protobuf.schema import message_descriptor, message_index
from millstream.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.formats.spec import Format

AVRO_BID = {"type": "record", "name": "bid", "fields": [
    {"name": "auction", "type": "long"}, {"name": "bidder", "type": "long"},
    {"name": "price", "type": ["null", "double"]}, {"name": "channel", "type": "string"},
    {"name": "url", "type": ["null", "string"]},
    {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]}  # fmt: skip
AVRO_ORDER = {"type": "record", "name": "order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": {"type": "record", "name": "customer", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": "string"},
        {"name": "city", "type": ["null", "string"]}]}},
    {"name": "items", "type": {"type": "array", "items": {
        "type": "record", "name": "item", "fields": [
            {"name": "sku", "type": "string"}, {"name": "quantity", "type": "int"},
            {"name": "price", "type": "double"}]}}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "total", "type": {"type": "bytes", "logicalType": "decimal",
                               "precision": 12, "scale": 2}},
    {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]}  # fmt: skip
_ROUNDS = 5
_ID = Framing.of("confluent:7")
_SYNC = bytes(range(16))
_SLOW = ("millstream, exact path", "polars, a block for each record")
Bad = list[int]
Decoder = Callable[[pa.Array], Any]  # to a table and the bad records, or to rows of its own kind


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of record in one format, and its decoders."""

    format: Format
    table: pa.Table
    decoders: dict[str, Decoder]


def run(rows: int, only: str = "") -> None:
    """Measure the cases whose name contains `only`, and print a line for each decoder."""
    for name, case in cases(rows).items():
        if only not in name:
            continue
        good = case.format.encode(case.table)
        damaged = _damaged(good, start=0 if name.startswith("csv") else 5)
        for kind, values in (("all good", good), ("1 % bad", damaged)):
            exact = case.decoders["millstream"](values)
            print(f"{name}, {kind}: {len(values)} records of {values.nbytes / len(values):.0f} B,"
                  f" {len(exact[1])} bad")  # fmt: skip
            _compare(case, values, exact)


def _compare(case: Case, values: pa.Array, right: tuple[pa.Table, Bad]) -> None:
    """Time the decoders in turns within each round."""
    few = values.slice(0, len(values) // 10)
    inputs = {name: few if name in _SLOW else values for name in case.decoders}
    taken: dict[str, list[float]] = {name: [] for name in inputs}
    made: dict[str, Any] = {}
    for _ in range(_ROUNDS):
        for name, given in inputs.items():
            began = time.process_time()
            try:
                made[name] = case.decoders[name](given)
            except Exception as error:
                made[name] = f"{type(error).__name__}: {error}"[:70]
            taken[name].append((time.process_time() - began) / len(given))
    ours = statistics.median(taken["millstream"])
    for name, seconds in taken.items():
        median, result = statistics.median(seconds), made[name]
        if isinstance(result, str):
            note = f"stops: {result}"
        elif isinstance(result, list):
            note = "no columns"
        else:
            note = f"{_differing(result, right, len(inputs[name]))} wrong"
        print(f"  {name:36} {1e9 * median:8.0f} ns a row {median / ours:7.2f} x  {note}")


def _differing(made: tuple[pa.Table, Bad], right: tuple[pa.Table, Bad], count: int) -> int:
    """How many of the first `count` records have another outcome."""
    first, second = (_by_record(*result, count) for result in (made, right))
    return sum(one != other for one, other in zip(first, second, strict=True))


def _by_record(table: pa.Table, bad: Bad, count: int) -> list[object]:
    """The row of each record; None for a bad one."""
    rows = iter(table.to_pylist())
    lost = set(bad)
    return [None if number in lost else next(rows, "none") for number in range(count)]


def _damaged(values: pa.Array, start: int) -> pa.Array:
    """One record in a hundred is cut short, longer, or has other bytes behind its header."""
    rng = random.Random(3)
    records = values.to_pylist()
    for place in range(50, len(records), 100):
        raw = records[place]
        other = raw[:start] + rng.randbytes(12) + raw[start + 12 :]
        records[place] = rng.choice((raw[:-3], raw + b"\x03\xff", other))
    return pa.array(records, pa.binary())


def cases(rows: int) -> dict[str, Case]:
    """By name."""
    flat, nested = bid_table(rows), order_table(rows)
    avro_orders = Avro(json.dumps(AVRO_ORDER), _ID)
    orders_schema = avro_orders.row_schema()
    assert orders_schema is not None
    plain = nested.set_column(4, "total", nested["total"].cast(pa.float64()))
    return {
        "avro, flat": _avro(AVRO_BID, flat, BIDS),
        "avro, nested": _avro(AVRO_ORDER, nested.cast(orders_schema.arrow()), orders_schema),
        "protobuf, flat": _protobuf("Bid", flat),
        "protobuf, nested": _protobuf("Order", plain),
        "csv, flat": _csv(flat),
    }


# -- records -------------------------------------------------------------------


def bid_table(rows: int) -> pa.Table:
    """Bids of the Nexmark benchmark."""
    _, values = bids(rows)
    columns = zip(zip(*values, strict=True), BIDS.arrow().types, strict=True)
    return pa.Table.from_arrays([pa.array(c, k) for c, k in columns], schema=BIDS.arrow())


def order_table(rows: int) -> pa.Table:
    """Orders with a struct, one to five items and up to three tags."""
    rng = random.Random(2)
    made = [
        {
            "id": number,
            "customer": {"id": rng.randrange(10**6), "name": f"customer {rng.randrange(10**5)}",
                         "city": rng.choice((None, "Lisbon", "Zürich", "Osaka"))},
            "items": [{"sku": f"sku-{rng.randrange(10**4):05}", "quantity": rng.randint(1, 9),
                       "price": rng.randint(100, 10**5) / 100} for _ in range(rng.randint(1, 5))],
            "tags": rng.sample(["new", "gift", "express", "returning"], rng.randint(0, 3)),
            "total": Decimal(rng.randint(100, 10**7)).scaleb(-2),
            "ts": 1_767_225_600_000_000 + 3000 * number,
        }
        for number in range(rows)
    ]  # fmt: skip
    schema = Schema.parse(
        "id long, customer struct<id: long, name: string, city: string>, "
        "items array<struct<sku: string, quantity: int, price: double>>, tags array<string>, "
        "total decimal(12,2), ts timestamp"
    )
    return pa.Table.from_pylist(made, schema.arrow())


def descriptor_set() -> bytes:
    """The messages `Bid` and `Order`."""
    kind = descriptor_pb2.FieldDescriptorProto
    types: dict[str, Any] = {"int64": kind.TYPE_INT64, "int32": kind.TYPE_INT32,
                             "double": kind.TYPE_DOUBLE, "string": kind.TYPE_STRING}  # fmt: skip
    file = descriptor_pb2.FileDescriptorProto(
        name="bid.proto", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    instant = ".google.protobuf.Timestamp"
    _message(file, types, "Bid", f"auction int64,bidder int64,price double,channel string,"
             f"url string,ts {instant}")  # fmt: skip
    _message(file, types, "Customer", "id int64,name string,city string?")
    _message(file, types, "Item", "sku string,quantity int32,price double")
    _message(file, types, "Order", f"id int64,customer .Customer,items .Item*,tags string*,"
             f"total double,ts {instant}")  # fmt: skip
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def _message(file: Any, types: dict[str, Any], name: str, fields: str) -> None:
    kind = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name=name)
    for number, text in enumerate(fields.split(","), start=1):
        field, _, type_ = text.partition(" ")
        word = type_.rstrip("*?")
        made = message.field.add(
            name=field,
            number=number,
            label=kind.LABEL_REPEATED if type_.endswith("*") else kind.LABEL_OPTIONAL,
            type=types.get(word, kind.TYPE_MESSAGE),
        )
        if word not in types:
            made.type_name = word
        if type_.endswith("?"):
            made.proto3_optional = True
            made.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field}")


# -- decoders ------------------------------------------------------------------


def _ours(format_: Format, schema: Schema) -> Decoder:
    def decode(values: pa.Array) -> tuple[pa.Table, Bad]:
        made = format_.decode(values, schema)
        return made.table, made.bad.tolist()

    return decode


def bisected(decode: Callable[[pa.Array], pa.Table], values: pa.Array) -> tuple[pa.Table, Bad]:
    """A decoder that fails on a bad record, applied to ever smaller halves to find it."""
    tables: list[pa.Table] = []
    bad: Bad = []

    def read(start: int, count: int) -> None:
        try:
            tables.append(decode(values.slice(start, count)))
        except Exception:
            if count == 1:
                bad.append(start)
                return
            read(start, count // 2)
            read(start + count // 2, count - count // 2)

    read(0, len(values))
    return pa.concat_tables(tables), bad


@contextmanager
def _panics_raised() -> Iterator[None]:
    """Convert a panic in Rust to an ordinary error, without its stack trace."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError(f"panic: {error}") from None
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def bodies(values: pa.Array, header: int) -> pa.Array:
    """The records without their headers, in one buffer."""
    sizes = np.diff(np.frombuffer(values.buffers()[1], np.int32, len(values) + 1,
                                  values.offset * 4)) - header  # fmt: skip
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    first = np.frombuffer(values.buffers()[1], np.int32, len(values), values.offset * 4)
    data = np.frombuffer(values.buffers()[2], np.uint8)
    keep = np.ones(data.size, np.bool_)
    for place in range(header):
        keep[first + place] = False
    end = int(first[0]) + int(sizes.sum()) + header * len(values)
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets),
                                   pa.py_buffer(data[first[0] : end][keep[first[0] : end]])]
    )  # fmt: skip


def _avro(body: dict[str, Any], table: pa.Table, schema: Schema) -> Case:
    text = json.dumps(body)
    known: Any = fastavro.parse_schema(body)
    stream = io.BytesIO()
    fastavro.writer(stream, known, [], sync_marker=_SYNC)
    head, arrow = stream.getvalue(), schema.arrow()

    def by_exact_path(values: pa.Array) -> tuple[pa.Table, Bad]:
        made = avro_decode.decode_exactly(bodies(values, 5), schema, parse_schema(text))
        return made.table, made.bad.tolist()

    def by_fastavro(values: pa.Array) -> tuple[pa.Table, Bad]:
        rows, bad = _fastavro_rows(values, known)
        return pa.Table.from_pylist(rows, arrow), bad

    def by_polars(content: bytes) -> pa.Table:
        with _panics_raised():
            return pl.read_avro(io.BytesIO(content)).to_arrow().cast(arrow)

    decoders: dict[str, Decoder] = {
        "millstream": _ours(Avro(text, _ID), schema),
        "millstream, exact path": by_exact_path,
        "fastavro, rows only": lambda v: _fastavro_rows(v, known)[0],
        "fastavro": by_fastavro,
        "polars, one block": lambda v: bisected(lambda part: by_polars(_one_block(part, head)), v),
        "polars, a block for each record": lambda v: bisected(
            lambda part: by_polars(_block_each(part, head)), v
        ),
    }
    if find_spec("jetliner"):
        decoders["jetliner, a block for each record"] = lambda v: (
            _by_jetliner(_block_each(v, head)).cast(arrow),
            [],
        )
    return Case(Avro(text, _ID), table, decoders)


def _fastavro_rows(values: pa.Array, schema: Any) -> tuple[list[Any], Bad]:
    rows, bad = [], []
    for number, raw in enumerate(values.to_pylist()):
        stream = io.BytesIO(raw)
        stream.seek(5)
        try:
            row = fastavro.schemaless_reader(stream, schema)
        except Exception:  # EOFError, IndexError, UnicodeDecodeError, …
            row = None
        if row is None or stream.tell() != len(raw):
            bad.append(number)
        else:
            rows.append(row)
    return rows, bad


def _one_block(values: pa.Array, head: bytes) -> bytes:
    """A container file with all records in one block."""
    whole = b"".join(bodies(values, 5).to_pylist())
    return head + _long(len(values)) + _long(len(whole)) + whole + _SYNC


def _block_each(values: pa.Array, head: bytes) -> bytes:
    """A container file with a block for each record."""
    records = bodies(values, 5).to_pylist()
    return head + b"".join(b"\x02" + _long(len(raw)) + raw + _SYNC for raw in records)


def _by_jetliner(content: bytes) -> pa.Table:
    import jetliner  # type: ignore[import-not-found]

    file = os.memfd_create("records")
    try:
        os.write(file, content)
        with _panics_raised():
            made = jetliner.read_avro(f"/proc/self/fd/{file}", ignore_errors=True, glob=False)
    finally:
        os.close(file)
    return made.to_arrow()


def _long(number: int) -> bytes:
    """A whole number as Avro writes it."""
    rest, made = number << 1, bytearray()
    while rest > 0x7F:
        made.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*made, rest])


def _protobuf(name: str, table: pa.Table) -> Case:
    files = descriptor_set()
    format_ = Protobuf(files, name, _ID)
    schema = format_.row_schema()
    arrow = schema.arrow()
    header = 5 + len(encode_index(message_index(files, name)))
    found = message_descriptor(files, name)
    kind = message_factory.GetMessageClass(found)
    read_rows = _BY_HAND[name]

    def messages(values: pa.Array) -> tuple[list[Any], Bad]:
        made, bad = [], []
        for number, raw in enumerate(values.to_pylist()):
            try:
                made.append(kind.FromString(raw[header:]))
            except DecodeError:
                bad.append(number)
        return made, bad

    def by_upb(values: pa.Array) -> tuple[pa.Table, Bad]:
        made, bad = messages(values)
        columns = [pa.array(column, type_)
                   for column, type_ in zip(read_rows(made), arrow.types, strict=True)]  # fmt: skip
        return pa.Table.from_arrays(columns, schema=arrow), bad

    def by_exact_path(values: pa.Array) -> tuple[pa.Table, Bad]:
        made = protobuf_decode.decode_exactly(bodies(values, header), schema, files, name)
        return made.table, made.bad.tolist()

    decoders: dict[str, Decoder] = {
        "millstream": _ours(format_, schema),
        "millstream, exact path": by_exact_path,
        "protobuf (upb), messages only": lambda v: messages(v)[0],
        "protobuf (upb), columns by hand": by_upb,
    }
    if find_spec("ptars"):
        import ptars  # type: ignore[import-not-found]

        settings = ptars.PtarsConfig(timestamp_unit="us")
        handler = ptars.HandlerPool([found.file], config=settings).get_for_message(found)
        decoders["ptars"] = lambda v: bisected(
            lambda part: pa.Table.from_batches(
                [handler.array_to_record_batch(bodies(part, header))]
            ).cast(arrow),
            v,
        )
    return Case(format_, table, decoders)


def _bid_columns(messages: Sequence[Any]) -> list[list[Any]]:
    names = ("auction", "bidder", "price", "channel", "url")
    columns = [[getattr(one, name) for one in messages] for name in names]
    return [*columns, _instants(messages)]


def _order_columns(messages: Sequence[Any]) -> list[list[Any]]:
    return [
        [one.id for one in messages],
        [(one.customer.id, one.customer.name,
          one.customer.city if one.customer.HasField("city") else None)
         if one.HasField("customer") else None for one in messages],
        [[(item.sku, item.quantity, item.price) for item in one.items] for one in messages],
        [list(one.tags) for one in messages],
        [one.total for one in messages],
        _instants(messages),
    ]  # fmt: skip


def _instants(messages: Sequence[Any]) -> list[int | None]:
    return [one.ts.seconds * 1_000_000 + one.ts.nanos // 1000 if one.HasField("ts") else None
            for one in messages]  # fmt: skip


_BY_HAND = {"Bid": _bid_columns, "Order": _order_columns}


def _csv(table: pa.Table) -> Case:
    names = list(BIDS.names)

    def by_arrow(values: pa.Array) -> pa.Table:
        read = pyarrow.csv.ReadOptions(column_names=names, use_threads=False)
        convert = pyarrow.csv.ConvertOptions(column_types=BIDS.arrow())
        lines = io.BytesIO(b"\n".join(values.to_pylist()))
        return pyarrow.csv.read_csv(lines, read, convert_options=convert)

    def by_exact_path(values: pa.Array) -> tuple[pa.Table, Bad]:
        made = csv_decode.decode_exactly(values, BIDS)
        return made.table, made.bad.tolist()

    return Case(Csv(), table, {
        "millstream": _ours(Csv(), BIDS),
        "millstream, exact path": by_exact_path,
        "pyarrow.csv": lambda v: bisected(by_arrow, v),
    })  # fmt: skip


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, "".join(sys.argv[2:3]))

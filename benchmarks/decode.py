"""Decode of a six-field bid from JSON to columns, in rows per CPU-second of one process.

Peers get the easier task: `pyarrow.json`, polars and DuckDB parse the same bytes without
separating bad rows from good ones, counting extra fields, or turning the time's text into an
instant. What ours gives is checked against the generated rows.
"""

from __future__ import annotations

import io
import random
import statistics
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.json

from millstream.formats.json.decode import decode, decode_exactly
from millstream.formats.json.encode import encode
from millstream.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

BIDS = Schema.parse(
    "auction long, bidder long, price double, channel string, url string, ts timestamp"
)
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Rate:
    """The median over the rounds of one decoder and one kind of record."""

    records: str
    engine: str
    rows_per_second: float

    @property
    def nanoseconds(self) -> float:
        """CPU time for a row."""
        return 1e9 / self.rows_per_second


def bids(count: int, *, times: str = "text", seed: int = 1) -> tuple[list[bytes], list[Any]]:
    """Records of about 150 bytes, and their values; `times` is text or millis."""
    rng = random.Random(seed)
    records: list[bytes] = []
    rows: list[Any] = []
    for number in range(count):
        moment = START + timedelta(milliseconds=3 * number)
        row = (
            rng.randint(1_000, 99_999),
            rng.randint(1_000, 99_999),
            rng.randint(100, 10**8) / 100,
            f"channel-{rng.randrange(10_000)}",
            f"https://www.nexmark.com/item.htm?query=1&id={number}",
            moment,
        )
        shown = (
            f'"{moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}"'
            if times == "text"
            else str(1_767_225_600_000 + 3 * number)
        )
        records.append(
            f'{{"auction":{row[0]},"bidder":{row[1]},"price":{row[2]},"channel":"{row[3]}",'
            f'"url":"{row[4]}","ts":{shown}}}'.encode()
        )
        rows.append(row)
    return records, rows


def run(rows: int = 200_000, rounds: int = 5) -> list[Rate]:
    """Measure every decoder on every kind of record, in turns within each round."""
    rates: list[Rate] = []
    for kind, records, good in _kinds(rows):
        engines = _engines(records, peers=kind in ("text times", "millis times"))
        checked = decode(pa.array(records, pa.binary()), BIDS)
        assert [tuple(row.values()) for row in checked.table.to_pylist()] == good
        taken: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(rounds):
            for name, (_, work) in engines.items():
                begun = time.process_time()
                work()
                taken[name].append(time.process_time() - begun)
        rates += [
            Rate(kind, name, engines[name][0] / statistics.median(seconds))
            for name, seconds in taken.items()
        ]
    return rates


def _kinds(rows: int) -> list[tuple[str, list[bytes], list[Any]]]:
    """Ordinary records, and those that do not take the fastest path."""
    text, meant = bids(rows)
    millis, _ = bids(rows, times="millis")
    extra = [record.replace(b'{"', b'{"extra":"x","', 1) for record in text]
    escaped = [record.replace(b"query=1&", b"q=\\u00e9&") for record in text]
    in_escaped = [(*row[:4], row[4].replace("query=1&", "q=é&"), row[5]) for row in meant]
    hurt = list(text)
    hurt[::100] = [record.replace(b'"price":', b'"price":"no","was":') for record in hurt[::100]]
    return [
        ("text times", text, meant),
        ("millis times", millis, meant),
        ("one extra field", extra, meant),
        ("an escape in each row", escaped, in_escaped),
        ("1 % bad rows", hurt, [row for number, row in enumerate(meant) if number % 100]),
    ]


def _engines(records: list[bytes], *, peers: bool) -> dict[str, tuple[int, Callable[[], object]]]:
    """By name: the number of rows per call, and the call."""
    values = pa.array(records, pa.binary())
    count = len(records)
    engines: dict[str, tuple[int, Callable[[], object]]] = {
        "millstream": (count, lambda: decode(values, BIDS))
    }
    if not peers:
        return engines
    few = values.slice(0, count // 20)
    table = decode(values, BIDS).table
    lines = b"\n".join(records)
    numbers = b'"ts":"' not in records[0]
    return engines | {
        "pyarrow.json": (count, lambda: _by_arrow(lines, numbers=numbers)),
        "polars": (count, lambda: _by_polars(lines, numbers=numbers)),
        "duckdb": (count, lambda: _by_duckdb(values, numbers=numbers)),
        "millstream, exact path": (len(few), lambda: decode_exactly(few, BIDS)),
        "millstream, encode": (count, lambda: encode(table)),
    }


def _by_arrow(lines: bytes, *, numbers: bool) -> pa.Table:
    kind = pa.int64() if numbers else pa.string()
    schema = BIDS.arrow().set(5, pa.field("ts", kind))
    return pyarrow.json.read_json(
        io.BytesIO(lines),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=1 << 22),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
    )


def _by_polars(lines: bytes, *, numbers: bool) -> pl.DataFrame:
    kinds: dict[str, Any] = {"auction": pl.Int64, "bidder": pl.Int64, "price": pl.Float64}
    kinds |= {"channel": pl.String, "url": pl.String, "ts": pl.Int64 if numbers else pl.String}
    return pl.read_ndjson(io.BytesIO(lines), schema=kinds)


def _by_duckdb(values: pa.Array, *, numbers: bool) -> pa.Table:
    kind = "BIGINT" if numbers else "VARCHAR"
    form = (
        '{"auction":"BIGINT","bidder":"BIGINT","price":"DOUBLE","channel":"VARCHAR",'
        f'"url":"VARCHAR","ts":"{kind}"}}'
    )
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("given", pa.table({"v": values.cast(pa.string())}))
        return database.sql(f"select unnest(from_json(v, '{form}')) from given").to_arrow_table()


def report() -> None:
    """Run, and print a line for each rate."""
    for rate in run():
        print(
            f"{rate.records:24} {rate.engine:24} {rate.rows_per_second / 1e6:7.2f} M rows/s"
            f" {rate.nanoseconds:8.0f} ns"
        )


if __name__ == "__main__":
    report()

"""The decoder: every record becomes a row, or a bad row with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.schema import Schema
from millstream.sources.decode import DecodeContext, Decoder, Report
from millstream.sources.spec import raw_schema

SCHEMA = Schema.parse("id long, ts timestamp")
HOUR = 3_600_000_000


def raw(*records: tuple[bytes | None, int, int | None]) -> pa.Table:
    """Records of (value, partition, timestamp); offsets count up from 10."""
    rows = [
        {"key": b"k", "value": value, "headers": [{"key": "h", "value": b"v"}],
         "partition": partition, "offset": 10 + place, "timestamp": stamp}
        for place, (value, partition, stamp) in enumerate(records)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=raw_schema())


def event(millis: Any, id_: int = 1) -> bytes:
    return f'{{"id": {id_}, "ts": {millis}}}'.encode()


def decoder(**options: Any) -> Decoder:
    given: dict[str, Any] = {"time": "ts", "ahead": HOUR, **options}
    return Decoder(source=2, topic="t", schema=SCHEMA, **given)


def test_good_rows_have_their_origin_and_the_report_has_the_counts() -> None:
    rows = decoder()(raw((event(5), 0, 0), (event(9), 1, 0), (event(7), 1, 0), (b"{", 0, 0)))

    assert rows.good.schema.names == ["id", "ts", "_source", "_partition", "_offset", "_sub"]
    assert rows.good.schema == decoder().columns()
    assert rows.good.select(["_source", "_partition", "_offset", "_sub"]).to_pylist() == [
        {"_source": 2, "_partition": p, "_offset": o, "_sub": 0}
        for p, o in ((0, 10), (1, 11), (1, 12))
    ]
    assert rows.bad.select(["partition", "offset"]).to_pylist() == [{"partition": 0, "offset": 13}]
    assert (rows.report.rows, rows.report.times) == (4, {0: 5_000, 1: 9_000})


@pytest.mark.parametrize(
    ("millis", "stamp", "limit", "good"),
    [
        (3_600_000, 0, None, True),
        (3_600_001, 0, None, False),
        (3_600_001, None, None, True),
        (3_600_001, 0, HOUR, True),
        (9_000_000, 10**15, 0, False),
        (-(9 * 10**12), 10**15, None, True),
        (2 * 10**14, -(6 * 10**16), None, False),
    ],
)
def test_a_time_more_than_ahead_of_the_clock_is_future_and_nothing_overflows(
    millis: int, stamp: int | None, limit: int | None, good: bool
) -> None:
    context = DecodeContext(clock=limit or 0)
    rows = decoder(by_clock=limit is not None)(raw((event(millis), 0, stamp)), context)

    assert rows.good.num_rows == good
    assert bool(rows.report.times) == good
    if not good:
        assert rows.bad["reason"][0].as_py().startswith("future")


def test_without_a_limit_and_with_an_unbounded_one_any_time_is_accepted() -> None:
    for ahead in (None, 10**19):
        assert decoder(ahead=ahead)(raw((event(10**14), 0, 0))).good.num_rows == 1


def test_a_null_is_a_bad_row_only_in_the_event_time_column() -> None:
    records = raw((event("null"), 0, 0), (event(1), 0, 0))

    assert decoder()(records).bad["reason"].to_pylist() == ["ts: event time is null"]
    assert decoder(time=None)(records).good["ts"].null_count == 1


def test_hidden_columns_are_included_only_if_requested() -> None:
    wanted = decoder(hidden=("_key", "_headers", "_timestamp", "_topic"))
    rows = wanted(raw((event(5), 0, 7), (b"{", 0, 8), (event(6), 0, None)))

    assert rows.good.schema.names[2:6] == ["_key", "_headers", "_timestamp", "_topic"]
    assert rows.good["_key"].to_pylist() == [b"k", b"k"]
    assert rows.good["_topic"].to_pylist() == ["t", "t"]
    assert rows.good["_timestamp"].cast(pa.int64()).to_pylist() == [7, 6_000]
    assert wanted.more == ("key", "headers")
    assert decoder().more == ()


def test_empty_slices_and_slices_of_bad_rows_are_decoded() -> None:
    assert decoder()(raw()).good.num_rows == 0
    rows = decoder()(raw((b"x", 0, 0), (None, 1, 0)))
    assert (rows.good.num_rows, rows.bad.num_rows, rows.report.times) == (0, 2, {})


def test_reports_are_added() -> None:
    one = Report(rows=2, bytes=10, extra=1, times={0: 5, 1: 9})
    one.add(Report(rows=1, bytes=4, extra=0, times={1: 7, 2: 3}))

    assert one == Report(rows=3, bytes=14, extra=1, times={0: 5, 1: 9, 2: 3})


def test_the_largest_time_of_each_partition_is_found_in_any_order() -> None:
    chance = np.random.default_rng(1)
    places = chance.integers(0, 5, 300)
    times = chance.integers(-(10**9), 10**9, 300)
    rows = decoder(ahead=None)(
        raw(*((event(t), int(p), 0) for p, t in zip(places, times, strict=True)))
    )

    assert rows.report.times == {
        p: int(times[places == p].max()) * 1000 for p in np.unique(places).tolist()
    }

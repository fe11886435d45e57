"""Clock correction against its definition in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import InvalidSpec
from millstream.event_time.clock_correction import ClockCorrection, corrected

if TYPE_CHECKING:
    from collections.abc import Callable

STAMP = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("id", pa.int64()), ("at", STAMP), ("sent", STAMP), ("got", STAMP)])
stamps = st.none() | st.integers(-(10**6), 10**6) | st.sampled_from([-(2**62), 2**62])


def true_time(event: int | None, sent: int | None, received: int | None) -> tuple[Any, ...]:
    known = event is not None and sent is not None and received is not None
    if not known or event > sent or max(map(abs, (event, sent, received))) >= 2**61:  # type: ignore[operator, arg-type]
        return event, True, 0
    return event + received - sent, False, received - sent  # type: ignore[operator]


@given(st.lists(st.tuples(stamps, stamps, stamps)))
def test_the_true_time_is_the_event_time_plus_the_clock_error(
    rows: list[tuple[int | None, int | None, int | None]],
) -> None:
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[], [], []]
    arrays = [pa.array(column, pa.int64()).cast(STAMP) for column in columns]
    table = pa.table([pa.array(range(len(rows)), pa.int64()), *arrays], schema=SCHEMA)

    result = corrected(table, ClockCorrection("at", "sent", "got"), table["got"])

    assert result.column_names == ["id", "at", "sent", "got", "clock_flag", "clock_offset"]
    at = result["at"].cast(pa.int64()).to_pylist()
    got = zip(at, result["clock_flag"].to_pylist(), result["clock_offset"].to_pylist(), strict=True)
    assert list(got) == [true_time(*row) for row in rows]


def phones(**options: Any) -> ms.Stream:
    schema = "id long, at timestamp, sent timestamp, label string"
    return ms.read(ms.Topic("phones", schema=schema), **{"time": "at", **options})


def test_a_corrected_stream_shows_the_corrections() -> None:
    made = phones().correct_clock(event="at", sent="sent")

    assert made.columns == ("id", "at", "sent", "label", "clock_flag", "clock_offset")


@pytest.mark.parametrize(
    ("build", "got"),
    [
        (lambda: phones().where("id > 1").correct_clock(event="at", sent="sent"), "other steps"),
        (lambda: phones(time=None).correct_clock(event="at", sent="sent"), "'at'"),
        (lambda: phones().correct_clock(event="sent", sent="at"), "'sent'"),
        (lambda: phones().correct_clock(event="at", sent="label"), "label string"),
        (lambda: phones().correct_clock(event="at", sent="gone"), "'gone'"),
        (lambda: phones().correct_clock(event="at", sent="sent", received="x"), "'x'"),
        (
            lambda: (
                phones()
                .correct_clock(event="at", sent="sent")
                .correct_clock(event="at", sent="sent")
            ),
            "other steps",
        ),
    ],
)
def test_a_correction_that_is_impossible_is_refused_while_building(
    build: Callable[[], object], got: str
) -> None:
    with pytest.raises(InvalidSpec, match="needs") as refused:
        build()

    assert got in str(refused.value)

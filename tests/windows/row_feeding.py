"""Rows for windows that follow the order of origin, and their answers beside the oracle's."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st
from tests.oracles import row_windows
from tests.windows import tables
from tests.windows.driving import Driver

from millstream.eventtime.moment import END_OF_TIME, MIN_TIME
from millstream.windows import aggregates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracles.row_windows import Expected, Row, Rule, Window

    from millstream.steps.kernel import Kernel

COLUMNS = pa.schema(
    [
        ("k", pa.string()),
        ("k2", pa.float64()),
        ("l", pa.int64()),
        ("s", pa.string()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("i", pa.int16()),
        ("m", pa.decimal128(12, 3)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("mark", pa.bool_()),
        ("_punctuation", pa.bool_()),
    ]
)
KEYS = ["k", "k2"]
ANSWERS: dict[str, aggregates.Aggregate] = {
    "n": aggregates.count(),
    "total": aggregates.sum("l"),
    "mass": aggregates.sum("d"),
    "least": aggregates.min("s"),
    "most": aggregates.max("i"),
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SMALL = st.integers(-6, 6)


@st.composite
def streams(draw: Any, *, timed: bool = True) -> list[Row]:
    """Rows in order of arrival; each key lives in one partition, times go back and forth."""
    rows = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "k": st.sampled_from([None, "a"]),
                    "k2": st.sampled_from([0.0, -0.0, float("nan")]),
                    "l": st.none() | st.integers(-(2**60), 2**60),
                    "s": st.none() | st.text(max_size=2),
                    "d": st.none() | SMALL.map(lambda n: n / 2) | tables.special_floats,
                    "f": st.none() | SMALL.map(lambda n: n / 4),
                    "i": st.none() | st.sampled_from([-(2**15), 2**15 - 1]) | SMALL,
                    "m": st.none() | SMALL.map(lambda n: Decimal(n).scaleb(-1)),
                    "at": st.none() | SMALL.map(lambda n: EPOCH + timedelta(microseconds=n)),
                    "mark": st.sampled_from([None, False, False, True]),
                    "_time": st.integers(-20, 20),
                }
            ),
            max_size=40,
        )
    )
    offsets: Counter[int] = Counter()
    for row in rows:
        row["_punctuation"] = row["mark"]
        partition = len(row["k"] or "xx") % 2
        origin = {"_source": 0, "_partition": partition, "_offset": offsets[partition], "_sub": 0}
        offsets[partition] += 1
        row |= origin
        if not timed:
            del row["_time"]
    return list(rows)


def cuts(most: int = 4) -> st.SearchStrategy[list[float]]:
    """Where to cut a stream, as shares of it."""
    return st.lists(st.floats(0, 1), max_size=most)


def batched(rows: list[Row], shares: list[float]) -> list[list[Row]]:
    """The stream in batches, the last of which is the finish and empty."""
    edges = [0, *sorted(int(share * len(rows)) for share in shares), len(rows), len(rows)]
    return [rows[low:high] for low, high in zip(edges[:-1], edges[1:], strict=True)]


def agrees_with_the_oracle(
    kernel: Kernel,
    rule: Rule,
    batches: list[list[Row]],
    *,
    ranges: int = 1,
    slices: int = 1,
    merge_every: int = 0,
) -> Expected:
    """Drive a kernel to the finish; every batch must give what the oracle gives."""
    expected = row_windows.windows(batches, rule, key, finish=True)
    unplaced, after = 0, MIN_TIME
    with Driver(kernel, ranges=ranges, slices=slices, merge_every=merge_every) as driver:
        for number, batch in enumerate(batches):
            before, after = after, _watermark(batches[number + 1 :])
            left = driver.step(tables.table(batch, COLUMNS), before=before, after=after)
            unplaced += left.unplaced
            assert Counter(map(said, left.rows)) == Counter(map(_answer, expected.left[number]))
            assert left.held == expected.held[number]
            assert not left.late
        assert all(not manifest.runs for manifest in driver.manifests.values())
    assert unplaced == expected.unplaced
    return expected


def _watermark(to_come: list[list[Row]]) -> int:
    """The largest watermark that no row to come is behind."""
    if not to_come:
        return END_OF_TIME
    return min((row.get("_time", 0) for batch in to_come for row in batch), default=20)


def key(row: Row) -> tuple[Any, ...]:
    """The key of a row, equal to its equals."""
    return tuple(tables.plain(row[name]) for name in KEYS)


def said(row: Row) -> tuple[Any, ...]:
    """A result row as values that compare."""
    names = (*KEYS, "window_start", "window_end", *ANSWERS, "_time", "_sign")
    return tuple(tables.plain(row[name]) for name in names)


def _answer(window: Window) -> tuple[Any, ...]:
    key, rows = window
    assert isinstance(key, tuple)
    first, last = row_windows.earliest(rows), row_windows.latest(rows)
    return (*key, first, last, *answers(rows), last, 1)


def answers(rows: Sequence[Row]) -> tuple[Any, ...]:
    """What `ANSWERS` ought to say of a window's rows."""
    longs = [row["l"] for row in rows if row["l"] is not None]
    masses = [row["d"] for row in rows if row["d"] is not None]
    texts = [row["s"] for row in rows if row["s"] is not None]
    ints = [row["i"] for row in rows if row["i"] is not None]
    return (
        len(rows),
        sum(longs) if longs else None,
        tables.plain(sum(masses)) if masses else None,
        min(texts, key=lambda text: text.encode()) if texts else None,
        max(ints, default=None),
    )

"""Rows for windows that follow the order of origin, and their answers beside the oracle's."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.driving import Driver
from tests.oracles import row_windows

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates import functions as aggregates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracles.row_windows import Expected, Row, Rule, Window

    from millstream.operators.kernel import Kernel

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
KEYS = [["k", "k2"], ["k2"], []]
ANSWERS: dict[str, aggregates.Aggregate] = {
    "n": aggregates.count(),
    "total": aggregates.sum("l"),
    "mass": aggregates.sum("d"),
    "least": aggregates.min("s"),
    "most": aggregates.max("i"),
    "listed": aggregates.collect("s"),
    "foremost": aggregates.first("l"),
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def streams(*, timed: bool = True) -> st.SearchStrategy[list[Row]]:
    """Rows in order of arrival; each key lives in one partition, times go back and forth."""
    return st.builds(stream, st.integers(0, 60), st.integers(0, 10**9), st.just(timed))


def stream(count: int, seed: int, timed: bool) -> list[Row]:
    """So many rows, the same for the same seed."""
    random = Random(seed)
    offsets: Counter[int] = Counter()
    rows = []
    for _ in range(count):
        row = _values(random)
        partition = len(row["k"] or "")
        row |= {"_source": 0, "_partition": partition, "_offset": offsets[partition], "_sub": 0}
        offsets[partition] += 1
        rows.append(row | {"_time": random.randint(-20, 20)} if timed else row)
    return rows


def _values(random: Random) -> Row:
    def few() -> int:
        return random.randint(-6, 6)

    mark = random.choice([None, False, False, False, True])
    values = {
        "l": random.randint(-(2**56), 2**56),
        "s": random.choice(["", "a", "\x00", "€", "\U0001f30a"]),
        "d": random.choice([few() / 2, few() / 2, math.nan, math.inf, -math.inf, -0.0]),
        "f": few() / 4,
        "i": random.choice([-(2**15), 2**15 - 1, few(), few(), few()]),
        "m": Decimal(few()).scaleb(-1),
        "at": EPOCH + timedelta(microseconds=few()),
    }
    return {
        "k": random.choice([None, "a"]),
        "k2": random.choice([0.0, -0.0, math.nan]),
        **{name: value if random.random() < 0.9 else None for name, value in values.items()},
        "mark": mark,
        "_punctuation": mark,
    }


def cuts(most: int = 4) -> st.SearchStrategy[list[float]]:
    """Where to cut a stream, as shares of it."""
    return st.lists(st.floats(0, 1), max_size=most)


def batched(rows: list[Row], shares: list[float]) -> list[list[Row]]:
    """The stream in batches, the last of which is the finish and empty."""
    edges = [0, *sorted(int(share * len(rows)) for share in shares), len(rows), len(rows)]
    return [rows[low:high] for low, high in pairwise(edges)]


def agrees_with_the_oracle(
    kernel: Kernel,
    rule: Rule,
    batches: list[list[Row]],
    *,
    keys: list[str],
    ranges: int = 1,
    slices: int = 1,
    merge_every: int = 0,
) -> Expected:
    """Drive a kernel to the finish; every batch must give what the oracle gives."""
    expected = row_windows.windows(batches, rule, partial(key, keys=keys), finish=True)
    unplaced, after = 0, MIN_TIME
    with Driver(kernel, ranges=ranges, slices=slices, merge_every=merge_every) as driver:
        for number, batch in enumerate(batches):
            before, after = after, watermark(batches[number + 1 :])
            left = driver.step(tables.table(batch, COLUMNS), before=before, after=after)
            unplaced += left.unplaced
            found = Counter(said(row, keys=keys) for row in left.rows)
            assert found == Counter(map(_answer, expected.left[number]))
            assert left.held == expected.held[number]
            assert not left.late
        assert all(not manifest.runs for manifest in driver.manifests.values())
    assert unplaced == expected.unplaced
    return expected


def watermark(to_come: list[list[Row]]) -> int:
    """The largest watermark that no row to come is behind."""
    if not to_come:
        return END_OF_TIME
    return min((row.get("_time", 0) for batch in to_come for row in batch), default=20)


def key(row: Row, *, keys: list[str]) -> tuple[Any, ...]:
    """The key of a row, equal to its equals."""
    return tuple(tables.plain(row[name]) for name in keys)


def said(row: Row, *, keys: list[str]) -> tuple[Any, ...]:
    """A result row as values that compare."""
    names = (*keys, "window_start", "window_end", *ANSWERS, "_time", "_sign")
    return tuple(tables.plain(row[name]) for name in names)


def _answer(window: Window) -> tuple[Any, ...]:
    key, rows = window
    assert isinstance(key, tuple)
    first, last = row_windows.earliest(rows), row_windows.latest(rows)
    return (*key, first, last, *answers(rows), last, 1)


def answers(rows: Sequence[Row]) -> tuple[Any, ...]:
    """What `ANSWERS` ought to say of a window's rows."""
    in_order = sorted(rows, key=lambda row: tuple(row[name] for name in row_windows.ORIGIN))
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
        tuple(row["s"] for row in in_order if row["s"] is not None),
        next((row["l"] for row in in_order if row["l"] is not None), None),
    )

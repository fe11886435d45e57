"""The same rows give the oracle's results under any batch cut, lane and restart.

On-time panes do not depend on how batches are cut as long as no row is later than the declared
delay of its partition. The results for later rows do; the oracle models that, too.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.engine.scenes import MICROS, at, bids, drive_in, ran_in
from tests.oracles import distinct_oracle, windows_oracle
from tests.oracles.stream_oracle import Arrival, cut, in_order, watermarks

import millstream as ms
from millstream.testing import Drive

if TYPE_CHECKING:
    from datetime import datetime

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PARTITIONS, DELAY, SIZE = 3, 4, 10
SECOND = 1_000_000
CUTS = [("narrow", 1), ("narrow", 7), ("narrow", 100), ("wide", 1), ("wide", 7), (None, 3),
        ("driver", 1), ("driver", 20)]  # fmt: skip
Pane = tuple[Any, ...]


def records(seed: int, *, disorder: float, bad: float = 0.0) -> list[Arrival]:
    """Rows of three independent partitions, up to `disorder` seconds out of order."""
    chance = random.Random(seed)
    found: list[tuple[int, int | None, dict[str, Any]]] = []
    now = [chance.uniform(0, 9) for _ in range(PARTITIONS)]
    for _ in range(400):
        partition = chance.randrange(PARTITIONS)
        now[partition] += chance.uniform(0, 1.2)
        seconds = now[partition] - chance.choice([0.0, 0.0, disorder * chance.random()])
        row = {
            "auction": chance.choice([None, *range(partition, 9, PARTITIONS)]),
            "name": chance.choice(["a", "b", "é", None]),
            "price": chance.choice([None, chance.uniform(-1e9, 1e9), 1e-9, 0.1]),
            "n": chance.choice([None, chance.randrange(-(2**31), 2**31)]),
        }
        if chance.random() < bad:
            found.append((partition, None, {}))
        else:
            found.append((partition, MICROS + round(seconds * SECOND), row))
    return in_order(found)


def as_record(arrival: Arrival) -> dict[str, Any] | bytes:
    if arrival.time is None:
        return b'{"auction": "no number"}'
    return {**arrival.row, "ts": at((arrival.time - MICROS) / SECOND).isoformat()}


def windows() -> ms.Stream:
    return (
        bids(watermark=f"{DELAY} seconds")
        .by("auction")
        .window(ms.tumbling(f"{SIZE} seconds"))
        .agg(n=ms.count(), values=ms.count("n"), total=ms.sum("n"), low=ms.min("n"),
             high=ms.max("name"), cost=ms.sum("price"), mean=ms.mean("price"))
    )  # fmt: skip


def run(
    stream: ms.Stream, batches: list[list[Arrival]], lane: Any, *, restart: bool
) -> tuple[list[dict[str, Any]], list[Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows, facts, late and dead rows of a pipeline fed batch by batch and then finished."""
    with drive_in(ms.Pipeline("cuts", stream.to(ms.Topic("out"))), lane) as d:
        for partition in range(PARTITIONS):
            d.feed("bids", [], partition=partition)
        facts = []
        for number, batch in enumerate(batches):
            for arrival in batch:
                d.feed("bids", [as_record(arrival)], partition=arrival.partition)
            facts.append(d.step())
            if restart and number % 3 == 1:
                d.restart()
        facts.append(d.finish())
        assert all(ran_in(fact) == (lane or "narrow") for fact in facts)
        return d.rows("out"), facts, d.late(), d.dead()


def same(found: list[Pane], expected: list[Pane]) -> None:
    """Equal panes; the last two values are floats, which agree to 1e-12."""
    found, expected = sorted(found, key=repr), sorted(expected, key=repr)
    assert [pane[:-2] for pane in found] == [pane[:-2] for pane in expected]
    for one, other in zip(found, expected, strict=True):
        for got, wanted in zip(one[-2:], other[-2:], strict=True):
            close = got == wanted if wanted is None else math.isclose(got, wanted, rel_tol=1e-12)
            assert close, (one, other)


def panes(rows: list[dict[str, Any]]) -> list[Pane]:
    return [(row["auction"], seconds(row["window_start"]), *list(row.values())[3:]) for row in rows]


def seconds(time: datetime) -> int:
    return round(time.timestamp())


def in_duckdb(arrivals: list[Arrival]) -> list[Pane]:
    """The results of DuckDB over all rows (floats by its exact fsum)."""
    con = duckdb.connect()
    con.execute("create table b (auction bigint, name text, price double, n bigint, ts bigint)")
    con.executemany(
        "insert into b values (?, ?, ?, ?, ?)",
        [(*(a.row[c] for c in ("auction", "name", "price", "n")), a.time)
         for a in arrivals if a.time is not None],
    )  # fmt: skip
    return con.execute(
        f"""select auction, ts // {SIZE * SECOND} * {SIZE} as start, count(*), count(n),
                   sum(n)::bigint, min(n), max(name), fsum(price), favg(price)
            from b group by all"""
    ).fetchall()


@pytest.mark.parametrize(("lane", "batches"), CUTS)
def test_windows_are_the_same_under_any_cut_lane_and_restart(lane: Any, batches: int) -> None:
    arrivals = records(1, disorder=DELAY)

    rows, facts, late, dead = run(windows(), cut(arrivals, batches), lane, restart=True)

    assert (sum(fact.rows for fact in facts), late, dead) == (400, [], [])
    same(panes(rows), in_duckdb(arrivals))


def test_windows_closed_by_several_tasks_are_those_of_the_oracle() -> None:
    arrivals = records(9, disorder=DELAY)

    rows, _, late, _ = run(windows(), cut(arrivals, 3), "wide", restart=True)

    assert late == []
    same(panes(rows), in_duckdb(arrivals))


@pytest.mark.parametrize(("lane", "batches", "seed"), [
    ("narrow", 1, 2), ("narrow", 7, 3), ("narrow", 50, 4), ("narrow", 50, 5), ("wide", 5, 6),
])  # fmt: skip
def test_late_and_bad_rows_are_counted_and_emitted_exactly(
    lane: Any, batches: int, seed: int
) -> None:
    arrivals = records(seed, disorder=25, bad=0.05)
    parts = cut(arrivals, batches)
    marks = watermarks(parts, partitions=PARTITIONS, delay=DELAY * SECOND)
    lived = [
        windows_oracle.Batch(
            [{**a.row, "_time": a.time, "at": a} for a in part if a.time is not None], *mark
        )
        for part, mark in zip(parts, marks, strict=True)
    ]
    lived.append(windows_oracle.Batch([], marks[-1][1], windows_oracle.GREATEST))
    expected = windows_oracle.tumbling(
        lived, size=SIZE * SECOND, offset=0, keys=["auction"],
        aggregates={"n": ("count", None, None), "values": ("count", "n", None),
                    "total": ("sum", "n", None), "low": ("min", "n", None),
                    "high": ("max", "name", None), "cost": ("sum", "price", None),
                    "mean": ("mean", "price", None)},
    )  # fmt: skip

    rows, facts, late, dead = run(windows(), parts, lane, restart=True)

    same(panes(rows), [(key[0], start // SECOND, *answers.values())
                       for start, _, key, answers in expected.panes])  # fmt: skip
    counts = [0] * (len(parts) + 1)
    for number, _, _ in expected.late:
        counts[number] += 1
    assert [fact.late for fact in facts] == counts
    assert batches == 1 or sum(counts) > 0
    bad = [[a for a in part if a.time is None] for part in parts]
    assert [fact.dead for fact in facts] == [*map(len, bad), 0]
    assert [fact.watermarks["bids"] for fact in facts[:-1]] == [
        None if after == windows_oracle.LEAST else at((after - MICROS) / SECOND)
        for _, after in marks
    ]
    places = {(a.partition, a.offset) for part in bad for a in part}
    assert {(row["partition"], row["offset"]) for row in dead} == places
    late_windows = {(row["origin"]["partition"], row["origin"]["offset"], seconds(w["start"]))
                 for row in late for w in row["windows"]}  # fmt: skip
    assert len(late) == len(expected.late)
    assert late_windows == {(row["at"].partition, row["at"].offset, start // SECOND)
                         for _, row, start in expected.late}  # fmt: skip


def by_sql(arrivals: list[Arrival], sql: str) -> list[Pane]:
    """The results of a query of DuckDB over all rows."""
    con = duckdb.connect()
    con.execute("create table b (auction bigint, t bigint)")
    con.executemany("insert into b values (?, ?)",
                    [(a.row["auction"], a.time) for a in arrivals])  # fmt: skip
    return con.execute(sql).fetchall()


SHAPES: dict[str, tuple[Any, str]] = {
    "hopping": (
        ms.hopping("10 seconds", every="2 seconds"),
        """select auction, first, first + 10000000, count(*) from (
             select auction, (t // 2000000 - hop) * 2000000 as first
             from b join (select unnest(range(5)) as hop) on true)
           group by auction, first""",
    ),
    "sampling": (
        ms.hopping("2 seconds", every="5 seconds"),
        """select auction, t // 5000000 * 5000000 as first, first + 2000000, count(*)
           from b where t % 5000000 < 2000000 group by auction, t // 5000000 * 5000000""",
    ),
    "session": (
        ms.session(gap="3 seconds"),
        """with apart as (
             select auction, t, coalesce(t - lag(t) over each > 3000000, false) as new
             from b window each as (partition by auction order by t)),
           placed as (select *, count(*) filter (where new) over
                      (partition by auction order by t rows unbounded preceding) as place
                      from apart)
           select auction, min(t), max(t) + 3000000, count(*)
           from placed group by auction, place""",
    ),
}


@pytest.mark.parametrize(("lane", "batches"), [("narrow", 1), ("narrow", 60), ("wide", 4)])
@pytest.mark.parametrize("shape", SHAPES)
def test_hopping_windows_and_sessions_are_the_same_under_any_cut(
    shape: str, lane: Any, batches: int
) -> None:
    window, sql = SHAPES[shape]
    arrivals = records(11, disorder=DELAY)
    stream = bids(watermark=f"{DELAY} seconds").by("auction").window(window).agg(n=ms.count())

    rows, _, late, _ = run(stream, cut(arrivals, batches), lane, restart=True)

    assert late == []
    found = [(r["auction"], at_micros(r["window_start"]), at_micros(r["window_end"]), r["n"])
             for r in rows]  # fmt: skip
    assert sorted(found, key=repr) == sorted(by_sql(arrivals, sql), key=repr)


@pytest.mark.parametrize("within", [None, 15])
@pytest.mark.parametrize(
    ("lane", "batches"), [("narrow", 1), ("narrow", 40), ("wide", 1), ("wide", 3)]
)
def test_distinct_is_the_same_under_any_cut_while_a_key_lives_in_one_partition(
    lane: Any, batches: int, within: int | None
) -> None:
    arrivals = [a for a in records(7, disorder=DELAY) if a.row["auction"] is not None]
    arrivals = in_order([(a.partition, a.time, a.row) for a in arrivals])
    origins = [{**a.row, "_time": a.time, "_source": 0, "_partition": a.partition,
                "_offset": a.offset, "_sub": 0} for a in arrivals]  # fmt: skip
    expected = distinct_oracle.distinct(
        [(origins, distinct_oracle.GREATEST * -1)], by=["auction"],
        within=None if within is None else within * SECOND,
    )  # fmt: skip
    stream = bids(watermark=f"{DELAY} seconds").distinct(
        by="auction", within=None if within is None else f"{within} seconds"
    )

    rows, facts, late, _ = run(stream, cut(arrivals, batches), lane, restart=True)

    assert sum(fact.late for fact in facts) == 0
    assert late == []
    assert sorted((r["auction"], at_micros(r["ts"]), repr(r["price"])) for r in rows) == sorted(
        (row["auction"], row["_time"], repr(row["price"])) for row in expected.passed[0]
    )


def at_micros(time: datetime) -> int:
    gap = time - at(0)
    return MICROS + (gap.days * 86_400 + gap.seconds) * SECOND + gap.microseconds


def test_alternating_lanes_do_not_change_the_results() -> None:
    """Narrow and wide batches alternate over one checkpoint."""
    arrivals = records(8, disorder=DELAY)
    with Drive(ms.Pipeline("cuts", windows().to(ms.Topic("out"))), lane="narrow") as d:
        for partition in range(PARTITIONS):
            d.feed("bids", [], partition=partition)
        lanes = []
        for number, batch in enumerate(cut(arrivals, 4)):
            d._lane = "wide" if number % 2 else "narrow"
            d.restart()
            for arrival in batch:
                d.feed("bids", [as_record(arrival)], partition=arrival.partition)
            lanes.append(d.step().lane)
        d.finish()

        assert lanes == ["narrow", "wide", "narrow", "wide"]
        same(panes(d.rows("out")), in_duckdb(arrivals))

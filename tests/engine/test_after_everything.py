"""Steps after `everything()`: its results have the largest event time inside as a hidden time.

After `process` there is an event time only if its rows have the column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest
from tests.engine.scenes import PLACES, at, bid, bids, counted, drive_in

import millstream as ms
from millstream.errors import InvalidSpec
from millstream.testing import Drive

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.operators.process.spec import Visit


def ever(**read: Any) -> ms.Stream:
    return bids(**read).by("auction").window(ms.everything()).agg(n=ms.count())


def minutes(stream: ms.Stream) -> ms.Stream:
    return stream.by("n").window(ms.tumbling("1 minute")).agg(auctions=ms.count())


def renamed(frame: Any) -> Any:
    return frame.withColumn("m", frame["n"] + 1)


STEPS: dict[str, Callable[[ms.Stream], ms.Stream]] = {
    "nothing between": lambda stream: stream,
    "where": lambda stream: stream.where("n > 0"),
    "select": lambda stream: stream.select("n", "auction"),
    "drop": lambda stream: stream.drop("window_end"),
    "transform": lambda stream: stream.transform(renamed),
    "ordered": lambda stream: stream.ordered(),
    "distinct": lambda stream: stream.distinct(by="auction", within="1 hour"),
    "union": lambda stream: stream.union(stream).distinct(by="auction"),
}


@pytest.mark.parametrize("step", list(STEPS))
def test_a_window_after_everything_groups_results_by_the_largest_time_inside(
    step: str, spark: object
) -> None:
    later = minutes(STEPS[step](ever()))
    with Drive(ms.Pipeline("p", later.to(ms.Topic("out"))), lane="narrow") as d:
        d.feed("bids", [bid(1, 1), bid(70, 1), bid(50, 1), bid(5, 2), bid(65, 3), bid(70, 3)])
        d.step()
        assert d.rows("out") == []
        d.finish()
        assert [(row["n"], row["window_start"], row["auctions"]) for row in d.rows("out")] == [
            (1, at(0), 1), (2, at(60), 1), (3, at(60), 1),
        ]  # fmt: skip
        assert d.late() == []


def test_a_window_after_everything_runs_in_the_wide_lane(spark: object) -> None:
    later = minutes(ever().where("n > 0"))
    with Drive(ms.Pipeline("p", later.to(ms.Topic("out"))), lane="wide") as d:
        d.feed("bids", [bid(1, 1), bid(70, 1), bid(5, 2)])
        d.step()
        d.finish()
        assert [(row["n"], row["window_start"]) for row in d.rows("out")] == [
            (1, at(0)), (2, at(60)),
        ]  # fmt: skip


def test_tables_and_lookups_after_everything_work(spark: object) -> None:
    names = ms.table(ms.Topic("names", schema="id long, word string"), key="id")
    pipeline = ms.Pipeline(
        "p",
        ever().latest(by="auction").to(ms.Topic("latest", key="auction")),
        ever().by("n").agg(auctions=ms.count()).to(ms.Topic("tally", key="n")),
        ever().lookup(names, on={"auction": "id"}).to(ms.Topic("named")),
        ever().as_of(names, on={"auction": "id"}).to(ms.Topic("then")),
    )
    with Drive(pipeline, lane="narrow") as d:
        d.feed("names", [{"id": 1, "word": "vase"}], timestamp=0)
        d.feed("bids", [bid(1, 1), bid(70, 1), bid(5, 2)])
        d.step()
        d.finish()
        assert [(row["auction"], row["n"]) for row in d.rows("latest")] == [(1, 2), (2, 1)]
        assert [(row["n"], row["auctions"]) for row in d.rows("tally")] == [(1, 1), (2, 1)]
        assert [(row["auction"], row["word"]) for row in d.rows("named")] == [(1, "vase")]
        assert [(row["auction"], row["word"]) for row in d.rows("then")] == [(1, "vase")]


def test_steps_that_need_the_time_in_a_column_are_refused_while_building() -> None:
    with pytest.raises(InvalidSpec, match=r"join needs an event time that is in a column; got the "
                                          r"results of everything\(\)"):  # fmt: skip
        ever().join(bids("others").select("auction as a", "ts"), on={"auction": "a"},
                    within="1 minute")  # fmt: skip
    with pytest.raises(InvalidSpec, match="top needs an event time that is in a column"):
        ever().top(3, by="n")
    with pytest.raises(InvalidSpec, match="needs an event time; got a stream without one"):
        minutes(ever(time=None))


def paired(visit: Visit) -> list[dict[str, Any]]:
    return [{"auction": row["auction"], "seen": row["n"] or 0} for row in visit.rows]


def test_rows_of_a_process_without_a_time_have_none(spark: object) -> None:
    made = bids().process(paired, by="auction", state="x long", gives="auction long, seen int")
    with pytest.raises(InvalidSpec, match="needs an event time; got a stream without one"):
        counted(made)
    table = made.by("auction").agg(rows=ms.count())
    pipeline = ms.Pipeline("p", made.to(ms.Memory("out")), table.to(ms.Topic("t", key="auction")))
    with Drive(pipeline, lane="narrow") as d:
        d.feed("bids", [bid(1, 1), bid(2, 1)])
        d.step()
        assert [row["seen"] for row in d.rows("out")] == [0, 0]
        assert [(row["auction"], row["rows"]) for row in d.rows("t")] == [(1, 2)]


@pytest.mark.parametrize("lane", PLACES)
def test_a_union_with_results_that_have_no_time_has_none(
    lane: Literal["narrow", "wide"], spark: object
) -> None:
    untimed = ms.read(ms.Topic("others", schema="auction long"))
    both = ever().union(untimed.by("auction").window(ms.everything()).agg(n=ms.count()))
    with drive_in(ms.Pipeline("p", both.to(ms.Topic("out"))), lane) as d:
        d.feed("bids", [bid(1, 1), bid(2, 1)])
        d.feed("others", [{"auction": 7}])
        d.step()
        d.finish()
        assert sorted((row["auction"], row["n"]) for row in d.rows("out")) == [(1, 2), (7, 1)]

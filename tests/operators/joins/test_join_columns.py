"""What a join's results are called: both sides as they were, `event_time`, and `suffix=`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.scenes import PLACES, drive_in

import millstream as ms
from millstream.errors import InvalidSpec
from millstream.operators.joins.result_columns import result_columns
from millstream.plan.graph import EventTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.testing import Drive

START = datetime(2026, 1, 1, tzinfo=UTC)
LANES = pytest.mark.parametrize("lane", PLACES)
real = pytest.mark.usefixtures("spark")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def stream(name: str = "a", schema: str = "id long, x int, ts timestamp", **more: Any) -> ms.Stream:
    return ms.read(ms.Topic(name, schema=schema), **{"time": "ts", **more})


def table(schema: str = "id long, x int", **more: Any) -> ms.Table:
    return ms.table(ms.Topic("t", schema=schema), key="id", **more)


def windows(name: str = "a") -> ms.Stream:
    return stream(name).by("id").window(ms.tumbling("10 seconds")).agg(n=ms.count())


def driven(joined: ms.Stream | ms.Table, lane: Any) -> Drive:
    return drive_in(ms.Pipeline("p", joined.to(ms.Topic("out"))), lane)


# -- the names -------------------------------------------------------------------


def test_the_suffix_is_for_names_of_the_right_that_the_left_has_too() -> None:
    joined = stream().join(stream("b"), on="id", within="1 hour", suffix="_b")
    assert joined.columns == ("id", "x", "ts", "x_b", "ts_b", "event_time")
    other = stream("b", "x int, ID long, y string, ts timestamp")
    crossed = stream().join(other.select("x", "ID", "y"), on={"id": "ID"}, suffix="_b")
    assert crossed.columns == ("id", "x", "ts", "x_b", "ID_b", "y")
    for enriched in (
        stream().as_of(table(), on="id", suffix="_now"),
        stream().lookup(table(), on="id", suffix="_now"),
    ):
        assert enriched.columns == ("id", "x", "ts", "x_now")
        assert enriched.node.time == EventTime("ts")
    assert table().join(table(), on="id", suffix="_b").columns == ("id", "x", "x_b")


def test_the_time_of_a_pair_is_its_event_time_until_a_step_drops_it() -> None:
    joined = stream().join(stream("b"), on="id", within="1 hour", suffix="_b")
    assert joined.node.time == EventTime("event_time")
    assert joined.select("id", "event_time as at").node.time == EventTime("at")
    with pytest.raises(InvalidSpec) as refused:
        joined.select("id", "ts").by("id").window(ms.tumbling("1 minute"))
    assert "its event time ends at `select id, ts` (" in str(refused.value)
    assert "test_join_columns.py" in str(refused.value)
    untimed = stream().join(stream("b", "id long, y int", time=None), on="id")
    assert untimed.columns == ("id", "x", "ts", "y")
    assert untimed.node.time is None


def test_the_key_of_joined_tables_has_the_names_of_the_result() -> None:
    orders = ms.table(ms.Topic("o", schema="id long, buyer long"), key="id")
    bought = orders.join(table(), on={"buyer": "id"}, how="full", suffix="_buyer")
    assert bought.columns == ("id", "buyer", "id_buyer", "x")
    assert bought.key == ("id", "id_buyer")
    assert orders.join(table(), on={"buyer": "id"}, suffix="_buyer").key == ("id",)
    by_key = orders.join(
        ms.table(ms.Topic("n", schema="buyer long, of long"), key="buyer"),
        on={"id": "of"}, suffix="_note",
    )  # fmt: skip
    assert by_key.key == ("buyer_note",)
    assert bought.by("id_buyer").agg(n=ms.count()).key == ("id_buyer",)


def test_types_are_known_after_a_join_under_the_names_they_have_there() -> None:
    joined = stream().join(
        stream("b", "id long, x string, ts timestamp"), on="id", within="1 hour", suffix="_b"
    )
    kept = joined.process(lambda visit: [], by="id", state="n long").node
    assert kept.spec.gives.ddl() == (  # type: ignore[attr-defined]
        "`id` long, `x` int, `ts` timestamp, `x_b` string, `ts_b` timestamp, `event_time` timestamp"
    )
    with pytest.raises(InvalidSpec, match=r"needs a column of numbers; got x_b string"):
        joined.by("id").window(ms.tumbling("1 minute")).agg(n=ms.sum("x_b"))


def test_a_plan_shows_the_suffix_and_the_columns() -> None:
    joined = stream().join(stream("b"), on="id", within="1 hour", suffix="_b")
    plan = ms.Pipeline("p", joined.to(ms.Topic("out"))).plan()
    assert 'join(on=\'id\', within="1 hour", suffix="_b")' in str(plan)
    assert "emits      id, x, ts, x_b, ts_b, event_time: each pair" in str(plan)


def pairs(left: ms.Stream, right: ms.Stream, **more: Any) -> ms.Stream:
    return left.join(right, **{"on": "id", "within": "1 hour", **more})


MISTAKES: list[tuple[str, Callable[[], object]]] = [
    ("join needs names that only one side has, apart from equal keys; got 'x', 'ts' on both; give "
     'suffix="_right"', lambda: pairs(stream(), stream("b"))),
    ("join needs names that only one side has, apart from equal keys; got 'window_start', "
     "'window_end', 'n' on both", lambda: pairs(windows(), windows("b"))),
    ("as_of needs names that only one side has", lambda: stream().as_of(table(), on="id")),
    ("lookup needs names that only one side has", lambda: stream().lookup(table(), on="id")),
    ("table.join needs names that only one side has", lambda: table().join(table(), on="id")),
    ("got 'X' on both", lambda: pairs(stream(), stream("b", "id long, X int, at timestamp",
                                                       time="at"))),
    ("the `suffix` of join needs to make names that are free; got 'x_b' for 'x' of the right",
     lambda: pairs(stream("a", "id long, x int, x_b int, ts timestamp"), stream("b"),
                   suffix="_b")),
    ("needs to make names that are free; got 'x_b' for 'x' of the right",
     lambda: pairs(stream(), stream("b", "id long, x int, X_B int, at timestamp", time="at"),
                   suffix="_b")),
    ("needs to make names that are free; got 'event_time' for 'event'",
     lambda: pairs(stream("a", "id long, event int, ts timestamp"),
                   stream("b", "id long, event int, at timestamp", time="at"), suffix="_time")),
    ("join(suffix=…) needs column names that are not reserved",
     lambda: pairs(stream("a", "id long, window int, ts timestamp"),
                   stream("b", "id long, window int, at timestamp", time="at"), suffix="_end")),
    ("the `suffix` of join needs text", lambda: pairs(stream(), stream("b"), suffix="")),
    ("the `suffix` of lookup needs text", lambda: stream().lookup(table(), on="id", suffix=" ")),
    ("the `suffix` of as_of needs text", lambda: stream().as_of(
        table(), on="id", suffix=1)),  # type: ignore[arg-type]
    ("the `suffix` of table.join needs text", lambda: table().join(table(), on="id", suffix="")),
    ("join needs the name event_time for the time of each result; got a column of that name on "
     "the left; rename it there: .select(\"…\", \"event_time as left_time\")",
     lambda: pairs(stream("a", "id long, event_time timestamp", time="event_time"),
                   stream("b"), suffix="_b")),
    ("join needs the name event_time for the time of each result; got a column of that name on "
     "the right", lambda: pairs(stream(), stream("b", "id long, event_time timestamp",
                                                 time="event_time"))),
]  # fmt: skip


@pytest.mark.parametrize(("message", "build"), MISTAKES, ids=[m[:60] for m, _ in MISTAKES])
def test_a_name_that_two_columns_would_have_raises(
    message: str, build: Callable[[], object]
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        build()
    assert message in str(refused.value)


def test_columns_of_the_right_find_their_own_names() -> None:
    made = result_columns(["user"], ["id", "user"], (("user", "id"),), step="join", suffix="_r")
    assert made == (("user", 0, "user"), ("id", 1, "id"), ("user_r", 1, "user"))


# -- the rows --------------------------------------------------------------------


@LANES
@real
def test_a_window_keeps_its_end_when_it_is_joined_with_later_rows(lane: Any) -> None:
    """[0, 10) met a row of second 12.000001; it left with that as its `window_end`."""
    right = stream("b", "key long, y string, seen timestamp", time="seen")
    joined = windows().join(right, on={"id": "key"}, within="1 minute", how="full")
    with driven(joined, lane) as d:
        d.feed("a", [{"id": 1, "x": 1, "ts": at(1)}, {"id": 2, "x": 1, "ts": at(2)},
                     {"id": 9, "x": 1, "ts": at(10)}])  # fmt: skip
        d.feed("b", [{"key": 1, "y": "late", "seen": at(12.000001)},
                     {"key": 1, "y": "soon", "seen": at(3)},
                     {"key": 7, "y": "alone", "seen": at(4)}])  # fmt: skip
        d.step()
        d.restart()
        d.finish()
        rows = d.rows("out")
    found = {(row["id"], row["y"]): row for row in rows}
    assert set(found) == {(1, "late"), (1, "soon"), (2, None), (9, None), (None, "alone")}
    end = timedelta(microseconds=1)
    window = {"id": 1, "window_start": at(0), "window_end": at(10), "n": 1, "key": 1}
    assert found[1, "late"] == window | {
        "y": "late", "seen": at(12.000001), "event_time": at(12.000001),
    }  # fmt: skip
    assert found[1, "soon"] == window | {
        "y": "soon", "seen": at(3), "event_time": at(10) - end,
    }  # fmt: skip
    assert found[2, None] == {
        "id": 2, "window_start": at(0), "window_end": at(10), "n": 1, "key": None, "y": None,
        "seen": None, "event_time": at(10) - end,
    }  # fmt: skip
    assert found[None, "alone"] == {
        "id": None, "window_start": None, "window_end": None, "n": None, "key": 7, "y": "alone",
        "seen": at(4), "event_time": at(4),
    }  # fmt: skip


@LANES
@real
def test_two_windows_of_the_same_bounds_keep_both_and_can_be_counted_again(lane: Any) -> None:
    joined = windows().join(windows("b"), on=["id", "window_start"], within="0 seconds",
                            suffix="_b")  # fmt: skip
    assert joined.columns == (
        "id", "window_start", "window_end", "n", "window_end_b", "n_b", "event_time",
    )  # fmt: skip
    counted = joined.by("id").window(ms.tumbling("1 minute")).agg(both=ms.sum("n_b"), n=ms.count())
    with driven(counted, lane) as d:
        for topic, times in (("a", [1, 2, 11, 55]), ("b", [3, 12, 13, 14, 25, 59])):
            d.feed(topic, [{"id": 1, "x": 0, "ts": at(second)} for second in times])
        d.step()
        d.finish()
        assert [(row["window_start"], row["both"], row["n"]) for row in d.rows("out")] == [
            (at(0), 5, 3)
        ]


@LANES
@real
def test_rows_of_both_sides_with_the_same_names_stay_apart(lane: Any) -> None:
    joined = stream().join(stream("b"), on="id", within="1 hour", how="full", suffix="_b")
    with driven(joined, lane) as d:
        d.feed("a", [{"id": 1, "x": 10, "ts": at(5)}, {"id": 2, "x": 20, "ts": at(6)}])
        d.step()
        d.restart()
        d.feed("b", [{"id": 1, "x": 11, "ts": at(1)}, {"id": 3, "x": 30, "ts": at(7)}])
        d.step()
        d.finish()
        found = {row["id"]: row for row in d.rows("out")}
    assert found == {
        1: {"id": 1, "x": 10, "ts": at(5), "x_b": 11, "ts_b": at(1), "event_time": at(5)},
        2: {"id": 2, "x": 20, "ts": at(6), "x_b": None, "ts_b": None, "event_time": at(6)},
        3: {"id": 3, "x": None, "ts": None, "x_b": 30, "ts_b": at(7), "event_time": at(7)},
    }


@LANES
@real
def test_a_table_has_its_columns_next_to_those_of_the_event(lane: Any) -> None:
    rates = table("id long, x int, ts timestamp", time="ts")
    outputs = {
        "then": stream().as_of(rates, on="id", suffix="_rate"),
        "now": stream().lookup(rates, on="id", suffix="_rate"),
        "both": ms.table(ms.Topic("u", schema="id long, x int"), key="id")
        .join(rates, on="id", how="left", suffix="_t").changes(),
    }  # fmt: skip
    pipeline = ms.Pipeline("p", *(one.to(ms.Topic(name)) for name, one in outputs.items()))
    with drive_in(pipeline, lane) as d:
        d.feed("t", [{"id": 1, "x": 7, "ts": at(0)}, {"id": 1, "x": 8, "ts": at(9)}])
        d.feed("u", [{"id": 1, "x": 3}, {"id": 2, "x": 4}])
        d.feed("a", [{"id": 1, "x": 5, "ts": at(4)}])
        d.step()
        d.finish()
        event = {"id": 1, "x": 5, "ts": at(4)}
        assert d.rows("then") == [event | {"x_rate": 7, "ts_rate": at(0)}]
        assert d.rows("now") == [event | {"x_rate": 8, "ts_rate": at(9)}]
        assert [(row["id"], row["x"], row["x_t"], row["ts"]) for row in d.rows("both")] == [
            (1, 3, 8, at(9)), (2, 4, None, None),
        ]  # fmt: skip


@real
def test_the_state_of_a_join_is_shown_under_the_names_of_its_results() -> None:
    from millstream.engine.inspection.inspect import of_key, open_checkpoint

    right = stream("b", "key long, id string, ts timestamp")
    joined = stream().join(right, on={"id": "key"}, within="1 hour", suffix="_b", name="pairs")
    with driven(joined, "narrow") as d:
        d.feed("a", [{"id": 1, "x": 10, "ts": at(5)}])
        d.feed("b", [{"key": 1, "id": "one", "ts": at(6)}])
        d.step()
        kept = of_key(open_checkpoint(d._folder / "checkpoint"), "pairs", {"id": "1"}).steps
        assert [(row["side"], row.get("ts"), row.get("id_b"), row.get("ts_b")) for row in kept] == [
            ("left", at(5), None, None), ("right", None, "one", at(6)),
        ]  # fmt: skip


@real
def test_state_that_an_earlier_version_wrote_is_refused_before_anything_runs() -> None:
    """It has no time column of the left: the one column of both times was made from `_time`."""
    from millstream.engine.checkpoint import durable
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.inspection.inspect import of_key, open_checkpoint

    joined = stream().join(stream("b", "key long, y int, at timestamp", time="at"),
                           on={"id": "key"}, within="1 hour", name="pairs")  # fmt: skip
    with driven(joined, "narrow") as d:
        d.feed("a", [{"id": 1, "x": 10, "ts": at(5)}])
        d.step()
        folder = d._folder / "checkpoint"
        path = Checkpoint(folder).state_folder("pairs") / "spec"
        body = durable.read(path, "spec")
        del body["spec"]["keeps"]
        path.unlink()
        durable.write_new(path, "spec", body)
        with pytest.raises(InvalidSpec, match="reading the state of a join needs every column"):
            of_key(open_checkpoint(folder), "pairs", {"id": "1"})
        with pytest.raises(InvalidSpec, match="another spec for pairs"):
            d.restart()

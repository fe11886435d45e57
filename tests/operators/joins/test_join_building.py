"""Joins while building: mistakes are reported at the user's line, plans show what is promised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.errors import InvalidSpec
from millstream.plan.explain.explain import describe
from millstream.plan.graph import EventTime

if TYPE_CHECKING:
    from collections.abc import Callable


def stream(name: str = "a", schema: str = "id long, x int, ts timestamp", **more: Any) -> ms.Stream:
    return ms.read(ms.Topic(name, schema=schema), **{"time": "ts", **more})


def other(**more: Any) -> ms.Stream:
    return stream("b", "key int, y string, at timestamp", **{"time": "at", **more})


def table(schema: str = "key long, y string", key: Any = "key") -> ms.Table:
    return ms.table(ms.Topic("t", schema=schema), key=key)


def memory(**more: Any) -> ms.Table:
    rows = ms.Memory(name="m", schema="key long, y string, since timestamp")
    return ms.table(rows, key="key", **more)


def kept() -> ms.Stream:
    windows = stream().by("id").window(ms.tumbling("10 seconds")).late(keep="1 minute")
    return windows.agg(n=ms.count())


def test_a_join_has_the_columns_of_both_and_the_later_time_in_a_new_one() -> None:
    joined = stream().join(other(), on={"id": "key"}, within="1 hour")
    assert joined.columns == ("id", "x", "ts", "key", "y", "at", "event_time")
    assert joined.node.time == EventTime("event_time")


def test_a_join_after_a_window_has_the_window_and_its_own_time() -> None:
    counts = stream().by("id").window(ms.tumbling("10 seconds")).agg(n=ms.count())
    joined = counts.join(other(), on={"id": "key"}, within="1 hour")
    assert joined.node.time == EventTime("event_time")
    joined.by("y").window(ms.tumbling("1 minute")).agg(n=ms.count())


def test_events_keep_their_columns_and_time_and_gain_those_of_the_table() -> None:
    for enriched in (
        stream().as_of(table(), on={"id": "key"}),
        stream().lookup(table(), on={"id": "key"}, how="left"),
    ):
        assert enriched.columns == ("id", "x", "ts", "key", "y")
        assert enriched.node.time == EventTime("ts")


def test_joined_tables_have_the_key_of_the_left_or_both_if_right_rows_may_be_unmatched() -> None:
    orders = ms.table(ms.Topic("o", schema="id long, key long"), key="id")
    assert orders.join(table("key long, y string"), on="key").key == ("id",)
    assert orders.join(table("key long, y string"), on="key", how="full").key == ("id", "key")
    assert orders.join(table("n long, y string", "n"), on={"id": "n"}).columns == (
        "id", "key", "n", "y",
    )  # fmt: skip


def joined(**more: Any) -> ms.Stream:
    return stream().join(other(), **{"on": {"id": "key"}, "within": "1 hour", **more})


MISTAKES: list[tuple[str, Callable[[], object]]] = [
    ("`on` of join needs a column", lambda: joined(on=[])),
    ("join(on=…) needs columns that exist; got 'nobody'", lambda: joined(on={"id": "nobody"})),
    ("a left join of streams needs a `within`", lambda: joined(within=None, how="left")),
    ("join needs another stream; got a Table", lambda: stream().join(table(), on="id")),  # type: ignore[arg-type]
    ("as_of needs a table; got a Stream", lambda: stream().as_of(other(), on="id")),  # type: ignore[arg-type]
    ("table.join needs another table", lambda: table().join(other(), on="key")),  # type: ignore[arg-type]
    ("keys of the same type; got id long and y string", lambda: joined(on={"id": "y"})),
    ("join(within=…) needs an event time", lambda: stream(time=None).join(
        other(), on={"id": "key"}, within="1 hour")),
    ("as_of needs an event time", lambda: stream(time=None).as_of(table(), on={"id": "key"})),
    ("as_of needs a table with an event time", lambda: stream().as_of(
        other(time=None).latest(by="key"), on={"id": "key"})),
    ("as_of needs a table whose rows have event times; got Memory('m') without time=; "
     'write ms.table(…, time="column"), or use lookup', lambda: stream().as_of(
        memory(), on={"id": "key"})),
    ("got Files(path='/data', format='json'", lambda: stream().as_of(ms.table(
        ms.Files("/data", format="json", schema="key long"), key="key"), on={"id": "key"})),
    ("got Memory('m') without time=", lambda: stream().as_of(
        memory().where("y > 'a'").select("key", "y"), on={"id": "key"})),
    ("got Memory('m') without time=", lambda: stream().as_of(
        memory().by("key").agg(n=ms.count()), on={"id": "key"})),
    ("got Memory('m') without time=", lambda: stream().as_of(
        table().join(memory(), on="key", suffix="_m"), on={"id": "key"})),
    ("got Memory('m') without time=", lambda: stream().as_of(
        memory().changes().latest(by="key").select("key", "y"), on={"id": "key"})),
    ("got 'x', 'ts' on both" , lambda: stream().as_of(
        table("id long, x int, ts timestamp", "id"), on="id")),
    ("needs the whole key of the right table", lambda: stream().lookup(
        table("key long, y string", ["key", "y"]), on={"id": "key"})),
    ("needs the whole key of the right table", lambda: stream().as_of(table(), on={"x": "y"})),
    ("`how` of lookup needs one of inner, left", lambda: stream().lookup(
        table(), on={"id": "key"}, how="full")),  # type: ignore[arg-type]
    ("join needs rows that are never retracted", lambda: kept().join(
        other(), on={"id": "key"}, within="1 hour")),
    ("as_of needs rows that are never retracted", lambda: kept().as_of(table(), on={"id": "key"})),
    ("the name of join needs", lambda: joined(name=" ")),
]  # fmt: skip


@pytest.mark.parametrize(("message", "build"), MISTAKES, ids=[m for m, _ in MISTAKES])
def test_a_mistake_raises_where_it_is_made(message: str, build: Callable[[], object]) -> None:
    with pytest.raises(InvalidSpec) as refused:
        build()
    assert message in str(refused.value)


def test_a_table_in_memory_with_event_times_supports_as_of() -> None:
    stream().as_of(memory(time="since"), on={"id": "key"})
    stream().lookup(memory(), on={"id": "key"})
    found = stream().lookup(memory(), on={"id": "key"}).latest(by="id").select("id as k", "y as z")
    stream().as_of(found, on={"id": "k"})


def test_the_plan_shows_which_times_a_table_has() -> None:
    def times(one: ms.Table) -> str:
        return str(ms.Pipeline("p", one.changes().to(ms.Topic("out"))).plan())

    files = ms.Files("/data", format="json", schema="key long")
    assert "event time the batch clock," in times(memory())
    assert "event time since," in times(memory(time="since"))
    assert "event time the file's modification time," in times(ms.table(files, key="key"))
    assert "event time the record's timestamp," in times(table())


def test_the_plan_shows_which_sources_wait_for_which_tables() -> None:
    found = stream().union(stream("c")).lookup(table(), on={"id": "key"})
    steps = describe("p", ms.Pipeline("p", found.to(ms.Topic("out"))).outputs)["steps"]
    waiting = {step["step"]: step["waits"] for step in steps if "waits" in step}
    assert list(waiting) == ["read a", "read c"]
    assert waiting["read a"].startswith("its rows stay unread until t is read to the end it had")
    then = stream().as_of(table(), on={"id": "key"})
    assert "waits" not in str(ms.Pipeline("p", then.to(ms.Topic("out"))).plan())


def test_the_plan_warns_about_a_join_without_within() -> None:
    endless = stream().join(other().select("key", "y"), on={"id": "key"})
    plan = ms.Pipeline("p", endless.to(ms.Topic("out"))).plan()
    assert "warning    without `within` the state grows without bound" in str(plan)
    bounded = ms.Pipeline("p", joined().to(ms.Topic("out"))).plan()
    assert "warning" not in str(bounded)
    assert "within     1 hour before or after" in str(bounded)


def test_the_plan_shows_that_a_lookup_depends_on_batches() -> None:
    enriched = stream().lookup(table(), on={"id": "key"})
    plan = str(ms.Pipeline("p", enriched.to(ms.Topic("out"))).plan())
    assert "exempt: which row an event matches depends on when its batch ran" in plan


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (None, "the table is replicated as long as it takes at most 16 MB"),
        ("replicated", "the table is replicated, as plan= says"),
        ("repartitioned", "both sides are repartitioned by their keys, as plan= says"),
    ],
)
def test_the_plan_shows_how_a_table_is_joined_with_events(plan: Any, words: str) -> None:
    taxed = stream().as_of(table(), on={"id": "key"}, plan=plan)
    found = stream().lookup(table(), on={"id": "key"}, plan=plan)
    text = str(ms.Pipeline("p", taxed.to(ms.Topic("a")), found.to(ms.Topic("b"))).plan())
    assert text.count(words) == 2


def test_steps_are_named_by_their_keys_or_by_name() -> None:
    assert joined().node.label == "join(id)"  # type: ignore[attr-defined]
    assert joined(name="pairs").node.label == "pairs"  # type: ignore[attr-defined]
    assert stream().as_of(table(), on={"id": "key"}).node.label == "as_of(id)"  # type: ignore[attr-defined]

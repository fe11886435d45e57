"""Tables through the engine, in both lanes: change logs, views of them, streams as tables."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.scenes import PLACES, at, bid, bids, drive, drive_in
from tests.oracles.database_oracle import Database
from tests.oracles.tables_oracle import Change, CurrentRows

import millstream as ms
from millstream.engine.inspection.inspect import of_key, open_checkpoint, states

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing import Drive

LANES = pytest.mark.parametrize("lane", PLACES)
USERS = "id long, city string, n long"
Row = dict[str, Any]


def users(**options: Any) -> ms.Table:
    return ms.table(ms.Topic("users", schema=USERS), **{"key": "id", **options})


def tabled(*tables: ms.Table | ms.Stream, lane: Any = "narrow", names: list[str]) -> Drive:
    outputs = [table.to(ms.Topic(name)) for table, name in zip(tables, names, strict=True)]
    return drive_in(ms.Pipeline("tables", *outputs), lane)


def applied(view: dict[Any, Row], rows: list[Row], key: str) -> None:
    """Apply rows as a keyed sink does."""
    for row in rows:
        if row.get("_sign") == -1:
            del view[row[key]]
        else:
            view[row[key]] = row


def feed(driven: Drive, change: Change) -> None:
    value = None if change.row is None else {"id": change.key[0], **change.row}
    key = json.dumps({"id": change.key[0]}).encode()
    driven.feed("users", [value], partition=change.partition, timestamp=change.time, key=key)


@LANES
def test_random_changes_keep_tables_and_derived_tables_up_to_date(lane: Any) -> None:
    choose = random.Random(7)
    table = users(watermark="1 second")
    big = table.where("n > 2").select("id as user", "n * 2 as twice")
    cities = table.by("city").agg(n=ms.count(), total=ms.sum("n"), most=ms.max("n"))
    crowded = cities.where("n > 1")
    names = ["users", "big", "cities", "crowded", "log"]
    views: dict[str, dict[Any, Row]] = {name: {} for name in names}
    rows, log = CurrentRows(), []
    with tabled(table, big, cities, crowded, table.changes(), lane=lane, names=names) as driven:
        offsets = [0, 0]
        for batch in range(3):
            for _ in range(25):
                partition = choose.randrange(2)
                row: Row = {"city": choose.choice("ab"), "n": choose.randrange(6)}
                change = Change((choose.randrange(5) * 2 + partition,),
                                None if choose.random() < 0.3 else row,
                                1000 * batch + choose.randrange(1500), offsets[partition],
                                partition)  # fmt: skip
                offsets[partition] += 1
                rows.take(change)
                feed(driven, change)
            driven.step()
            for name, key in zip(names, ("id", "user", "city", "city"), strict=False):
                applied(views[name], driven.rows(name), key)
            log += driven.rows("log")
            if batch == 0:
                driven.restart()
        now = {key: row for (key,), row in rows.rows.items()}
        groups: dict[Any, list[Any]] = {}
        for row in now.values():
            groups.setdefault(row["city"], []).append(row["n"])
        tallied = {city: {"city": city, "n": len(n), "total": sum(n), "most": max(n)}
                   for city, n in groups.items()}  # fmt: skip
        assert views["users"] == {key: {"id": key, **row} for key, row in now.items()}
        assert views["big"] == {
            key: {"user": key, "twice": 2 * row["n"]} for key, row in now.items() if row["n"] > 2
        }
        assert views["cities"] == tallied
        assert views["crowded"] == {c: row for c, row in tallied.items() if row["n"] > 1}
        expected = sorted((word, key) for word, (key,) in rows.changes)
        assert sorted((row["change"], row["id"]) for row in log) == expected


def test_changes_have_an_event_time_that_closes_windows() -> None:
    edits = users().changes().by("change").window(ms.tumbling("10 seconds")).agg(n=ms.count())
    with tabled(edits, names=["edits"]) as driven:
        for second, n in ((1, 1), (2, 2), (12, 3)):
            feed(driven, Change((1,), {"city": "a", "n": n}, second * 1000, 0))
        driven.step()
        found = [(row["change"], row["n"]) for row in driven.rows("edits")]

    assert found == [("insert", 1), ("update", 1)]


def test_a_derived_table_emits_one_change_per_key_and_batch() -> None:
    crowded = users().by("city").agg(n=ms.count()).where("n > 1").changes()
    with tabled(crowded, names=["crowded"]) as driven:
        driven.feed("users", [{"id": id_, "city": "a", "n": 1} for id_ in (1, 2, 3)], timestamp=1)
        driven.step()
        driven.feed("users", [{"id": 3, "city": "b", "n": 1}], timestamp=2)
        driven.step()
        driven.feed("users", [{"id": 2, "city": "b", "n": 1}], timestamp=3)
        driven.step()
        found = [(row["city"], row["n"], row["change"]) for row in driven.rows("crowded")]

    assert found == [("a", 3, "insert"), ("a", 2, "update"), ("a", 2, "delete"), ("b", 2, "insert")]


def test_the_watermark_of_a_table_read_to_its_end_follows_the_batch_clock() -> None:
    edits = users(watermark="5 seconds").changes().by("id").window(ms.tumbling("10 seconds"))
    with tabled(edits.agg(n=ms.count()), names=["edits"]) as driven:
        driven.clock(at(0))
        driven.feed("users", [{"id": 1, "city": "a", "n": 1}], timestamp=at(1))
        assert driven.step().watermarks["users"] == at(-4)
        driven.clock(at(14))
        assert driven.step().watermarks["users"] == at(9)
        assert driven.rows("edits") == []
        driven.clock(at(15))
        driven.step()
        assert [row["n"] for row in driven.rows("edits")] == [1]


def test_a_change_behind_the_watermark_is_applied_and_counted_as_late() -> None:
    with tabled(users(), names=["users"]) as driven:
        driven.feed("users", [{"id": 1, "city": "a", "n": 1}], timestamp=9000)
        driven.step()
        driven.feed("users", [{"id": 2, "city": "b", "n": 1}], timestamp=5000)
        facts = driven.step()

        assert (facts.late, facts.steps["current(id)"]["late"]) == (1, 1)
        assert driven.late() == []
        assert [row["id"] for row in driven.rows("users")] == [1, 2]


def test_a_change_takes_effect_at_its_time_column_a_tombstone_at_its_timestamp() -> None:
    table = ms.table(ms.Topic("t", schema="id string, v long, at timestamp"), "id", time="at")
    with tabled(table, names=["t"]) as driven:
        driven.feed("t", [{"id": "x", "v": 2, "at": 20_000}, {"id": "x", "v": 1, "at": 10_000}])
        driven.step()
        assert [row["v"] for row in driven.rows("t")] == [2]
        driven.feed("t", [None], key=b"x", timestamp=15_000)
        driven.step()
        assert driven.rows("t") == []
        driven.feed("t", [None], key=b'"x"', timestamp=25_000)
        driven.step()
        assert [row["_sign"] for row in driven.rows("t")] == [-1]


def test_a_null_key_a_null_time_and_a_tombstone_without_a_key_are_dead_rows() -> None:
    table = ms.table(ms.Topic("t", schema="id long, at timestamp"), "id", time="at")
    with tabled(table, names=["t"]) as driven:
        driven.feed("t", [{"id": None, "at": 1000}, {"id": 1, "at": None}, None])
        facts = driven.step()

        assert facts.dead == 3
        assert [row["reason"] for row in driven.dead()] == [
            "id: the key of a table is null",
            "at: event time is null",
            "the record's key: value is null",
        ]
        assert driven.rows("t") == []


@LANES
def test_a_stream_becomes_a_table_by_its_counts_its_latest_rows_and_a_fold(lane: Any) -> None:
    stream = bids()
    counts = stream.by("auction").agg(n=ms.count(), total=ms.sum("price"))
    latest = stream.latest(by="auction").select("auction", "price")
    ends = stream.fold(by="auction", start={"first": 0.0, "bids": 0}, step=_ends)
    names = ["counts", "latest", "ends"]
    with tabled(counts, latest, ends, lane=lane, names=names) as driven:
        driven.feed("bids", [bid(1, price=1.0), bid(2, 2, price=5.0), bid(0, price=2.0)])
        driven.step()
        assert driven.rows("counts") == [{"auction": 1, "n": 2, "total": 3.0},
                                         {"auction": 2, "n": 1, "total": 5.0}]  # fmt: skip
        assert driven.rows("latest") == [{"auction": 1, "price": 2.0}, {"auction": 2, "price": 5.0}]
        assert driven.rows("ends") == [{"auction": 1, "first": 1.0, "bids": 2},
                                       {"auction": 2, "first": 5.0, "bids": 1}]  # fmt: skip
        driven.restart()
        driven.feed("bids", [bid(-5, price=4.0)])
        driven.step()
        assert driven.rows("counts") == [{"auction": 1, "n": 3, "total": 7.0}]
        assert [row["price"] for row in driven.rows("latest")] == [4.0]
        assert [row["bids"] for row in driven.rows("ends")] == [3]


def _ends(state: Row, row: Row) -> Row:
    return {"first": state["first"] or row["price"], "bids": state["bids"] + 1}


def test_windows_with_corrections_can_be_aggregated() -> None:
    panes = bids().by("auction").window(ms.tumbling("10 seconds")).late(keep="1 minute")
    counts = panes.agg(n=ms.count()).by("auction").agg(total=ms.sum("n"), windows=ms.count())
    with tabled(counts, names=["counts"]) as driven:
        driven.feed("bids", [bid(1), bid(2), bid(11), bid(30)])
        driven.step()
        assert driven.rows("counts") == [{"auction": 1, "total": 3, "windows": 2}]
        driven.feed("bids", [bid(3)])
        driven.step()
        assert driven.rows("counts")[-1] == {"auction": 1, "total": 4, "windows": 2}


@LANES
def test_debezium_events_keep_the_rows_of_the_database(lane: Any) -> None:
    database = Database(random.Random(5))
    database.work(30)
    topic = ms.Topic("db", schema="id long, name string not null, big string")
    table = ms.table(topic, key="id", changes="debezium")
    named = table.where("name like 'a%'")
    rows: dict[Any, Row] = {}
    some: dict[Any, Row] = {}
    with tabled(table, named, lane=lane, names=["rows", "named"]) as driven:
        for part in (database.log[:20], database.log[20:]):
            for key, value in part:
                driven.feed("db", [value], key=key, timestamp=1)
            driven.step()
            applied(rows, driven.rows("rows"), "id")
            applied(some, driven.rows("named"), "id")

    assert rows == database.rows
    assert some == {k: r for k, r in database.rows.items() if r["name"].startswith("a")}


def test_the_rows_of_tables_are_shown_by_key_without_the_pipeline() -> None:
    stream = bids()
    made = {
        "current": users(),
        "agg": users().by("id").agg(total=ms.sum("n")),
        "latest": stream.latest(by="auction"),
        "fold": stream.fold(by="auction", start={"first": 0.0, "bids": 0}, step=_ends),
    }
    with tabled(*made.values(), names=list(made)) as driven:
        driven.feed("users", [{"id": 1, "city": "a", "n": 4}, {"id": 2, "city": "a", "n": 5}])
        driven.feed("bids", [bid(1, price=1.0), bid(2, price=2.0)])
        driven.step()
        driven.feed("users", [None], key=b"2", timestamp=1)
        driven.step()
        checkpoint = open_checkpoint(driven._folder / "checkpoint")
        steps = {row["kind"]: row["step"] for row in states(checkpoint).steps}

        def shown(kind: str, key: str, column: str) -> list[Row]:
            return of_key(checkpoint, steps[kind], {column: key}).steps

        assert [row["n"] for row in shown("current", "1", "id")] == [4]
        assert shown("current", "2", "id") == []
        assert [row["total"] for row in shown("agg", "1", "id")] == [4]
        assert [row["price"] for row in shown("latest", "1", "auction")] == [2.0]
        assert [row["bids"] for row in shown("fold", "1", "auction")] == [2]


def test_rows_in_memory_and_in_files_are_change_logs_too(tmp_path: Path) -> None:
    rows = [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 1, "n": 3}]
    (tmp_path / "part.json").write_text("\n".join(map(json.dumps, rows)))
    memory = ms.table(ms.Memory(rows), key="id")
    files = ms.table(ms.Files(tmp_path, format="json", schema="id long, n long"), key="id")
    with tabled(memory, files, names=["memory", "files"]) as driven:
        driven.step()
        expected = [{"id": 1, "n": 3}, {"id": 2, "n": 2}]
        assert driven.rows("memory") == expected
        assert driven.rows("files") == expected


def test_a_plan_says_what_a_table_promises() -> None:
    table = users()
    plan = ms.Pipeline("p", table.by("city").agg(n=ms.count()).to(ms.Topic("out"))).plan()

    assert "upsert by id" in plan
    assert "for a deleted row its key, until a day behind the watermark" in plan
    assert "the old row retracted and the new one added" in plan


def test_streams_and_tables_in_one_pipeline_read_a_topic_once_each() -> None:
    with drive(bids(), bids().latest(by="auction").changes(), names=["a", "b"]) as driven:
        driven.feed("bids", [bid(1, price=2.0)])
        driven.step()
        assert [row["change"] for row in driven.rows("b")] == ["insert"]
        assert len(driven.rows("a")) == 1

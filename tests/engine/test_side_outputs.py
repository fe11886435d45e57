"""Late and bad rows of pipelines without Kafka, and the sinks for them."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.engine.scenes import PLACES

import millstream as ms
from millstream.engine.recovery.rewind import rewind
from millstream.errors import DataGone, InvalidSpec
from millstream.sinks.files.writer import committed
from millstream.testing import Drive

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

SCHEMA = "page long, ts timestamp"
GOOD = [{"page": n % 2, "ts": f"2026-01-01 00:00:{n:02d}"} for n in range(30)]
BAD, LATE = {"page": "x", "ts": "2026-01-01 00:00:29"}, {"page": 7, "ts": "2026-01-01 00:00:01"}
FUTURE = {"page": 8, "ts": "2999-01-01 00:00:00"}
DEAD = ["key", "value", "headers", "partition", "offset", "timestamp", "reason", "step", "topic"]


def fed(folder: Path) -> ms.Files:
    """Two files: the second has a bad row, one from the far future, and a late one."""
    folder.mkdir()
    for name, rows in (("a", GOOD), ("b", [BAD, FUTURE, LATE])):
        (folder / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ms.Files(str(folder), format="json", schema=SCHEMA)


def counts(source: Any, sink: Any, rest: Any = None, **options: Any) -> ms.Pipeline:
    views = ms.read(source, time="ts", watermark="5 seconds")
    windows = views.by("page").window(ms.tumbling("10 seconds")).late(rest=rest)
    return ms.Pipeline("views", windows.agg(n=ms.count()).to(sink, name="counts"), **options)


def in_two_batches(pipeline: ms.Pipeline, folder: Path, place: Path, **options: Any) -> None:
    """Read the first file, then the second, so that its late row is late."""
    later = (folder / "b.json").read_bytes()
    (folder / "b.json").unlink()
    pipeline.run(until="caught_up", checkpoint=place, **options)
    (folder / "b.json").write_bytes(later)
    pipeline.run(until="finished", checkpoint=place, **options)


def lines(folder: Path) -> list[dict[str, Any]]:
    texts = (file.read_text() for file in committed(folder))
    return [json.loads(line) for text in texts for line in text.splitlines()]


def test_bad_future_and_late_rows_of_files_are_kept_in_files_of_the_checkpoint(
    tmp_path: Path,
) -> None:
    found, place = ms.Memory(), tmp_path / "job"
    in_two_batches(counts(fed(tmp_path / "in"), found), tmp_path / "in", place)

    assert [row["n"] for row in found.rows] == [5] * 6
    dead, late = lines(place / "dead"), lines(place / "late")
    assert [list(row) for row in dead] == [DEAD, DEAD]
    values = [json.loads(base64.b64decode(row["value"])) for row in dead]
    assert values == [BAD, FUTURE]
    assert [row["offset"] for row in dead] == [30, 31]
    assert "page" in dead[0]["reason"]
    assert "ahead" in dead[1]["reason"] or "future" in dead[1]["reason"]
    headers = {one["key"]: base64.b64decode(one["value"]) for one in dead[0]["headers"]}
    assert headers == {"millstream.file": str(tmp_path / "in" / "b.json").encode(),
                       "millstream.row": b"0"}  # fmt: skip
    [row] = late
    assert json.loads(row["row"])["page"] == 7
    assert row["origin"] == {"source": "in", "partition": 0, "offset": 32, "index": 0}
    assert place.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("lane", PLACES)
@pytest.mark.usefixtures("spark")
def test_bad_rows_of_memory_are_kept_like_those_of_files(tmp_path: Path, lane: Any) -> None:
    found = ms.Memory()
    rows = ms.Memory([*GOOD, {"page": "x"}, FUTURE], schema=SCHEMA)
    counts(rows, found).run(until="finished", checkpoint=tmp_path, lane=lane)
    assert [row["n"] for row in found.rows] == [5] * 6
    assert [row["offset"] for row in lines(tmp_path / "dead")] == [30, 31]


def test_rows_of_two_folders_with_the_same_name_are_distinguished(tmp_path: Path) -> None:
    rows = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "in").mkdir()
        (tmp_path / name / "in" / "a.json").write_text("no JSON\n")
        rows.append(ms.read(ms.Files(str(tmp_path / name / "in"), format="json", schema="a long")))
    both = rows[0].union(rows[1])
    ms.Pipeline("both", both.to(ms.Memory())).run(until="finished", checkpoint=tmp_path / "job")
    dead = lines(tmp_path / "job" / "dead")
    assert len({(row["topic"], row["partition"], row["offset"]) for row in dead}) == 2


def test_named_sinks_take_bad_and_late_rows_once(tmp_path: Path) -> None:
    dead, database = ms.Memory("dead"), tmp_path / "late.db"
    pipeline = counts(fed(tmp_path / "in"), ms.Memory(), ms.Sqlite(database, "late"), dead=dead)
    in_two_batches(pipeline, tmp_path / "in", tmp_path / "job")

    assert [json.loads(row["value"]) for row in dead.rows] == [BAD, FUTURE]
    assert [(row["topic"], row["partition"], row["offset"]) for row in dead.rows] == [
        ("in", 0, 30), ("in", 0, 31)
    ]  # fmt: skip
    with sqlite3.connect(database) as late:
        [(step, row)] = late.execute("select step, row from late").fetchall()
    assert step.startswith("tumbling")
    assert json.loads(row)["page"] == 7
    assert not (tmp_path / "job" / "dead").exists()
    assert not (tmp_path / "job" / "late").exists()


@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_bad_and_late_rows_go_to_named_folders(tmp_path: Path, format_: Any) -> None:
    late = ms.Files(str(tmp_path / "late"), format=format_)
    dead = ms.Files(str(tmp_path / "dead"), format=format_)
    pipeline = counts(fed(tmp_path / "in"), ms.Memory(), late, dead=dead)
    in_two_batches(pipeline, tmp_path / "in", tmp_path / "job")
    assert len(committed(tmp_path / "dead")) == len(committed(tmp_path / "late")) == 1


def test_a_database_takes_bad_and_late_rows_by_their_origin(tmp_path: Path, database: str) -> None:
    key = ["topic", "partition", "offset"]
    dead = ms.Postgres("dead_rows", key=key, url=database)
    late = ms.Postgres("late_rows", url=database)
    pipeline = counts(fed(tmp_path / "in"), ms.Memory(), late, dead=dead)
    in_two_batches(pipeline, tmp_path / "in", tmp_path / "job")

    with psycopg.connect(database) as connection:
        rows = connection.execute(
            'select "offset", value, reason from dead_rows order by 1'
        ).fetchall()
        assert [(row[0], json.loads(row[1])) for row in rows] == [(30, BAD), (31, FUTURE)]
        [(row,)] = connection.execute("select row from late_rows").fetchall()
        assert json.loads(row)["page"] == 7


def test_a_topic_among_sinks_makes_topics_the_default(
    tmp_path: Path, broker: ThrowAwayBroker, topic: str
) -> None:
    rows = ms.read(ms.Files(str(tmp_path / "in"), format="json", schema="a long"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"a": 1}\nno JSON\n')
    pipeline = ms.Pipeline(topic, rows.to(ms.Topic(f"{topic}.out")))
    pipeline.run(until="finished", checkpoint=tmp_path / "job", kafka=broker.address)
    with ms.Consumer(f"{topic}.dead", kafka=broker.address, until_end=True) as dead:
        assert [record.value for record in dead] == [b"no JSON"]
    assert not (tmp_path / "job" / "dead").exists()

    other = ms.Pipeline(f"{topic}-2", rows.to(ms.Memory()), dead=ms.Topic(f"{topic}.bad"))
    other.run(until="finished", checkpoint=tmp_path / "job-2", kafka=broker.address)
    with ms.Consumer(f"{topic}.bad", kafka=broker.address, until_end=True) as dead:
        [record] = list(dead)
    assert dict(record.headers)["millstream.topic"] == b"in"
    assert record.value == b"no JSON"


def test_a_rewind_removes_kept_rows_or_uses_new_folders(tmp_path: Path) -> None:
    out, place = ms.Files(str(tmp_path / "out"), format="json"), tmp_path / "job"
    pipeline = counts(fed(tmp_path / "in"), out)
    in_two_batches(pipeline, tmp_path / "in", place)
    dead, late = lines(place / "dead"), lines(place / "late")

    rewind(pipeline, "start", again=True, checkpoint=place)
    assert lines(place / "dead") == []
    assert lines(place / "late") == []
    pipeline.run(until="finished", checkpoint=place)
    assert lines(place / "dead") == dead
    rewind(pipeline, "start", into="-2", checkpoint=place)
    pipeline.run(until="finished", checkpoint=place)
    assert lines(place / "dead-2") == dead
    assert lines(place / "dead") == dead
    assert len(late) == 1


def test_a_run_whose_kept_rows_are_missing_stops_before_it_reads(tmp_path: Path) -> None:
    place = tmp_path / "job"
    pipeline = counts(fed(tmp_path / "in"), ms.Memory())
    pipeline.run(until="caught_up", checkpoint=place)
    shutil.rmtree(place / "dead")
    with pytest.raises(DataGone, match="dead"):
        pipeline.run(until="caught_up", checkpoint=place)


def test_drive_shows_bad_and_late_rows_whatever_sink_is_named() -> None:
    found = ms.Memory("dead")
    topic = ms.Topic("views", schema=SCHEMA)
    with Drive(counts(topic, ms.Memory("out"), ms.Memory("late"), dead=found)) as drive:
        drive.feed("views", GOOD)
        drive.step()
        drive.feed("views", [LATE, b"no JSON"])
        drive.step()
        [dead], [late] = drive.dead(), drive.late()
        assert dead["value"] == b"no JSON"
        assert json.loads(late["row"])["page"] == 7
    assert [row["value"] for row in found.rows] == [b"no JSON"]


@pytest.mark.usefixtures("spark")
def test_rest_of_every_step_that_has_one_takes_any_sink(tmp_path: Path) -> None:
    rest = ms.Memory("late")
    views = ms.read(fed(tmp_path / "in"), time="ts", watermark="5 seconds")
    steps = [
        views.ordered(rest=rest),
        views.distinct(by="page", within="1 minute", rest=rest),
        views.by("page").window(ms.sliding("5 seconds")).late(rest=rest).agg(n=ms.count()),
        views.join(views.select("page as other", "ts as at"), on={"page": "other"},
                   within="1 second", rest=rest),
    ]  # fmt: skip
    outputs = [step.to(ms.Memory(f"out{place}")) for place, step in enumerate(steps)]
    in_two_batches(ms.Pipeline("steps", *outputs), tmp_path / "in", tmp_path / "job")
    late = {row["step"].partition("(")[0] for row in rest.rows}
    assert {"ordered", "sliding"} <= late
    assert all(json.loads(row["row"]) for row in rest.rows)


@pytest.mark.parametrize(
    ("sink", "word"),
    [
        (lambda: ms.Sqlite("x.db", "dead", key="page"), "key is page"),
        (lambda: ms.Postgres("dead", key=["topic", "headers"]), "key is topic, headers"),
        (lambda: ms.Topic("dead", key="page"), "leave key= out"),
        (lambda: ms.Topic("dead", schema="a long", format="avro"), "leave format= out"),
        (lambda: ms.Files("dead", format="csv"), "cells cannot hold"),
        (lambda: ms.Files("dead/*.json", format="json"), "needs a folder"),
        (lambda: ms.Chart("dead", y="n"), "window_start"),
        (lambda: "dead", "needs a sink"),
        (lambda: ms.discard, "needs a sink"),
    ],
)
def test_a_sink_that_cannot_take_bad_rows_is_refused_while_building(sink: Any, word: str) -> None:
    with pytest.raises(InvalidSpec, match=word):
        counts(ms.Topic("views", schema=SCHEMA), ms.Topic("out"), dead=sink())


@pytest.mark.parametrize(
    ("rest", "word"),
    [
        (lambda: ms.Sqlite("x.db", "late", key="page"), "key is page"),
        (lambda: ms.Sqlite("x.db", "late", key="origin"), "key is origin"),
        (lambda: ms.Files("late", format="csv"), "cells cannot hold"),
        (lambda: ms.Topic("late", format="text"), "leave format= out"),
        (lambda: ms.Alert("late", when="n > 1"), "JobAlert"),
    ],
)
def test_a_sink_that_cannot_take_late_rows_is_refused_while_building(rest: Any, word: str) -> None:
    with pytest.raises(InvalidSpec, match=word):
        counts(ms.Topic("views", schema=SCHEMA), ms.Topic("out"), rest())


def test_continuous_mode_needs_a_topic_for_bad_rows() -> None:
    rows = ms.read(ms.Topic("views", schema="page long"))
    with pytest.raises(InvalidSpec, match="needs a topic for bad rows"):
        ms.Pipeline("c", rows.to(ms.Topic("out")), mode="continuous", delivery="at_least_once",
                    dead=ms.Memory())  # fmt: skip


def test_the_plan_says_where_late_and_bad_rows_go(tmp_path: Path) -> None:
    plan = counts(ms.Files(tmp_path, format="json", schema=SCHEMA), ms.Memory("out")).plan()
    assert "bad rows → files in the checkpoint (dead/)" in plan
    assert "files in the checkpoint (late/)" in plan
    named = counts(ms.Topic("in", schema=SCHEMA), ms.Topic("out"), dead=ms.Sqlite("x.db", "dead"))
    assert "bad rows → Sqlite" in named.plan()

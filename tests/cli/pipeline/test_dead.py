"""`millstream dead`: dead rows are counted, shown, sent again once, or dropped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.bids import lines, pipeline_file, windows
from tests.faults.running import until

import millstream as ms
from millstream.engine.dead_letters.topic import POINTS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.command import Command

NAMES = ("reason", "step", "topic", "partition", "offset")


def write_dead(
    kafka: str, pipeline: str, source: str, count: int, reason: str = "not JSON", first: int = 0
) -> None:
    """Dead rows as a pipeline leaves them, without running one."""
    with ms.Producer(kafka) as producer:
        for offset in range(first, first + count):
            values = (reason, source, source, "0", str(offset))
            producer.send(
                f"{pipeline}.dead",
                f"row {offset}".encode(),
                key=b"k",
                timestamp=1_767_225_600_000 + offset,
                headers=[("mine", b"1")]
                + [(f"millstream.{n}", v.encode()) for n, v in zip(NAMES, values, strict=True)],
            )


@pytest.fixture
def file(millstream: Command, topic: str, tmp_path: Path) -> str:
    """A pipeline's file; of its topic three records are dead for one reason, two for another."""
    for name in (topic, f"{topic}.dead"):
        millstream.ok("topics", "create", name)
    kafka = millstream.environment["MILLSTREAM_KAFKA"]
    write_dead(kafka, topic, topic, 3)
    write_dead(kafka, topic, topic, 2, reason="null event time", first=3)
    return pipeline_file(tmp_path, topic)


def sent(millstream: Command, topic: str) -> list[dict[str, Any]]:
    return millstream.ok("tail", topic, "--from-beginning", "--until-end", "-f", "text", "-o",
                         "json").records  # fmt: skip


def waiting(millstream: Command, target: str) -> list[tuple[str, int, int, int]]:
    rows = millstream.ok("dead", "list", target, "-o", "json").json
    return [(r["reason"], r["waiting"], r["retried"], r["dropped"]) for r in rows]


@pytest.mark.usefixtures("spark")
def test_a_row_that_the_fixed_pipeline_can_read_is_counted_after_its_retry(
    millstream: Command, topic: str, tmp_path: Path
) -> None:
    place = ["--checkpoint", str(tmp_path / "job")]
    file = pipeline_file(tmp_path, topic)
    millstream.ok("topics", "create", topic)
    bad = '{"auction": 7, "price": "2.0", "ts": 1767225602000}\n'
    millstream.ok("produce", topic, stdin=lines([1]) + bad)
    millstream.ok("run", file, *place, "--until", "caught-up")

    [row] = millstream.ok("dead", "list", file, *place, "-o", "json").json
    assert (row["source"], row["waiting"], row["retried"]) == (topic, 1, 0)
    [shown] = millstream.ok("dead", "show", file, *place, "-o", "json").records
    assert (shown["topic"], shown["partition"], shown["offset"]) == (topic, 0, 1)
    assert shown["value"] == bad.strip()
    assert shown["headers"] == []

    text = (tmp_path / "hot.py").read_text()
    (tmp_path / "hot.py").write_text(
        text.replace("price double", "price string").replace(
            'bids.where("price > 0")',
            'bids.with_columns(price="cast(price as double)").where("price > 0")',
        )
    )
    assert "1 dead row" in millstream.ok("dead", "retry", file, *place).err
    assert "no dead rows sent" in millstream.ok("dead", "retry", file, *place).err
    millstream.ok("run", file, *place, "--until", "finished")

    found = millstream.ok("tail", f"{topic}.out", "--from-beginning", "--until-end", "-o", "json")
    assert windows(found.records) == [("2026-01-01T00:00:00.000000Z", 2)]
    assert waiting(millstream, file) == [(row["reason"], 0, 1, 0)]


def test_dead_rows_are_counted_by_reason_and_shown_unchanged(
    millstream: Command, topic: str, file: str
) -> None:
    assert waiting(millstream, file) == [("not JSON", 3, 0, 0), ("null event time", 2, 0, 0)]
    assert waiting(millstream, topic) == waiting(millstream, file)
    assert "not JSON" in millstream.ok("dead", "list", topic).out

    rows = millstream.ok("dead", "show", topic, "--reason", "NULL", "-o", "json").records
    assert [(r["offset"], r["value"], r["key"]) for r in rows] == [
        (3, "row 3", "k"),
        (4, "row 4", "k"),
    ]
    assert rows[0]["headers"] == [{"name": "mine", "value": "1"}]
    assert rows[0]["reason"] == "null event time"
    one = millstream.ok("dead", "show", topic, "--offset", "0@1", "-f", "hex")
    assert b"row 1".hex() in one.out
    assert one.err.startswith("1 dead row of")
    assert millstream.ok("dead", "show", topic, "--offset", "1@1").out == ""
    few = millstream.ok("dead", "show", topic, "--limit", "2")
    assert "3 more with --limit 5" in few.err


def test_a_row_is_sent_again_unchanged_and_only_once(
    millstream: Command, topic: str, file: str
) -> None:
    dry = millstream.ok("dead", "retry", file, "--dry-run").err
    assert f"5 dead rows (5 from {topic}) would be sent again" in dry
    assert sent(millstream, topic) == []

    assert "3 dead rows" in millstream.ok("dead", "retry", file, "--reason", "not json").err
    said = millstream.ok("dead", "retry", file).err
    assert "2 dead rows" in said
    assert "3 were handled before" in said
    assert "no dead rows sent again" in millstream.ok("dead", "retry", file).err

    records = sent(millstream, topic)
    assert [(r["value"], r["key"], r["partition"]) for r in records] == [
        (f"row {n}", "k", 0) for n in range(5)
    ]
    assert records[2]["timestamp"] == "2026-01-01T00:00:00.002000Z"
    assert records[2]["headers"] == [
        {"name": "mine", "value": "1"},
        {"name": "millstream.retry", "value": "1"},
        {"name": "millstream.origin", "value": f"{topic}/0@2"},
    ]
    assert waiting(millstream, file) == [("not JSON", 0, 3, 0), ("null event time", 0, 2, 0)]

    millstream.ok("dead", "retry", file, "--again", "--offset", "4")
    assert [r["value"] for r in sent(millstream, topic)[5:]] == ["row 4"]


def test_a_record_that_failed_in_two_steps_is_sent_once(
    millstream: Command, topic: str, file: str
) -> None:
    write_dead(millstream.environment["MILLSTREAM_KAFKA"], topic, topic, 2, reason="too deep")

    millstream.ok("dead", "retry", file)
    assert sorted(r["value"] for r in sent(millstream, topic)) == [f"row {n}" for n in range(5)]


def test_dropped_rows_are_no_longer_waiting_and_stay_in_the_topic(
    millstream: Command, topic: str, file: str
) -> None:
    assert "2 dead rows" in millstream.ok("dead", "drop", topic, "--reason", "null").err
    assert waiting(millstream, topic) == [("not JSON", 3, 0, 0), ("null event time", 0, 0, 2)]
    assert len(millstream.ok("dead", "show", topic, "--all", "-o", "json").records) == 5
    millstream.ok("dead", "retry", file)
    assert len(sent(millstream, topic)) == 3


def test_marks_of_a_recreated_topic_do_not_count(
    millstream: Command, topic: str, file: str
) -> None:
    millstream.ok("dead", "retry", file)
    millstream.ok("topics", "delete", topic, "--yes")
    until(lambda: millstream("topics", "describe", topic).code == 4, "deleted")
    assert waiting(millstream, file)[0] == ("not JSON", 0, 3, 0)
    millstream.ok("topics", "create", topic)
    assert waiting(millstream, file)[0] == ("not JSON", 3, 0, 0)


def test_rows_of_files_are_not_sent_anywhere(
    millstream: Command, topic: str, file: str, tmp_path: Path
) -> None:
    write_dead(millstream.environment["MILLSTREAM_KAFKA"], topic, "orders", 1)
    text = (tmp_path / "hot.py").read_text()
    (tmp_path / "hot.py").write_text(
        text.replace("hot = ", "orders = ms.read(ms.Files('orders', schema='id long'))\nhot = ")
        .replace("hot.to(", 'orders.to(ms.Topic("ids")), hot.to(')
    )  # fmt: skip
    said = millstream("dead", "retry", file)
    assert said.code == 2
    assert "some from orders, which is not a topic of the pipeline" in said.err
    assert sent(millstream, topic) == []
    assert "5 dead rows" in millstream.ok("dead", "retry", file, "--source", topic).err
    assert "1 dead row" in millstream.ok("dead", "drop", file, "--source", "orders").err


def test_a_target_that_cannot_be_resolved_is_refused(
    millstream: Command, topic: str, file: str
) -> None:
    name_alone = millstream("dead", "retry", topic)
    assert (name_alone.code, "needs the pipeline's file" in name_alone.err) == (2, True)
    assert millstream("dead", "list", "no-such.py").code == 4
    assert millstream("dead", "show", topic, "--offset", "x").code == 2
    assert "no dead rows" in millstream.ok("dead", "list", f"{topic}-other").err
    assert "no dead rows dropped" in millstream.ok("dead", "drop", f"{topic}-other").err
    with ms.Producer(millstream.environment["MILLSTREAM_KAFKA"]) as producer:
        producer.send(f"{topic}.dead", b"a stranger's")
    assert "1 record of" in millstream.ok("dead", "list", topic).err


@pytest.mark.parametrize("point", POINTS)
def test_a_retry_killed_at_any_step_and_repeated_loses_and_repeats_nothing(
    millstream: Command, topic: str, file: str, tmp_path: Path, point: str
) -> None:
    for held in _held(millstream, tmp_path, point, "dead", "retry", file):
        held.kill()

    millstream.ok("dead", "retry", file)
    assert sorted(r["value"] for r in sent(millstream, topic)) == [f"row {n}" for n in range(5)]


def test_a_second_retry_fences_the_first(
    millstream: Command, topic: str, file: str, tmp_path: Path
) -> None:
    for held in _held(millstream, tmp_path, POINTS[0], "dead", "retry", file):
        millstream.ok("dead", "retry", file)
        (tmp_path / "hold" / "held").unlink()
        assert held.wait(60) == 1
        assert held.stderr is not None
        assert b"one dead retry or drop at a time" in held.stderr.read()
    assert sorted(r["value"] for r in sent(millstream, topic)) == [f"row {n}" for n in range(5)]


def _held(
    millstream: Command, folder: Path, point: str, *words: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a separate process while it waits at a point."""
    hold = folder / "hold"
    hold.mkdir()
    (hold / f"{point}@*").touch()
    environment = {**os.environ, **millstream.environment, "MILLSTREAM_HOLD": str(hold)}
    with millstream.process(*words, env=environment) as process:
        try:
            until((hold / "held").exists, f"held {point}", 60)
            yield process
        finally:
            process.kill()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("store", ["Files", "Topic"])
def test_rows_in_a_named_store_are_sent_again_once(
    millstream: Command, topic: str, tmp_path: Path, store: str
) -> None:
    folder = tmp_path / "dead"
    named = f'ms.Files({str(folder)!r}, format="json")' if store == "Files" else (
        f'ms.Topic("{topic}.bad")')  # fmt: skip
    place = ["--checkpoint", str(tmp_path / "job")]
    file = tmp_path / "named.py"
    file.write_text(
        "import millstream as ms\n"
        f'rows = ms.read(ms.Topic("{topic}", schema="a long"))\n'
        f'pipeline = ms.Pipeline("{topic}", rows.to(ms.Topic("{topic}.out")), dead={named})\n'
    )
    millstream.ok("topics", "create", topic)
    millstream.ok("produce", topic, stdin='{"a": 1}\n{"a": "y"}\n{"a": "x"}\n')
    millstream.ok("run", str(file), *place, "--until", "caught-up")

    [first, second] = millstream.ok("dead", "show", str(file), *place, "-o", "json").records
    assert [(first["topic"], first["offset"]), second["offset"]] == [(topic, 1), 2]
    target = [str(file), *place]
    assert (
        f"(1 from {topic}) sent again"
        in millstream.ok("dead", "retry", *target, "--offset", "1").err
    )
    assert f"(1 from {topic}) sent again" in millstream.ok("dead", "retry", *target).err
    assert "no dead rows sent again" in millstream.ok("dead", "retry", *target).err
    values = [record["value"] for record in sent(millstream, topic)]
    assert values[3:] == ['{"a": "y"}', '{"a": "x"}']
    assert {r["retried"] for r in millstream.ok("dead", "list", *target, "-o", "json").json} == {2}
    assert folder.exists() == (store == "Files")

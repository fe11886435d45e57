"""At most once, at least once, exactly once: each holds after a kill at the worst moment."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import millstream as ms
from millstream.errors import DataGone, Fenced, InvalidInput
from millstream.kafka.clients.consuming.stored_offsets import SqlOffsets

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.shortly import Log

COUNT = 30

# A worker that writes each record to a file and kills itself after processing the tenth record.
PLAIN = """
import os, signal, sys
import millstream as ms
kafka, topic, delivery, notes = sys.argv[1:5]
with open(notes, "a") as file, ms.Consumer(
    topic, kafka=kafka, group="g", delivery=delivery, until_end=True,
    settings={"session.timeout.ms": 6000},
) as consumer:
    for number, record in enumerate(consumer):
        file.write(record.value.decode() + "\\n")
        file.flush()
        if "kill" in sys.argv and number == 9:
            os.kill(os.getpid(), signal.SIGKILL)
"""

# A worker whose result is a table; it kills itself in the transaction of the tenth record, or right
# after it.
STORED = """
import os, signal, sqlite3, sys
import millstream as ms
from millstream.kafka.clients.consuming.stored_offsets import SqlOffsets
kafka, topic, file, moment = sys.argv[1:5]
db = sqlite3.connect(file)
with ms.Consumer(topic, kafka=kafka, delivery="exactly_once", until_end=True,
                 offsets=SqlOffsets(db, "totals")) as consumer:
    for number, record in enumerate(consumer):
        with db:
            db.execute("insert into seen values (?)", (record.value.decode(),))
            consumer.commit()
            if moment == "before" and number == 9:
                os.kill(os.getpid(), signal.SIGKILL)
        if moment == "after" and number == 9:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def filled(log: Log, topic: str) -> str:
    log.topics.create(topic, partitions=2)
    with ms.Producer(log.address) as producer:
        for number in range(COUNT):
            producer.send(topic, f"{number:04}", partition=number % 2)
    return topic


def run(program: str, *words: str) -> int:
    return subprocess.run([sys.executable, "-c", program, *words], check=False).returncode


ALL = Counter(f"{number:04}" for number in range(COUNT))


def killed_and_run_again(log: Log, topic: str, delivery: str, notes: Path) -> Counter[str]:
    words = (log.address, topic, delivery, str(notes))
    assert run(PLAIN, *words, "kill") == -signal.SIGKILL
    assert len(notes.read_text().split()) == 10
    assert run(PLAIN, *words) == 0
    return Counter(notes.read_text().split())


def test_at_least_once_loses_nothing_and_repeats_uncommitted_records(
    log: Log, filled: str, tmp_path: Path
) -> None:
    seen = killed_and_run_again(log, filled, "at_least_once", tmp_path / "notes")

    assert set(seen) == set(ALL)
    assert seen != ALL


def test_at_most_once_repeats_nothing_and_loses_records_in_progress(
    log: Log, filled: str, tmp_path: Path
) -> None:
    seen = killed_and_run_again(log, filled, "at_most_once", tmp_path / "notes")

    assert max(seen.values()) == 1
    assert set(seen) < set(ALL)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_exactly_once_with_stored_offsets_survives_a_kill_around_the_commit(
    moment: str, log: Log, filled: str, tmp_path: Path
) -> None:
    file = tmp_path / "result.db"
    with sqlite3.connect(file) as db:
        db.execute("create table seen (value text)")

    assert run(STORED, log.address, filled, str(file), moment) == -signal.SIGKILL
    assert run(STORED, log.address, filled, str(file), "never") == 0

    assert Counter(value for (value,) in db.execute("select value from seen")) == ALL


def test_at_most_once_a_clean_close_uncommits_records_not_delivered(log: Log, filled: str) -> None:
    options: dict[str, Any] = {"group": "polite", "delivery": "at_most_once"}
    first = []
    with log.consumer(filled, until_end=True, **options) as consumer:
        for record in consumer:
            first.append(record.value)
            if len(first) == 7:
                break
    rest = log.values(filled, **options)

    assert Counter([*first, *rest]) == Counter(value.encode() for value in ALL)


def test_at_most_once_a_failed_record_is_not_redelivered(log: Log, filled: str) -> None:
    options: dict[str, Any] = {"group": "once", "delivery": "at_most_once"}
    failed: list[bytes | None] = []

    def fail() -> None:
        with log.consumer(filled, until_end=True, **options) as consumer:
            for record in consumer:
                failed.append(record.value)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    rest = log.values(filled, **options)

    assert len(rest) == COUNT - 1
    assert failed[0] not in rest


def test_at_most_once_batches_are_committed_before_delivery(log: Log, filled: str) -> None:
    with log.consumer(filled, group="b", delivery="at_most_once", until_end=True) as consumer:
        batch = next(iter(consumer.batches()))
        committed = consumer.committed()
        assert sum(at or 0 for at in committed.values()) == batch.num_rows


def test_offsets_in_postgres_are_committed_with_the_result_or_not_at_all(
    log: Log, filled: str, database: str
) -> None:
    with psycopg.connect(database) as db:
        db.execute("create table seen (value text)")
        db.commit()
        for stop in (11, None):
            offsets = SqlOffsets(db, "totals")
            with suppress(ZeroDivisionError):
                _into(db, log, filled, offsets, stop)
        found = db.execute("select value from seen").fetchall()

    assert Counter(value for (value,) in found) == ALL


def _into(db: Any, log: Log, topic: str, offsets: SqlOffsets, stop: int | None) -> None:
    """Insert every record; the transaction of record number `stop` fails."""
    with log.consumer(topic, delivery="exactly_once", offsets=offsets, until_end=True) as consumer:
        for number, record in enumerate(consumer):
            with db.transaction():
                db.execute("insert into seen values (%s)", [(record.value or b"").decode()])
                consumer.commit()
                if number == stop:
                    raise ZeroDivisionError


def written_by_a_zombie(log: Log, topic: str, file: Path) -> None:
    """A reader reads one record, a second one processes all, then the first one continues."""
    zombie_db, heir_db = sqlite3.connect(file), sqlite3.connect(file)
    zombie_db.execute("create table seen (value text)")
    options: dict[str, Any] = {"delivery": "exactly_once", "until_end": True}
    with log.consumer(topic, offsets=SqlOffsets(zombie_db, "r"), **options) as zombie:
        record = next(iter(zombie))
        with log.consumer(topic, offsets=SqlOffsets(heir_db, "r"), **options) as heir, heir_db:
            heir_db.executemany("insert into seen values (?)", [(r.value,) for r in heir])
            heir.commit()
        with zombie_db:
            zombie_db.execute("insert into seen values (?)", (record.value,))
            zombie.commit()


def seen_in(file: Path) -> int:
    [(count,)] = sqlite3.connect(file).execute("select count(*) from seen")
    return int(count)


def test_a_reader_that_was_replaced_is_fenced_and_writes_nothing(
    log: Log, filled: str, tmp_path: Path
) -> None:
    with pytest.raises(Fenced, match="another that has continued"):
        written_by_a_zombie(log, filled, tmp_path / "result.db")

    assert seen_in(tmp_path / "result.db") == COUNT


def test_without_the_check_of_stored_offsets_a_zombie_writes_duplicates(
    log: Log, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the check makes the test above pass."""
    monkeypatch.setattr(SqlOffsets, "_update", lambda *_: 1)

    written_by_a_zombie(log, filled, tmp_path / "result.db")

    assert seen_in(tmp_path / "result.db") == COUNT + 1


def test_in_a_group_each_member_continues_from_the_stored_offsets(log: Log, filled: str) -> None:
    db = sqlite3.connect(":memory:")
    seen = []
    for most in (8, COUNT):
        offsets = SqlOffsets(db, "shared")
        with log.consumer(
            filled, group="own", delivery="exactly_once", offsets=offsets, until_end=True
        ) as consumer:
            for record in consumer:
                with db:
                    seen.append((record.value or b"").decode())
                    consumer.commit()
                if len(seen) == most:
                    break

    assert Counter(seen) == ALL


def test_a_stored_offset_that_the_log_no_longer_holds_raises(log: Log, filled: str) -> None:
    db = sqlite3.connect(":memory:")
    offsets = SqlOffsets(db, "r")
    offsets.positions([])
    offsets.advance({(filled, 0): (None, 1), (filled, 1): (None, 1)})
    db.commit()
    log.topics.truncate(filled, {0: 5, 1: 5})

    with pytest.raises(DataGone, match="needs to hold offset 1"):
        log.consumer(filled, delivery="exactly_once", offsets=offsets)


OFFSETS = SqlOffsets(sqlite3.connect(":memory:"), "r")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delivery": "twice"}, 'delivery needs "at_most_once"'),
        ({"delivery": "at_most_once"}, 'delivery="at_most_once" needs a group'),
        ({"delivery": "at_least_once"}, 'delivery="at_least_once" needs a group'),
        ({"delivery": "exactly_once"}, "needs offsets=, and offsets= needs it"),
        ({"offsets": OFFSETS, "group": "g"}, "needs offsets=, and offsets= needs it"),
        ({"delivery": "at_most_once", "group": "g", "commit": "auto"}, "omit commit"),
        ({"delivery": "exactly_once", "offsets": OFFSETS, "commit": "manual"}, "omit commit"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        ms.Consumer("t", kafka="127.0.0.1:1", **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((object(), "r"), "a connection of sqlite3 or psycopg; got one of builtins"),
        ((sqlite3.connect(":memory:"), ""), "the name of a reader"),
        ((sqlite3.connect(":memory:"), "r", "a; drop table b"), "a table name of letters"),
    ],
)
def test_invalid_arguments_of_sql_offsets_are_refused(
    arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        SqlOffsets(*arguments)

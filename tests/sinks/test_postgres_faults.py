"""PostgreSQL is down, full or silent: the batch is written once, or the job stops."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.sinks.batches import opened, staged
from tests.sinks.cutting import Cut, Wire

import millstream as ms
from millstream.errors import Fenced, Unavailable
from millstream.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Callable

_END = (
    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'millstream'"
)


def asked(url: str, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(question.encode())
        return cursor.fetchall() if cursor.description else []


def numbers(url: str) -> list[int]:
    return sorted(row[0] for row in asked(url, "select n from hot"))


def once(point: str, act: Callable[[], object]) -> Callable[[str], None]:
    """A callback that acts the first time a point is reached."""
    left = [act]

    def on_step(reached: str) -> None:
        if reached == point and left:
            left.pop()()

    return on_step


def test_a_connection_terminated_between_batches_is_opened_again(database: str) -> None:
    sink = ms.Postgres("hot", url=database)
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    asked(database, f"{_END} and datname = current_database()")
    writer.write("two", 2, [staged(sink, n=[2])])
    writer.close()
    assert numbers(database) == [1, 2]


def test_a_connection_terminated_just_before_its_commit_loses_nothing(database: str) -> None:
    sink = ms.Postgres("hot", url=database)
    end = once("before a sink's commit",
               lambda: asked(database, f"{_END} and datname = current_database()"))  # fmt: skip
    writer = opened(sink, on_step=end)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()
    assert numbers(database) == [1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_with_a_lost_response_is_resolved_from_the_ledger(
    database: str, when: Cut
) -> None:
    port = int(database.rpartition(":")[2].partition("/")[0])
    with Wire(port) as wire:
        sink = ms.Postgres("hot", url=database.replace(str(port), str(wire.port)))
        writer = opened(sink, on_step=once("before a sink's commit",
                                        lambda: wire.cut(when, b"COMMIT")))  # fmt: skip
        writer.write("one", 1, [staged(sink, n=[1])])
        writer.write("two", 2, [staged(sink, n=[2])])
        writer.close()
        assert wire.cuts == 1
    assert numbers(database) == [1, 2]
    assert asked(database, "select intent, rows from millstream_ledger") == [("two", 2)]


def test_without_the_ledger_a_lost_response_repeats_the_batch(database: str) -> None:
    port = int(database.rpartition(":")[2].partition("/")[0])
    with Wire(port) as wire:
        sink = ms.Postgres("hot", url=database.replace(str(port), str(wire.port)))
        writer = opened(sink, delivery="at_least_once",
                        on_step=once("before a sink's commit",
                                  lambda: wire.cut("after", b"COMMIT")))  # fmt: skip
        writer.write("one", 1, [staged(sink, n=[1])])
        writer.close()
    assert numbers(database) == [1, 1]


def test_a_run_whose_job_has_a_new_owner_does_not_read_the_ledger(database: str) -> None:
    def owned() -> None:
        raise Fenced("no longer")

    sink = ms.Postgres("hot", url=database)
    writer = opened(sink, check_owned=owned)
    asked(database, f"{_END} and datname = current_database()")
    with pytest.raises(Fenced, match="no longer"):
        writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()


def test_the_writer_waits_while_the_disk_is_full(database: str) -> None:
    """The trigger raises the error of a full disk twice."""
    asked(database, "create sequence tries")
    asked(database, "create table hot (n bigint)")
    asked(
        database,
        "create function full_disk() returns trigger language plpgsql as $$ begin "
        "if nextval('tries') < 3 then raise exception 'could not extend file: No "
        "space left on device' using errcode = '53100'; end if; return new; end $$",
    )
    asked(database, "create trigger t before insert on hot for each row "
                    "execute function full_disk()")  # fmt: skip
    heard: list[str] = []
    sink = ms.Postgres("hot", url=database)
    writer = opened(sink, on_wait=heard.append)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()
    assert numbers(database) == [1]
    assert len(heard) == 2
    assert "waiting for the database" in heard[0]
    assert "No space left on device" in heard[0]


def test_a_batch_waits_for_a_killed_server_and_is_written_once() -> None:
    heard: list[str] = []
    waiting = threading.Event()

    def hear(why: str) -> None:
        heard.append(why)
        waiting.set()

    with postgres() as server:
        sink = ms.Postgres("hot", url=server.url)
        writer = opened(sink, on_wait=hear, on_step=once("before a sink's commit", server.kill),
                        patience=120.0)  # fmt: skip
        failed: list[BaseException] = []

        def write() -> None:
            try:
                writer.write("one", 1, [staged(sink, n=[1])])
            except BaseException as error:
                failed.append(error)

        writing = threading.Thread(target=write)
        writing.start()
        assert waiting.wait(60)
        server.start()
        writing.join(120)
        assert not writing.is_alive()
        assert not failed
        writer.write("two", 2, [staged(sink, n=[2])])
        writer.close()
        assert numbers(server.url) == [1, 2]
    assert heard[0].startswith("waiting for the database postgresql://millstream:***@")


def test_the_writer_waits_for_a_server_without_free_connections() -> None:
    settings = {"max_connections": 4, "superuser_reserved_connections": 0, "max_wal_senders": 0}
    with postgres(settings=settings) as server, ExitStack() as held:
        sink = ms.Postgres("hot", url=server.url)
        for _ in range(4):
            held.enter_context(psycopg.connect(server.url))
        heard: list[str] = []

        def hear(why: str) -> None:
            heard.append(why)
            held.close()

        writer = opened(sink, on_wait=hear)
        writer.write("one", 1, [staged(sink, n=[1])])
        writer.close()
        assert numbers(server.url) == [1]
    assert "too many clients" in heard[0]


def test_the_writer_waits_for_a_role_without_free_connections(database: str) -> None:
    asked(database, "create role limited login password 'pass' connection limit 0")
    asked(database, "grant all on schema public to limited")
    heard: list[str] = []

    def hear(why: str) -> None:
        heard.append(why)
        asked(database, "alter role limited connection limit -1")

    head, _, tail = database.partition("@")
    sink = ms.Postgres("hot", url=f"{head.partition('//')[0]}//limited:pass@{tail}")
    writer = opened(sink, on_wait=hear)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()
    assert numbers(database) == [1]
    assert "too many connections for role" in heard[0]


def test_a_server_that_stays_down_stops_the_job() -> None:
    with postgres() as server:
        sink = ms.Postgres("hot", url=server.url)
        writer = opened(sink, patience=0.5)
        server.stop()
        with pytest.raises(Unavailable, match="to take batch 1; got no success in 0 s") as raised:
            writer.write("one", 1, [staged(sink, n=[1])])
        writer.close()
        assert "continues from here after a restart" in str(raised.value)
        server.start()

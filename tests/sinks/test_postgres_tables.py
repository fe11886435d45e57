"""The tables of `Postgres`: how they are created, rows that do not fit, and secrets."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.batches import opened, staged

import millstream as ms
from millstream.errors import DataGone, InvalidSpec, MillstreamError, Unavailable
from millstream.testing.sink_suite import WIDE


def asked(url: str, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(question.encode())
        return cursor.fetchall() if cursor.description else []


def test_a_missing_table_is_created_with_the_right_column_types(database: str) -> None:
    sink = ms.Postgres("wide", url=database)
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, table=WIDE.empty_table()), staged(sink, table=_one())])
    writer.close()

    found = dict(
        asked(database, "select attname, format_type(atttypid, atttypmod) from pg_attribute "
                        "where attrelid = 'wide'::regclass and attnum > 0")
    )  # fmt: skip
    assert found == {
        "flag": "boolean", "small": "smallint", "whole": "bigint", "real": "double precision",
        "text": "text", "raw": "bytea", "day": "date", "at": "timestamp with time zone",
        "price": "numeric(38,9)", "tags": "jsonb", "deep": "jsonb",
        'a "quoted" näme; drop': "bigint",
    }  # fmt: skip


def _one() -> pa.Table:
    return pa.Table.from_pylist([dict.fromkeys(WIDE.names)], WIDE)


def test_a_table_in_another_schema_is_created_there(database: str) -> None:
    asked(database, "create schema shop")
    sink = ms.Postgres("shop.hot", key="n", url=database)
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1, 2, 1])])
    writer.close()
    assert asked(database, "select n from shop.hot order by n") == [(1,), (2,)]


def test_an_existing_table_keeps_columns_that_rows_do_not_have(database: str) -> None:
    asked(database, "create table hot (n int primary key, v text, note text default 'mine')")
    sink = ms.Postgres("hot", key="n", url=database)
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1], v=["a"])])
    asked(database, "update hot set note = 'changed'")
    writer.write("two", 2, [staged(sink, n=[1], v=["b"])])
    writer.close()
    assert asked(database, "select * from hot") == [(1, "b", "changed")]


@pytest.mark.parametrize(
    ("made", "rows", "kind", "sentence"),
    [
        ("create table hot (m bigint)", {"n": [1]}, InvalidSpec,
         "needs the column 'n'; got columns m; ALTER TABLE public.hot ADD COLUMN \"n\" bigint"),
        ("create table hot (n smallint)", {"n": [70000]}, InvalidSpec,
         "needs rows whose values fit"),
        ("create table hot (n date)", {"n": ["soon"]}, InvalidSpec, "COPY hot, line 1, column n"),
        ("create table hot (n text)", {"n": ["a\0b"]}, InvalidSpec, "0x00"),
        ("create table hot (n int check (n < 5))", {"n": [7]}, MillstreamError, "check constraint"),
        ("create view hot as select 1 as n union select 2", {"n": [1]}, MillstreamError,
         "fix the table"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_stop_the_job_and_nothing_is_written(
    database: str, made: str, rows: dict[str, Any], kind: type[Exception], sentence: str
) -> None:
    asked(database, made)
    sink = ms.Postgres("hot", url=database)
    writer = opened(sink)
    with pytest.raises(kind) as raised:
        writer.write("one", 1, [staged(sink, **rows)])
    assert sentence in str(raised.value)
    writer.close()
    assert asked(database, "select intent from millstream_ledger") == [(None,)]


def test_a_key_without_a_unique_index_stops_the_job(database: str) -> None:
    asked(database, "create table hot (n int)")
    sink = ms.Postgres("hot", key="n", url=database)
    writer = opened(sink)
    with pytest.raises(MillstreamError, match="no unique or exclusion constraint"):
        writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()


def test_a_table_that_was_dropped_stops_the_job(database: str) -> None:
    sink = ms.Postgres("hot", url=database)
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()
    asked(database, "drop table hot")
    writer = opened(sink, epoch=2, recovered=False)
    assert writer.recover("one") == "one"
    with pytest.raises(DataGone, match="needs the rows of earlier batches; got no such"):
        writer.write("two", 2, [staged(sink, n=[2])])
    writer.close()


def test_a_revoked_permission_is_named(database: str) -> None:
    sink = ms.Postgres("hot", url=_as_stranger(database))
    asked(database, "create table hot (n int)")
    writer = opened(sink)
    with pytest.raises(Unavailable, match="permission denied for table hot"):
        writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()


def _as_stranger(database: str) -> str:
    """An address for a role that may only connect and create tables."""
    asked(database, "do $$ begin create role stranger login password 'pass'; "
                    "exception when duplicate_object then null; end $$")  # fmt: skip
    asked(database, "grant create on schema public to stranger")
    head, _, tail = database.partition("@")
    return f"{head.partition('//')[0]}//stranger:pass@{tail}"


def test_all_tables_of_a_database_commit_together(database: str) -> None:
    asked(database, "create table second (n int check (n < 5))")
    first, second = ms.Postgres("first", url=database), ms.Postgres("second", url=database)
    assert first.system == second.system
    writer = opened(first, second)
    writer.write("one", 1, [staged(first, n=[1]), staged(second, n=[1])])
    with pytest.raises(MillstreamError):
        writer.write("two", 2, [staged(first, n=[2]), staged(second, n=[7])])
    writer.close()
    assert asked(database, "select n from first") == [(1,)]
    assert asked(database, "select intent, batch from millstream_ledger") == [("one", 1)] * 2


def test_a_retraction_needs_a_key_or_the_column_retract(database: str) -> None:
    sink = ms.Postgres("hot", url=database)
    writer = opened(sink)
    table = pa.table({"n": [1], "_sign": pa.array([-1], pa.int8())})
    with pytest.raises(InvalidSpec, match="needs a sink with key="):
        writer.write("one", 1, [staged(sink, table=table)])
    marked = table.append_column("retract", pa.array([True]))
    writer.write("one", 1, [staged(sink, table=marked)])
    writer.close()
    assert asked(database, "select n, retract from hot") == [(1, True)]


def test_a_key_that_is_not_a_column_is_refused_while_building() -> None:
    rows = ms.read(ms.Topic("bids", schema="auction long, price double"))
    with pytest.raises(InvalidSpec, match="auktion"):
        rows.to(ms.Postgres("hot", key="auktion"))


@pytest.mark.parametrize("table", ["", "a.b.c", ".a", "a.", 7])
def test_an_invalid_table_name_is_refused(table: Any) -> None:
    with pytest.raises(InvalidSpec, match="needs a table name"):
        ms.Postgres(table)


@pytest.mark.parametrize("key", [[], "", ["a", "a"], 7, ["a", 7]])
def test_an_invalid_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidSpec, match="needs distinct column names"):
        ms.Postgres("hot", key=key)


def test_session_settings_in_the_address_take_precedence(database: str) -> None:
    asked(database, "create schema shop")
    url = f"{database}?options=-csearch_path%3Dshop&connect_timeout=7&application_name=mine"
    sink = ms.Postgres("hot", url=url)
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    assert asked(database, "select 1 from pg_stat_activity where application_name = 'mine'")
    writer.close()
    assert asked(database, "select n from shop.hot") == [(1,)]
    assert asked(database, "select target from shop.millstream_ledger") == [("shop.hot",)]


@pytest.mark.parametrize(("old", "new"), [("/t", "/no_such_"), ("//millstream", "//nobody_here")])
def test_a_missing_database_or_role_stops_the_job_at_once(
    database: str, old: str, new: str
) -> None:
    with pytest.raises(Unavailable, match="needs access to the database"):
        opened(ms.Postgres("hot", url=database.replace(old, new)))


def test_an_invalid_address_stops_the_job_at_once() -> None:
    with pytest.raises(Unavailable, match="needs access to the database"):
        opened(ms.Postgres("hot", url="postgres at home"))


# -- secrets -------------------------------------------------------------------------


def test_the_address_is_resolved_when_the_database_is_opened(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database)
    sink = ms.Postgres("hot")
    assert (sink.shown, sink.system) == ("${env:DATABASE_URL}", "postgres ${env:DATABASE_URL}")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()
    assert asked(database, "select n from hot") == [(1,)]

    monkeypatch.delenv("DATABASE_URL")
    with pytest.raises(InvalidSpec, match="needs the environment variable DATABASE_URL"):
        opened(sink)


def test_no_output_contains_the_password(database: str) -> None:
    secret = database.partition("@")[0].rpartition(":")[2]
    sink = ms.Postgres("hot", url=database)
    stream = ms.read(ms.Topic("bids", schema="auction long"))
    pipeline = ms.Pipeline("p", stream.to(sink))
    for text in (repr(sink), sink.system, pipeline.plan(), repr(pipeline)):
        assert secret not in text
    wrong = ms.Postgres("hot", url=database.replace(secret, "hunter2"))
    with pytest.raises(Unavailable, match="password authentication failed") as raised:
        opened(wrong)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@db/shop", "postgresql://me:***@db/shop"),
        ("postgresql://me:se:cr/et@db/shop", "postgresql://me:***@db/shop"),
        ("postgresql://me:${env:P}@db/shop", "postgresql://me:${env:P}@db/shop"),
        ("postgresql://${env:U}:secret@db/shop", "postgresql://${env:U}:***@db/shop"),
        ("postgresql://me@db:5432/shop", "postgresql://me@db:5432/shop"),
        ("postgresql://db/shop?user=me&password=secret", "postgresql://db/shop?user=me&password=***"),
        ("host=db password=secret user=me", "host=db password=*** user=me"),
        ("host=db password='se cret' user=me", "host=db password=*** user=me"),
        ("${file:shop.url}", "${file:shop.url}"),
    ],
)  # fmt: skip
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert ms.Postgres("t", url=url).shown == shown

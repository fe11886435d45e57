"""Tables while they are built: every mistake in one sentence, at the user's line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "id long, city string, n long, at timestamp"


def users(**options: Any) -> ms.Table:
    return ms.table(ms.Topic("users", schema=SCHEMA), **{"key": "id", **options})


def clicks() -> ms.Stream:
    return ms.read(ms.Topic("clicks", schema=SCHEMA), time="at")


def wrong(value: object) -> Any:
    return value


def added(state: dict[str, Any], _row: dict[str, Any]) -> dict[str, Any]:
    return state


MISTAKES: list[tuple[str, Callable[[], object], str, str]] = [
    ("no source", lambda: ms.table(wrong("users"), key="id"), "'users'", "ms.Topic"),
    ("no key", lambda: users(key=[]), "[]", '"id"'),
    ("an unknown key", lambda: users(key="idd"), "'idd'", "did you mean 'id'"),
    ("a key twice", lambda: users(key=["id", "id"]), "id, id", "once"),
    ("other changes", lambda: users(changes="insert"), "'insert'", "debezium"),
    ("a number as time", lambda: users(time="n"), "long", "n timestamp"),
    ("a time for debezium", lambda: users(changes="debezium", time="at"), "'at'", "ts_ms"),
    (
        "debezium in avro",
        lambda: ms.table(ms.Topic("t", '{"type":"record","name":"r","fields":['
                                  '{"name":"id","type":"long"}]}', "avro"), "id", "debezium"),
        "avro", "ms.Topic",
    ),
    ("an unknown column", lambda: users().where("m > 1"), "'m'", "name one"),
    ("the clock in where", lambda: users().where("at < now()"), "now()", "changes()"),
    ("the key left out", lambda: users().select("city"), "id", '"id"'),
    ("another key", lambda: users().with_columns(id="n"), "id", '"id'),
    ("nothing selected", lambda: users().select(), "none", "select("),
    ("no columns", lambda: users().with_columns(), "none", "with_columns("),
    ("groups of nothing", lambda: users().by(), "()", '"id"'),
    ("an unknown group", lambda: users().by("town"), "'town'", "name one"),
    ("no aggregates", lambda: users().by("city").agg(), "none", "ms.count()"),
    (
        "an aggregate that cannot forget",
        lambda: users().by("city").agg(n=ms.approx_distinct("n")),
        "table", "approx_distinct",
    ),
    (
        "an aggregate of an order",
        lambda: users().by("city").agg(n=ms.last("n")),
        "last over a table", "max",
    ),
    (
        "changes of a column change",
        lambda: users().with_columns(change="n").changes(),
        "change", "rename",
    ),
    ("a sink that appends", lambda: users().to(ms.Postgres("t", url="x")), "change", "key=['id']"),
    ("a file", lambda: users().to(ms.Files("out", format="json")), "rows change", "changes()"),
    (
        "another key in the sink",
        lambda: users().to(ms.Postgres("t", key="city", url="x")),
        "city", "key=['id']",
    ),
    ("another record key", lambda: users().to(ms.Topic("t", key="city")), "city", "key=['id']"),
    ("no sink", lambda: users().to(wrong(5)), "5", "ms.Topic"),
    ("latest by nothing", lambda: clicks().latest(by=[]), "[]", '"id"'),
    (
        "latest of corrections",
        lambda: clicks().by("id").window(ms.tumbling("1 second")).late(keep="1 second")
        .agg(n=ms.count()).latest(by="id"),
        "corrections", "keep=",
    ),
    ("a fold from nothing", lambda: clicks().fold(by="id", start={}, step=added), "{}", "start="),
    (
        "a fold of an unknown type",
        lambda: clicks().fold(by="id", start={"seen": []}, step=added),
        "seen=[]", "gives=",
    ),
    (
        "a fold over its key",
        lambda: clicks().fold(by="id", start={"id": 1}, step=added),
        "id", "start=",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "got", "do"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES]
)
def test_mistakes_are_reported_while_building(
    build: Callable[[], object], got: str, do: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        build()

    sentence = str(refused.value)
    assert "needs" in sentence
    assert got in sentence
    assert do in sentence


def test_a_key_may_have_several_columns_and_new_names() -> None:
    table = users(key=["city", "id"]).select("id as user", "city", "n + 1 as more")

    assert table.key == ("city", "user")
    assert table.columns == ("user", "city", "more")
    assert table.where("more > 1").with_columns(twice="more * 2").key == ("city", "user")


def test_aggregates_without_a_window_and_latest_rows_are_tables() -> None:
    counts = clicks().by("city", "id").agg(n=ms.count())
    latest = clicks().latest(by="id")

    assert (counts.key, counts.columns) == (("city", "id"), ("city", "id", "n"))
    assert (latest.key, latest.columns) == (("id",), ("id", "city", "n", "at"))
    assert counts.changes().columns == ("city", "id", "n", "change", "changed_at")


def test_a_table_used_twice_is_one_step() -> None:
    table = users()
    plan = ms.Pipeline("p", table.to(ms.Topic("a")), table.by("city").agg(n=ms.count())
                       .to(ms.Topic("b"))).plan()  # fmt: skip

    assert plan.count("current(id)#") == 0


def test_a_record_key_that_contains_the_tables_key_and_more_is_accepted() -> None:
    assert users().to(ms.Topic("t", key=["id", "city"])).keys == ("id", "city")
    assert users().to(ms.Topic("t")).keys == ("id",)

"""SQL as text: what is read from it, and what the batch clock puts into it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import InvalidSpec
from millstream.sql.columns import alias, at_clock, check, columns_read, copied_column
from millstream.sql.functions import AGGREGATES, GENERATORS, UNREPEATABLE, WINDOWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = 1_767_268_800_000_000  # 2026-01-01 12:00:00 UTC
CLOCK = f"timestamp_micros({NOON}L)"


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("price * 0.9 as euros", {"price"}),
        ("who.id + who.age > x", {"who", "x"}),
        ("`odd name`.part", {"odd name"}),
        ("tags[0] || other.parts[1].z", {"tags", "other"}),
        ("exists(tags, t -> t.id = price and exists(t.parts, p -> p = t.n))", {"tags", "price"}),
        ("case when a is null then 'b' else \"c\" end", {"a"}),
        ("cast(ts as date) between date '2026-01-01' and current_date", {"ts"}),
        ("name like any ('a', 'b') and x in (1, 2)", {"name", "x"}),
        ("extract(hour from ts)", {"ts"}),
        ("5", set()),
    ],
)
def test_the_columns_an_expression_reads_are_found(sql: str, names: set[str]) -> None:
    assert columns_read(sql) == names
    check(sql, tuple(names), step="where")


def test_column_names_ignore_case_as_in_spark() -> None:
    check("PRICE > Bidder", ("price", "bidder"), step="where")


def test_a_bare_column_and_a_field_name_themselves() -> None:
    assert alias("who.id", step="select") == ("id", "who.id")
    assert alias("`odd name`", step="select") == ("odd name", "`odd name`")
    assert copied_column("who.id as id") is None
    assert copied_column("price as p") == "price"
    assert copied_column("(price) as p") is None


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ts > now()", f"ts > {CLOCK}"),
        ("ts > NOW( ) -- now()", f"ts > {CLOCK} -- now()"),
        ("current_timestamp > ts", f"{CLOCK} > ts"),
        ("Current_Timestamp() > ts", f"{CLOCK} > ts"),
        ("d = current_date", f"d = cast({CLOCK} as date)"),
        ("curdate() - d", f"cast({CLOCK} as date) - d"),
        ("localtimestamp()", f"cast({CLOCK} as timestamp_ntz)"),
        ("unix_timestamp() - unix_timestamp(ts)", f"unix_seconds({CLOCK}) - unix_timestamp(ts)"),
        ("cast(x as int) + if(ts < now(), 1, 0)", f"cast(x as int) + if(ts < {CLOCK}, 1, 0)"),
        ("'now()' || `now` || who.current_date || now", None),
        ("price > 0", None),
    ],
)
def test_clock_functions_are_replaced_by_the_batch_clock_and_nothing_else_changes(
    sql: str, expected: str | None
) -> None:
    assert at_clock(sql, NOON) == (sql if expected is None else expected)


def test_a_column_called_current_date_is_the_column() -> None:
    assert at_clock("current_date > now()", NOON, ["current_date"]) == f"current_date > {CLOCK}"


def test_a_cast_stays_a_cast_beside_the_clock() -> None:
    """sqlglot writes Spark's cast as try_cast: an overflow would become a null."""
    assert "cast(x as int)" in at_clock("now() > ts or cast(x as int) > 1", NOON)


@pytest.mark.spark
def test_spark_uses_the_batch_clock(spark: SparkSession) -> None:
    text = "named_struct('t', now(), 'd', current_date, 'u', unix_timestamp()) as x"
    row = spark.range(1).selectExpr(at_clock(text, NOON)).toArrow().to_pylist()[0]["x"]

    assert row == {
        "t": datetime(2026, 1, 1, 12, tzinfo=UTC), "d": date(2026, 1, 1), "u": NOON // 1_000_000,
    }  # fmt: skip


@pytest.mark.spark
def test_the_lists_of_functions_are_those_spark_has(spark: SparkSession) -> None:
    there = {row[0].lower() for row in spark.sql("show functions").collect()}

    listed = AGGREGATES | GENERATORS | UNREPEATABLE | WINDOWS
    assert listed <= there
    assert not AGGREGATES & GENERATORS
    registry = spark._jsparkSession.sessionState().functionRegistry()
    jvm: Any = spark._jvm
    builtin, system = jvm.scala.Option.apply("builtin"), jvm.scala.Option.apply("system")
    groups = {}
    for name in there:
        identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name, builtin, system)
        found = registry.lookupFunction(identifier)
        if found.isDefined():
            groups[name] = found.get().getGroup()
    missing = {
        name for name, group in groups.items()
        if group in ("agg_funcs", "generator_funcs", "window_funcs")
        and name not in listed and "_agg" not in name
    }  # fmt: skip
    assert missing == set()


@pytest.mark.parametrize("word", sorted(AGGREGATES | GENERATORS | UNREPEATABLE | WINDOWS))
def test_what_is_not_row_wise_or_not_repeatable_is_refused(word: str) -> None:
    with pytest.raises(InvalidSpec):
        check(f"{word}(x)", ("x",), step="where")

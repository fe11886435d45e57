"""Streams and pipelines as values: the result of each step, without Spark and Kafka."""

from __future__ import annotations

import subprocess
import sys

import pytest

import millstream as ms
from millstream.plan.graph import Deduplicated, EventTime, Select
from millstream.plan.names import step_names

SCHEMA = "auction long, bidder long, price double, tags array<string>, ts timestamp"


def bids(time: str | None = "ts") -> ms.Stream:
    return ms.read(ms.Topic("bids", schema=SCHEMA), time=time)


def counted() -> ms.Stream:
    return bids().by("auction", "bidder").window(ms.tumbling("10 seconds")).agg(n=ms.count())


def test_building_imports_neither_spark_nor_kafka_nor_arrow() -> None:
    program = (
        "import sys, millstream as ms;"
        "s = ms.read(ms.Topic('t', schema='a long, ts timestamp'), time='ts').where('a > 1');"
        "p = ms.Pipeline('p', s.by('a').window(ms.tumbling('1 s')).agg(n=ms.count())"
        ".to(ms.Topic('o')));"
        "print(*sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    loaded = {name.partition(".")[0] for name in said.stdout.decode().split()}
    assert not loaded & {"pyspark", "pyarrow", "numpy", "pandas", "polars", "confluent_kafka"}
    assert "sqlglot" in loaded


@pytest.mark.parametrize(
    ("stream", "columns"),
    [
        (bids().where("price > 0"), ("auction", "bidder", "price", "tags", "ts")),
        (bids().select("price", "bidder as who"), ("price", "who")),
        (bids().select("*", "price * 2 as double_price"),
         ("auction", "bidder", "price", "tags", "ts", "double_price")),
        (bids().with_columns(euros="price"), ("auction", "bidder", "price", "tags", "ts", "euros")),
        (bids().with_columns(Price="1"), ("auction", "bidder", "Price", "tags", "ts")),
        (bids().drop("tags", "price"), ("auction", "bidder", "ts")),
        (bids().explode("tags"), ("auction", "bidder", "price", "tags", "ts")),
        (bids().union(bids()), ("auction", "bidder", "price", "tags", "ts")),
        (bids().transform(lambda df: df), None),
        (bids().transform(lambda df: df).select("*"), None),
        (bids().transform(lambda df: df).select("price", "tags"), ("price", "tags")),
        (bids().union(bids().transform(lambda df: df)), None),
        (counted(), ("auction", "bidder", "window_start", "window_end", "n")),
        (counted().distinct(by="n"), ("auction", "bidder", "window_start", "window_end", "n")),
    ],
)  # fmt: skip
def test_each_step_has_the_expected_columns(
    stream: ms.Stream, columns: tuple[str, ...] | None
) -> None:
    assert stream.columns == columns


@pytest.mark.parametrize(
    ("stream", "time"),
    [
        (bids(), EventTime("ts")),
        (bids(None), None),
        (bids().select("ts as at", "price"), EventTime("at")),
        (bids().select("TS", "price"), EventTime("TS")),
        (bids().select("ts as at", "ts"), EventTime("ts")),
        (bids().select("*"), EventTime("ts")),
        (bids().select("price"), None),
        (bids().select("ts + interval 1 second as ts"), None),
        (bids().drop("ts"), None),
        (bids().drop("price"), EventTime("ts")),
        (bids().transform(lambda df: df).select("*"), EventTime("ts")),
        (bids().union(bids()), EventTime("ts")),
        (bids().union(bids(None)), None),
        (counted(), EventTime("window_end", -1)),
        (counted().select("window_end as until", "n"), EventTime("until", -1)),
        (counted().drop("window_end"), None),
        (bids().distinct(by="price"), EventTime("ts")),
    ],
)
def test_the_event_time_follows_its_column(stream: ms.Stream, time: EventTime | None) -> None:
    assert stream.node.time == time


@pytest.mark.parametrize(
    ("stream", "keys"),
    [
        (bids(), ()),
        (counted(), ("auction", "bidder")),
        (counted().where("n > 1").drop("n"), ("auction", "bidder")),
        (counted().select("bidder as b", "auction", "n"), ("auction", "b")),
        (counted().select("auction", "n"), ()),
        (counted().drop("bidder"), ()),
        (counted().with_columns(bidder="bidder + 1"), ()),
        (counted().with_columns(more="bidder + 1"), ("auction", "bidder")),
        (counted().transform(lambda df: df), ()),
        (counted().union(counted()), ("auction", "bidder")),
        (bids().distinct(by="tags").explode("tags"), ()),
        (bids().distinct(by=["price"]).select("*"), ("price",)),
    ],
)
def test_the_record_key_is_the_operators_key_while_all_its_columns_remain(
    stream: ms.Stream, keys: tuple[str, ...]
) -> None:
    assert stream.to(ms.Topic("out")).keys == keys
    assert stream.to(ms.Memory("out")).keys == ()


def test_a_given_key_takes_precedence() -> None:
    assert counted().to(ms.Topic("out", key=["n"])).keys == ("n",)


def test_an_output_has_the_name_of_its_sink_or_the_given_one() -> None:
    assert bids().to(ms.Topic("out")).name == "out"
    assert bids().to(ms.Topic("out"), name="mine").name == "mine"
    assert bids().to(ms.Memory()).name == "memory"


def test_split_returns_a_stream_per_condition_and_the_rest() -> None:
    parts = bids().split(cheap="price < 10 -- euros", dear="price > 100")

    assert list(parts) == ["cheap", "dear", "rest"]
    assert all(part.columns == bids().columns for part in parts.values())


def test_the_parameters_of_a_lambda_in_sql_are_not_columns() -> None:
    made = bids().with_columns(n="aggregate(filter(tags, t -> t > 'a'), 0, (acc, t) -> acc + 1)")

    assert made.columns is not None
    assert made.columns[-1] == "n"


def test_hidden_columns_may_be_named_directly_after_read() -> None:
    made = bids().select("_key as k", "_headers as h", "_timestamp as t", "_topic as s",
                         "_partition as p", "_offset as o")  # fmt: skip

    assert made.columns == ("k", "h", "t", "s", "p", "o")


def test_a_step_records_the_line_of_the_call() -> None:
    made = bids().select("price")
    line = sys._getframe().f_lineno - 1

    assert made.node.at == f"{__file__}:{line}"
    assert isinstance(made.node, Select)
    assert "test_building" not in repr(made.node)


def test_steps_are_named_by_kind_keys_and_position_or_have_the_given_name() -> None:
    one = bids()
    first, second = one.distinct(by="price"), one.distinct(by="price")
    third = one.distinct(by="price", name="distinct(price)#2")
    fourth = one.by("auction").window(ms.tumbling("1 s")).agg(name="sales", n=ms.count())
    outputs = [s.to(ms.Topic(f"o{i}")) for i, s in enumerate((first, second, third, fourth))]

    names = step_names(outputs)

    assert [names[s.node] for s in (first, second, third, fourth)] == [  # type: ignore[index]
        "distinct(price)", "distinct(price)#3", "distinct(price)#2", "sales",
    ]  # fmt: skip


def test_a_source_and_a_step_may_have_the_same_name_and_a_topic_may_be_read_twice() -> None:
    one, two = bids(), bids()
    step = one.union(two).distinct(by="price", name="bids")

    names = step_names([step.to(ms.Topic("out"))])

    assert [names[s.node] for s in (one, two, step)] == ["bids", "bids#2", "bids"]  # type: ignore[index]


def test_an_aggregate_column_may_be_named_name() -> None:
    made = bids().by("auction").window(ms.tumbling("1 s")).agg(name=ms.count())

    assert made.columns == ("auction", "window_start", "window_end", "name")


def test_distinct_within_zero_seconds_compares_rows_of_the_same_instant() -> None:
    node = bids().distinct(by="price", within="0 seconds").node

    assert isinstance(node, Deduplicated)
    assert node.spec.within == 0


def test_expressions_print_as_they_were_written() -> None:
    node = bids().where("price > 0").node

    assert "price > 0" in repr(node)
    assert "price > 0" in ms.Pipeline("p", bids().where("price > 0").to(ms.Topic("o"))).plan()

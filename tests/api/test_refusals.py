"""Every mistake that can be found while building raises there: need; got; do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "auction long, bidder long, price double, tags array<string>, who map<string, long>, " \
         "name string, ts timestamp"  # fmt: skip
anything: Any = None


def bids(**options: Any) -> ms.Stream:
    return ms.read(ms.Topic("bids", schema=SCHEMA), **{"time": "ts", **options})


def windowed() -> Any:
    return bids().by("auction").window(ms.tumbling("10 seconds"))


def counted() -> ms.Stream:
    return windowed().agg(n=ms.count())  # type: ignore[no-any-return]


def wrong(value: object) -> Any:
    """A value of a type that the signature forbids, as an untyped caller may pass it."""
    return value


READS: list[tuple[str, Callable[[], object], str, str]] = [
    ("no source", lambda: ms.read(wrong("bids")), "'bids'", "ms.Topic"),
    ("a topic without a schema", lambda: ms.read(ms.Topic("bids")), "none", "schema="),
    ("an unknown time column", lambda: bids(time="tss"), "'tss'", "did you mean 'ts'?"),
    ("a time column that is not a string", lambda: bids(time=5), "5", "as text"),
    ("a number as event time", lambda: bids(time="price"), "double", "price timestamp"),
    ("an array as event time", lambda: bids(time="tags"), "array<string>", "tags timestamp"),
    ("an invalid duration", lambda: bids(watermark="soon"), "'soon'", "seconds"),
    ("a number as duration", lambda: bids(watermark=5), "5", "seconds"),
    ("a negative delay", lambda: bids(watermark="-1 second"), "'-1 second'", "zero or more"),
    ("idle after zero seconds", lambda: bids(idle="0 seconds"), "'0 seconds'", "above zero"),
    ("negative ahead", lambda: bids(ahead=timedelta(days=-1)), "timedelta", "above zero"),
    (
        "a reserved column",
        lambda: ms.read(ms.Topic("t", schema="pane string")),
        "`pane`", "choose a name",
    ),
    (
        "an underscore",
        lambda: ms.read(ms.Topic("t", schema="_id long")),
        "`_id`", "does not begin with `_`",
    ),
    ("a topic's name", lambda: ms.Topic("a b"), "'a b'", "letters"),
    ("another format", lambda: ms.Topic("t", format=wrong("xml")), "'xml'", "json"),
    ("an empty schema", lambda: ms.Topic("t", schema=""), "''", "long"),
]  # fmt: skip

STATELESS: list[tuple[str, Callable[[], object], str, str]] = [
    ("a misspelt column", lambda: bids().where("prise > 1"), "'prise'", "did you mean 'price'?"),
    ("invalid SQL", lambda: bids().where("price >"), "'price >'", "as in Spark"),
    ("empty SQL", lambda: bids().where(""), "''", "one SQL expression"),
    ("a function as SQL", lambda: bids().where(wrong(len)), "<built-in", "as \""),
    ("a list as SQL", lambda: bids().where(wrong(["price > 0"])), "['price > 0']", "as \""),
    ("two expressions", lambda: bids().where("price > 0, auction"), "'price > 0, auction'", "one"),
    ("two statements", lambda: bids().where("price > 0; price"), "price > 0; price", "one"),
    ("a clause", lambda: bids().where("price > 0 limit 5"), "limit 5", "one"),
    ("a parameter", lambda: bids().where("price > :least"), ":least", "one"),
    ("a named condition", lambda: bids().where("price > 0 as p"), "as p", "leave out"),
    ("an aggregate", lambda: bids().where("price > max(price)"), "max(price)", ".agg("),
    ("an aggregate of booleans", lambda: bids().where("some(price > 1)"), "some", ".agg("),
    ("an analytic function", lambda: bids().select("lag(price) as p"), "lag", ".agg("),
    ("a window of Spark's", lambda: bids().select("window(ts, '1 minute') as w"), "w", ".agg("),
    ("a subquery", lambda: bids().where("price in (select 1)"), "select 1", ".agg("),
    ("a generator", lambda: bids().select("explode(tags) as tag"), "explode", ".explode("),
    ("rand", lambda: bids().where("rand() < 0.5"), "rand()", "now()"),
    ("a quoted rand", lambda: bids().where("`rand`() < 0.5"), "rand()", "now()"),
    ("uuid", lambda: bids().with_columns(id="uuid()"), "uuid()", "now()"),
    ("random encryption", lambda: bids().with_columns(x="aes_encrypt(name, name)"), "aes", "now()"),
    ("today", lambda: bids().where("ts > date 'today'"), "date 'today'", "now()"),
    ("no selection", lambda: bids().select(), "none", "select("),
    ("no name", lambda: bids().select("price * 2"), "'price * 2'", "as some_name"),
    ("a name twice", lambda: bids().select("price", "auction as PRICE"), "twice", "another_name"),
    ("a reserved name", lambda: bids().select("ts as window_end"), "`window_end`", "choose"),
    ("an underscore", lambda: bids().select("price as _p"), "`_p`", "choose"),
    ("a hidden column unrenamed", lambda: bids().select("_key"), "'_key'", '"_key as key"'),
    (
        "a hidden column later on",
        lambda: bids().where("price > 0").where("_offset > 1"),
        "'_offset'", "name one",
    ),
    ("a hidden column in capitals", lambda: bids().where("_KEY is null"), "'_KEY'", "'_key'"),
    ("no column", lambda: bids().with_columns(), "none", "with_columns("),
    ("a new event time", lambda: bids().with_columns(ts="now()"), "event time", "another name"),
    ("the event time as TS", lambda: bids().with_columns(TS="now()"), "event time", "another name"),
    ("with an unknown column", lambda: bids().with_columns(x="y + 1"), "'y'", "name one"),
    ("dropping nothing", lambda: bids().drop(), "none", "drop("),
    ("dropping an unknown column", lambda: bids().drop("pric"), "'pric'", "'price'"),
    ("dropping all", lambda: bids().select("price").drop("price"), "all of them", "keep one"),
    ("exploding a number", lambda: bids().explode("price"), "double", "array"),
    ("exploding a map", lambda: bids().where("price > 0").explode("who"), "map<", "map_entries"),
    ("transform without function", lambda: bids().transform(wrong("x")), "'x'", "withColumn"),
    ("union with a topic", lambda: bids().union(wrong(ms.Topic("b"))), "Topic", "other_stream"),
    ("union of other columns", lambda: bids().union(bids().drop("price")), "price", "same columns"),
    ("union of other times", lambda: bids().union(two_times()), "'ts' and 'ts2'", "same name"),
    ("split without condition", lambda: bids().split(), "none", "split("),
    ("split into rest", lambda: bids().split(rest="price > 1"), "rest=…", "'rest'"),
    ("split by a named condition", lambda: bids().split(a="price > 1 as x"), "as x", "leave out"),
]  # fmt: skip


def two_times() -> ms.Stream:
    """The columns of `bids`, with the event time in another one."""
    schema = SCHEMA + ", ts2 timestamp"
    left = ms.read(ms.Topic("left", schema=schema), time="ts")
    right = ms.read(ms.Topic("right", schema=schema), time="ts2")
    return left.union(right)


STATEFUL: list[tuple[str, Callable[[], object], str, str]] = [
    ("no key", lambda: bids().by(), "none", 'by("auction")'),
    ("an unknown key", lambda: bids().by("auktion"), "'auktion'", "'auction'"),
    ("a list as key", lambda: bids().by(wrong(["auction"])), "['auction']", "one by one"),
    ("a key twice", lambda: bids().by("auction", "auction"), "auction", "once"),
    ("no window", lambda: bids().by("auction").window(wrong("10 s")), "'10 s'", "tumbling("),
    ("an empty window", lambda: ms.tumbling("0 seconds"), "'0 seconds'", "above zero"),
    ("no event time", lambda: untimed().by("name").window(ms.tumbling("1 s")), "without", "time="),
    (
        "an event time dropped",
        lambda: bids().drop("ts").by("auction").window(ms.tumbling("1 s")),
        "without", "keep that column",
    ),
    (
        "an event time not selected",
        lambda: counted().select("auction", "n").by("n").window(ms.tumbling("1 s")),
        "without", "keep that column",
    ),
    ("no aggregate", lambda: windowed().agg(), "none", "agg(n="),
    ("an aggregate not called", lambda: windowed().agg(n=ms.count), "<function", 'ms.sum("'),
    ("an unknown column", lambda: windowed().agg(n=ms.sum("prize")), "'prize'", "'price'"),
    ("a sum of strings", lambda: windowed().agg(n=ms.sum("name")), "name string", "cast"),
    (
        "a mean of strings under another name",
        lambda: bids().select("auction", "name as label", "ts").where("auction > 1")
        .by("auction").window(ms.tumbling("1 s")).agg(n=ms.mean("label")),
        "label string", "cast",
    ),
    ("a reserved aggregate", lambda: windowed().agg(pane=ms.count()), "`pane`", "choose"),
    ("a key as an aggregate", lambda: windowed().agg(auction=ms.count()), "auction", "rename"),
    (
        "a bound as key",
        lambda: counted().by("window_start").window(ms.tumbling("1 s")).agg(n=ms.count()),
        "`window_start`", "choose",
    ),
    ("late into a string", lambda: windowed().late(rest=wrong("late")), "'late'", "ms.Topic"),
    ("distinct by nothing", lambda: bids().distinct(by=[]), "none", "distinct("),
    ("distinct by a number", lambda: bids().distinct(by=wrong(5)), "5", "distinct("),
    ("distinct by an unknown column", lambda: bids().distinct(by="bider"), "'bider'", "'bidder'"),
    ("distinct by a key twice", lambda: bids().distinct(by=["name", "name"]), "name", "once"),
    ("distinct, untimed", lambda: untimed().distinct(by="name", within="1 s"), "without", "time="),
    ("distinct, negative time", lambda: bids().distinct(by="name", within="-1 s"), "-1", "within"),
    ("distinct, a string", lambda: bids().distinct(by="name", rest=wrong("x")), "'x'", "ms.Topic"),
    ("an empty name", lambda: bids().distinct(by="name", name=" "), "' '", "name="),
    ("a long name", lambda: windowed().agg("n" * 101, n=ms.count()), "nnn", "name="),
]  # fmt: skip


def untimed() -> ms.Stream:
    return ms.read(ms.Topic("bids", schema=SCHEMA))


def sink(name: str = "out") -> ms.Topic:
    return ms.Topic(name)


PIPELINES: list[tuple[str, Callable[[], object], str, str]] = [
    ("no sink", lambda: bids().to(wrong("out")), "'out'", "ms.Topic"),
    ("discard as a sink", lambda: bids().to(wrong(ms.discard)), "ms.discard", "ms.Topic"),
    ("an unknown key of a sink", lambda: bids().to(ms.Topic("out", key="k")), "'k'", "name one"),
    ("an output without a name", lambda: bids().to(sink(), name=""), "''", "leave it out"),
    ("no output", lambda: ms.Pipeline("p"), "()", ".to("),
    ("a stream as an output", lambda: ms.Pipeline("p", wrong(bids())), "Stream", ".to("),
    ("a name with a slash", lambda: ms.Pipeline("a/b", bids().to(sink())), "'a/b'", "Pipeline("),
    ("no name", lambda: ms.Pipeline(wrong(None), bids().to(sink())), "None", "Pipeline("),
    (
        "two outputs of one name",
        lambda: ms.Pipeline("p", bids().to(sink()), counted().to(sink())),
        "'out' twice", "name=",
    ),
    (
        "two steps of one name",
        lambda: ms.Pipeline(
            "p",
            bids().distinct(by="name", name="once").to(sink("a")),
            bids().distinct(by="auction", name="once").to(sink("b")),
        ),
        "'once' twice", "name=",
    ),
    ("three buckets", lambda: ms.Pipeline("p", bids().to(sink()), buckets=3), "3", "256"),
    ("text buckets", lambda: ms.Pipeline("p", bids().to(sink()), buckets=wrong("8")),
     "'8'", "256"),
    ("no batch length", lambda: ms.Pipeline("p", bids().to(sink()), batch="0 s"), "'0 s'", "above"),
    ("no history", lambda: ms.Pipeline("p", bids().to(sink()), history="-1 s"), "'-1 s'", "zero"),
]  # fmt: skip

ALL = [*READS, *STATELESS, *STATEFUL, *PIPELINES]


@pytest.mark.parametrize(
    ("build", "got", "do"), [case[1:] for case in ALL], ids=[case[0] for case in ALL]
)
def test_a_mistake_raises_while_building(build: Callable[[], object], got: str, do: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        build()

    sentence = str(refused.value)
    assert "needs" in refused.value.need
    assert got in sentence
    assert do in sentence
    assert "\n" not in sentence.replace("\\n", "")


def test_the_traceback_ends_at_the_users_line() -> None:
    good = bids()

    with pytest.raises(InvalidSpec) as refused:
        good.where("prise > 1")

    line = refused.traceback[0]
    assert str(line.path).endswith("test_refusals.py")
    assert "prise" in str(line.statement)

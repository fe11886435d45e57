"""The same 64 bits in Spark and in numpy, for every type a key may have."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.state.keys.hashing import hash_keys, spark_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

ROWS = 400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def texts(rng: random.Random) -> str:
    planes = (0x20, 0x7F, 0x7FF, 0xD7FF, 0xFFFD, 0x1FFFF, 0x2FFFF, 0x10FFFF)
    length = rng.choice([0, 1, 3, 4, 7, 8, 15, 31, 32, 33, 64, 100, 257])
    drawn = (rng.randrange(rng.choice(planes) + 1) for _ in range(length))
    return "".join(chr(point) for point in drawn if not 0xD800 <= point <= 0xDFFF)


def decimals(digits: int, scale: int) -> Callable[[random.Random], Decimal]:
    def draw(rng: random.Random) -> Decimal:
        largest = 10 ** rng.randint(0, digits) - 1
        unscaled = rng.choice([largest, -largest, rng.randint(-largest, largest)])
        return Decimal(f"{unscaled}E-{scale}")

    return draw


def integers(bits: int) -> Callable[[random.Random], int]:
    edge = 2 ** (bits - 1)
    return lambda rng: rng.choice([0, -1, edge - 1, -edge, rng.randrange(-edge, edge)])


def floats(rng: random.Random) -> float:
    special = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7e308]
    return rng.choice([*special, rng.uniform(-1e6, 1e6)])


def single(rng: random.Random) -> float:
    return float(np.float32(rng.choice([0.0, -0.0, float("nan"), rng.uniform(-1e6, 1e6)])))


def moments(rng: random.Random) -> datetime:
    return EPOCH + timedelta(microseconds=rng.randint(-(10**16), 10**16))


KINDS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "tiny": (pa.int8(), integers(8)),
    "short": (pa.int16(), integers(16)),
    "whole": (pa.int32(), integers(32)),
    "long": (pa.int64(), integers(64)),
    "single": (pa.float32(), single),
    "double": (pa.float64(), floats),
    "flag": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "text": (pa.string(), texts),
    "raw": (pa.binary(), lambda rng: rng.randbytes(rng.choice([0, 1, 5, 8, 12, 32, 40, 95]))),
    "small decimal": (pa.decimal128(18, 4), decimals(18, 4)),
    "large decimal": (pa.decimal128(19, 0), decimals(19, 0)),
    "largest decimal": (pa.decimal128(38, 10), decimals(38, 10)),
    "day": (pa.date32(), lambda rng: date(1, 1, 1) + timedelta(days=rng.randrange(3_000_000))),
    "moment": (pa.timestamp("us", "UTC"), moments),
    "local `moment`": (pa.timestamp("us"), lambda rng: moments(rng).replace(tzinfo=None)),
    "span": (pa.duration("us"), lambda rng: timedelta(microseconds=rng.randint(-(10**15), 10**15))),
    "list": (pa.list_(pa.int64()), lambda rng: nested(rng, integers(64))),
    "texts": (pa.list_(pa.list_(pa.string())), lambda rng: nested(rng, lambda r: nested(r, texts))),
    "struct": (
        pa.struct([("a", pa.int32()), ("b c", pa.string()), ("d", pa.list_(pa.float64()))]),
        lambda rng: {
            "a": maybe(rng, integers(32)),
            "b c": maybe(rng, texts),
            "d": maybe(rng, lambda r: nested(r, floats)),
        },
    ),
    "structs": (
        pa.list_(pa.struct([("x", pa.struct([("y", pa.date32())]))])),
        lambda rng: nested(rng, lambda r: {"x": maybe(r, lambda q: {"y": maybe(q, any_day)})}),
    ),
}


def any_day(rng: random.Random) -> date:
    return date(2000, 1, 1) + timedelta(days=rng.randrange(10_000))


def maybe(rng: random.Random, draw: Callable[[random.Random], Any]) -> Any:
    return None if rng.random() < 0.2 else draw(rng)


def nested(rng: random.Random, draw: Callable[[random.Random], Any]) -> list[Any]:
    return [maybe(rng, draw) for _ in range(rng.choice([0, 1, 2, 5]))]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = random.Random(20260101)
    return pa.table(
        {
            name: pa.array([maybe(rng, draw) for _ in range(ROWS)], kind)
            for name, (kind, draw) in KINDS.items()
        }
    )


def with_local_time(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows in Spark, which reads an Arrow timestamp without a zone as one with a zone."""
    from pyspark.sql import functions as sf

    column = sf.col("`local ``moment```").cast("timestamp_ntz")
    return spark.createDataFrame(rows).withColumn("local `moment`", column)


def test_spark_and_numpy_agree_on_every_type_alone_and_together(
    spark: SparkSession, rows: pa.Table
) -> None:
    keys = [[name] for name in KINDS]
    keys += [list(KINDS), ["long", "text"], ["text", "long", "flag"]]
    frame = with_local_time(spark, rows)
    columns = [
        f"{spark_hash([(name, KINDS[name][0]) for name in key])} as h{place}"
        for place, key in enumerate(keys)
    ]
    got = frame.selectExpr(*columns).toArrow()
    for place, key in enumerate(keys):
        expected = hash_keys([rows[name] for name in key], ROWS)
        here = got.column(place).to_numpy().view(np.uint64)
        assert (here == expected).all(), f"{key}: row {int(np.flatnonzero(here != expected)[0])}"


def test_without_generated_code_spark_gives_the_same_bits(
    spark: SparkSession, rows: pa.Table
) -> None:
    modes = ("NO_CODEGEN", "CODEGEN_ONLY")
    seen = []
    for mode in modes:
        spark.conf.set("spark.sql.codegen.factoryMode", mode)
        spark.conf.set("spark.sql.codegen.wholeStage", str(mode != "NO_CODEGEN").lower())
        expression = spark_hash([(name, kind) for name, (kind, _) in KINDS.items()])
        frame = with_local_time(spark, rows).selectExpr(f"{expression} as h")
        seen.append(frame.toArrow().column(0).to_numpy().view(np.uint64))
    spark.conf.unset("spark.sql.codegen.factoryMode")
    spark.conf.unset("spark.sql.codegen.wholeStage")
    expected = hash_keys([rows[name] for name in KINDS], ROWS)
    assert all((here == expected).all() for here in seen)

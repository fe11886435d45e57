"""`explode` without Spark: the same rows, order and origins as with Spark."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.engine.spark.arrow_steps import compiled
from millstream.engine.spark.frames import build, packed, unpacked
from millstream.plan.stages import cut
from millstream.sources.decode import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from millstream.plan.stages import Side

SCHEMA = (
    "id long, name string, tags array<string>, deep array<array<int>>, "
    "who array<struct<a: int, b: array<double>>>"
)
PLACES = pa.schema([("_source", pa.int32()), ("_partition", pa.int32()), ("_offset", pa.int64()),
                    ("_sub", pa.int64())])  # fmt: skip
LEAF = pa.schema([
    ("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string())),
    ("deep", pa.list_(pa.list_(pa.int32()))),
    ("who", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))]))), *PLACES,
])  # fmt: skip
OPENED: dict[str, Callable[[ms.Stream], ms.Stream]] = {
    "all": lambda s: s.explode("tags"),
    "filters": lambda s: s.where("id > 0").explode("tags").where("tags <> 'b' and id < 90"),
    "again": lambda s: s.explode("deep").where("id % 2 = 0").explode("deep").where("deep > 1"),
    "two": lambda s: s.explode("tags").explode("deep").select("id", "tags", "deep"),
    "parts": lambda s: s.explode("who").select("who.a", "who.b as b", "id").explode("b"),
    "gone": lambda s: s.explode("tags").select("id").where("id > 10"),
    "new": lambda s: s.select("id / 2 as half", "tags as t").explode("t").with_columns(one="1"),
    "none": lambda s: s.where("false").explode("tags"),
}  # fmt: skip


def rows(rng: random.Random, count: int) -> pa.Table:
    """Rows of any length, in chunks, with nulls at every depth."""

    def some(make: Callable[[], Any], most: int = 4) -> Any:
        return None if rng.random() < 0.2 else [make() for _ in range(rng.randrange(most))]

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    found = [
        {"id": maybe(n), "name": maybe(f"n{n}"), "tags": some(lambda: maybe(rng.choice("abc"))),
         "deep": some(lambda: some(lambda: maybe(rng.randrange(4)))),
         "who": some(lambda: maybe({"a": maybe(rng.randrange(9)), "b": some(rng.random)})),
         "_source": 0, "_partition": n % 2, "_offset": n // 2,
         "_sub": rng.choice([0, 1, -1, 2**63 - 1, -(2**63), rng.randrange(2**62)])}
        for n in range(count)
    ]  # fmt: skip
    whole = pa.Table.from_pylist(found, schema=LEAF)
    cuts = sorted(rng.randrange(count + 1) for _ in range(3))
    parts = [whole.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
    return pa.concat_tables(parts)


def side_of(name: str) -> Side:
    stream = OPENED[name](ms.read(ms.Topic("t", schema=SCHEMA)))
    (stage,) = cut(ms.Pipeline("p", stream.to(ms.Memory("out"))).outputs).stages
    (side,) = stage.sides
    return side


@pytest.mark.spark
@pytest.mark.parametrize("name", OPENED)
def test_exploded_rows_are_those_of_spark(name: str, spark: SparkSession) -> None:
    rng = random.Random(name)
    side = side_of(name)
    for count in (0, 1, 60):
        given = rows(rng, count)
        whole = pa.Table.from_pylist(given.to_pylist(), schema=LEAF)
        frame = packed(spark.createDataFrame(whole).coalesce(1))
        want = unpacked(build(side.tree, {side.leaves[0]: frame}, 0)).toArrow()
        gives = pa.schema([pa.field(field.name, field.type) for field in want.schema])
        steps = compiled(side, LEAF, gives)
        assert steps is not None
        made = pickle.loads(pickle.dumps(steps))(given)
        assert made.schema == gives
        assert made.to_pylist() == want.to_pylist()
    assert name == "none" or made.num_rows


def test_unused_columns_are_not_copied_for_each_element() -> None:
    steps = compiled(side_of("gone"), LEAF)
    assert steps is not None
    assert steps.exploded is not None
    assert steps.exploded.steps.columns.names == ["id", "tags", *ORIGIN]


def test_spark_refuses_a_column_that_is_no_array() -> None:
    stream = ms.read(ms.Topic("t", schema="id long, x string")).with_columns(x="id").explode("x")
    (stage,) = cut(ms.Pipeline("p", stream.to(ms.Memory("out"))).outputs).stages
    leaf = pa.schema([("id", pa.int64()), ("x", pa.string()), *PLACES])
    assert compiled(stage.sides[0], leaf) is None

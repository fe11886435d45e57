"""From the records of topics to the records of a topic, as one Spark frame, without Python.

Rows carry their origin as in batches, so the stateless steps are the same (`frames.build`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.engine.continuous.json import EXTRA, GOOD, JsonColumns
from millstream.engine.continuous.rules import MODE, reads_of
from millstream.engine.continuous.values import text
from millstream.engine.spark.frames import build
from millstream.errors import InvalidSpec
from millstream.formats.json.decode import check
from millstream.formats.times import GREATEST, LEAST
from millstream.schema import Array, Decimal, Map, Scalar, Schema, Struct
from millstream.sql.columns import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from millstream.plan.graph import Node, Output, Read
    from millstream.schema import Type

RAW = {
    "value": "_value", "key": "_key", "headers": "_headers", "timestamp": "_timestamp",
    "topic": "_topic", "partition": "_partition", "offset": "_offset",
}  # fmt: skip
VALID = "_valid"
STOPPED = "millstream: a bad row at"
_HIDDEN = ("_key", "_headers", "_timestamp", "_topic")
_TO_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "timeZone": "UTC",
}
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True)
class SourceFrame:
    """Decodes and checks the records of one source.

    With `stop`, a bad record raises; otherwise it is skipped.
    """

    name: str
    read: Read
    number: int
    stop: bool = False
    columns: JsonColumns = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", JsonColumns(self.read.source.row_schema()))

    def checked(self, records: DataFrame) -> DataFrame:
        """Kafka's records with the source's columns; `_valid` is false for bad rows."""
        present = [name for name in RAW if name in records.columns]
        frame = records.selectExpr(*(f"`{name}` as {RAW[name]}" for name in present))
        frame = self.columns.decoded(frame)
        return frame.selectExpr("*", f"({' and '.join([GOOD, *self._timely()])}) as {VALID}")

    def _timely(self) -> list[str]:
        if self.read.time is None:
            return []
        column = quoted(self.read.time.column)
        rules = [f"{column} is not null"]
        if self.read.ahead is not None:
            beyond = f"unix_micros({column}) - unix_micros(_timestamp)"
            rules.append(f"coalesce({beyond} <= {self.read.ahead}, true)")
        return rules

    def rows(self, records: DataFrame) -> DataFrame:
        """The valid rows, in the form that `frames.build` needs, with counts observed."""
        from pyspark.sql.functions import expr

        frame = self.checked(records).observe(
            self.name,
            expr("count(1) as rows"),
            expr(f"count_if(not {VALID}) as bad"),
            expr(f"count_if({VALID} and {EXTRA}) as extra"),
            expr("coalesce(sum(octet_length(_value)), 0) as bytes"),
        )
        names = [quoted(name) for name in self.read.source.row_schema().names]
        origin = f"struct({self.number} as source, _partition as partition, _offset as offset, " \
                 "0L as sub) as _origin"  # fmt: skip
        hidden = [name for name in _HIDDEN if name in frame.columns]
        return frame.filter(self._condition()).selectExpr(*names, *hidden, origin)

    def _condition(self) -> str:
        if not self.stop:
            return VALID
        place = "concat_ws('/', _topic, _partition, _offset)"
        words = f"concat('{STOPPED} ', {place})"
        return f"if({VALID}, true, raise_error({words}))"


def output_frame(output: Output, sources: Mapping[Node, DataFrame]) -> DataFrame:
    """An output's records: `key` and `value`.

    Raises:
        InvalidSpec: a column has no JSON form, or a step needs Python for each row.
    """
    leaves: dict[Node, DataFrame] = {read: sources[read] for read in reads_of(output)}
    rows = build(output.input, leaves, 0).drop("_origin")
    _refuse_python(rows)
    schema = _schema(rows)
    made = [f"{as_json(rows.columns, schema)} as value"]
    if output.keys:
        made.append(f"{as_json(output.keys, schema)} as key")
    return rows.selectExpr(*made)


def _schema(rows: DataFrame) -> Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = Schema.from_arrow(to_arrow_schema(rows.schema, timezone="UTC"))
    check(schema)
    return schema


def _refuse_python(rows: DataFrame) -> None:
    """Refuse steps that need Python for each row."""
    jvm: Any = rows.sparkSession._jvm
    udf = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    plan = rows._jdf.queryExecution().analyzed()
    names, waiting = [], [plan]
    while waiting:
        node = waiting.pop()
        names.append(str(node.nodeName()))
        waiting += [node.children().apply(place) for place in range(node.children().size())]
    maps = [name for name in names if name.endswith(("InPandas", "InArrow"))]
    if maps or plan.containsPattern(udf):
        raise InvalidSpec(f'mode="{MODE}" needs steps that Spark runs without Python',
                          got="a Python function in a transform",
                          do="write it with Spark's own functions, or leave mode= out")  # fmt: skip


def as_json(names: Sequence[str], schema: Schema) -> str:
    """The JSON text of these columns, as `formats/json/encode.py` defines it."""
    parts = ", ".join(
        f"{_shaped(quoted(name), schema[name].type)} as {quoted(name)}" for name in names
    )
    options = ", ".join(f"{text(name)}, {text(value)}" for name, value in _TO_JSON.items())
    return f"to_json(struct({parts}), map({options}))"


def _shaped(value: str, type_: Type) -> str:
    """A value in the form that `to_json` writes correctly: decimals as text, times in range."""
    if isinstance(type_, Decimal):
        return f"cast({value} as string)"
    if isinstance(type_, Scalar):
        return _in_range(value, type_.name) if type_.name in _TIMES else value
    if not _needs_shaping(type_):
        return value
    if isinstance(type_, Array):
        return f"transform({value}, _x -> {_shaped('_x', type_.element)})"
    if isinstance(type_, Map):
        return f"transform_values({value}, (_k, _x) -> {_shaped('_x', type_.value)})"
    parts = ", ".join(f"{_shaped(f'{value}.{quoted(part.name)}', part.type)} as {quoted(part.name)}"
                      for part in type_.fields)  # fmt: skip
    return f"if({value} is null, null, struct({parts}))"


def _needs_shaping(type_: Type) -> bool:
    if isinstance(type_, Scalar):
        return type_.name in _TIMES
    if isinstance(type_, Struct):
        return any(_needs_shaping(part.type) for part in type_.fields)
    if isinstance(type_, Array):
        return _needs_shaping(type_.element)
    return isinstance(type_, Decimal) or _needs_shaping(type_.value)


def _in_range(value: str, name: str) -> str:
    bounds = f"timestamp_micros({LEAST}) and timestamp_micros({GREATEST})"
    words = text("JSON needs times in the years 1 to 9999")
    moment = value if name == "timestamp" else f"cast({value} as timestamp)"
    return f"if({moment} between {bounds} or {value} is null, {value}, raise_error({words}))"

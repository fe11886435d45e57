"""Conditions over columns, compiled from SQL text to Arrow.

Kernels and sinks do not use Spark, so `when(sql)` and `Alert(when=sql)` accept a subset of SQL
with Spark's meaning: columns, literals, arithmetic, comparisons, `and or not`, `is null`, `in`,
`between`, `abs`, `coalesce`. Nulls are unknown; NaN equals NaN and is the largest number.
Anything else is refused when the pipeline is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    import pyarrow as pa

Value = Callable[["pa.Table"], Any]

_UNARY = {"Neg": "negate", "Abs": "abs", "Not": "invert"}
_BINARY = {"Add": "add", "Sub": "subtract", "Mul": "multiply", "And": "and_kleene",
           "Or": "or_kleene"}  # fmt: skip
_COMPARISONS = {"EQ": "equal", "NEQ": "not_equal", "GT": "greater", "GTE": "greater_equal",
                "LT": "less", "LTE": "less_equal"}  # fmt: skip


AGGREGATES = "the window's aggregates"


def check_condition(sql: str, columns: tuple[str, ...], *, of: str = AGGREGATES) -> None:
    """Refuse a condition that `condition` could not compile; `of` describes the columns."""
    _Compiler(sql, columns, of).compile(_parsed(sql))


def condition(sql: str, columns: tuple[str, ...]) -> Value:
    """A function from a table to one boolean per row, null where unknown.

    Raises:
        InvalidSpec: the text is no condition, reads an unknown column, or is beyond the subset.
    """
    return _Compiler(sql, columns, AGGREGATES).compile(_parsed(sql))


def _parsed(sql: str) -> Any:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        return sqlglot.parse_one(sql, read="spark")
    except SqlglotError as error:
        raise InvalidSpec("when needs a condition in SQL", got=repr(sql),
                          do="correct it") from error  # fmt: skip


class _Compiler:
    def __init__(self, sql: str, columns: tuple[str, ...], of: str) -> None:
        self._sql, self._columns, self._of = sql, columns, of

    def compile(self, node: Any) -> Value:
        """A function for one node of the syntax tree."""
        kind = type(node).__name__
        if kind in _UNARY:
            return self._called(_UNARY[kind], node.this)
        if kind in _BINARY:
            return self._called(_BINARY[kind], node.this, node.expression)
        if kind in _COMPARISONS:
            return self._comparison(_COMPARISONS[kind], node)
        made = getattr(self, f"_{kind.lower()}", None)
        if made is None:
            raise InvalidSpec(
                "when needs a condition of names, numbers, arithmetic and comparisons",
                got=f"{node.sql(dialect='spark')} in {self._sql!r}",
                do="compute it as another aggregate, or put a where after the window"
                if self._of == AGGREGATES
                else "compute it as a column with .with_columns(…)",
            )
        value: Value = made(node)
        return value

    def _called(self, name: str, *nodes: Any) -> Value:
        """An Arrow function of these nodes' values."""
        values = [self.compile(node) for node in nodes]
        return lambda rows: _compute(name, *(value(rows) for value in values))

    def _comparison(self, name: str, node: Any) -> Value:
        left, right = self.compile(node.this), self.compile(node.expression)
        return lambda rows: _compared(name, left(rows), right(rows))

    def _paren(self, node: Any) -> Value:
        return self.compile(node.this)

    def _column(self, node: Any) -> Value:
        name = next((c for c in self._columns if c.lower() == node.name.lower()), None)
        if name is None or node.table:
            raise InvalidSpec(f"when needs names of {self._of}",
                              got=node.sql(dialect="spark"),
                              do=f"choose from {', '.join(self._columns)}")  # fmt: skip
        return lambda rows: rows[name]

    def _literal(self, node: Any) -> Value:
        import pyarrow as pa

        text = node.this
        whole = text.lstrip("-").isdigit()
        scalar = pa.scalar(text if node.is_string else int(text) if whole else float(text))
        return lambda _rows: scalar

    def _boolean(self, node: Any) -> Value:
        import pyarrow as pa

        scalar = pa.scalar(bool(node.this))
        return lambda _rows: scalar

    def _null(self, _node: Any) -> Value:
        import pyarrow as pa

        return lambda _rows: pa.scalar(None)

    def _div(self, node: Any) -> Value:
        left, right = self.compile(node.this), self.compile(node.expression)
        return lambda rows: _compute("divide", _double(left(rows)), _double(right(rows)))

    def _is(self, node: Any) -> Value:
        if type(node.expression).__name__ != "Null":
            raise InvalidSpec("when needs `is null` after a value",
                              got=node.sql(dialect="spark"), do="write n is not null")  # fmt: skip
        return self._called("is_null", node.this)

    def _in(self, node: Any) -> Value:
        value = self.compile(node.this)
        found = [self.compile(one) for one in node.expressions]

        def inside(rows: pa.Table) -> Any:
            hits = [_compared("equal", value(rows), one(rows)) for one in found]
            answer = hits[0]
            for hit in hits[1:]:
                answer = _compute("or_kleene", answer, hit)
            return answer

        return inside

    def _between(self, node: Any) -> Value:
        value = self.compile(node.this)
        low, high = self.compile(node.args["low"]), self.compile(node.args["high"])
        return lambda rows: _compute(
            "and_kleene",
            _compared("greater_equal", value(rows), low(rows)),
            _compared("less_equal", value(rows), high(rows)),
        )

    def _coalesce(self, node: Any) -> Value:
        return self._called("coalesce", node.this, *node.expressions)


def _compute(name: str, *values: Any) -> Any:
    import pyarrow.compute as pc

    return pc.call_function(name, list(values))


def _double(value: Any) -> Any:
    import pyarrow as pa

    return value.cast(pa.float64())


def _compared(name: str, left: Any, right: Any) -> Any:
    """A comparison in which NaN equals NaN and is larger than every other number."""
    import pyarrow as pa

    plain = _compute(name, left, right)
    if not (pa.types.is_floating(left.type) or pa.types.is_floating(right.type)):
        return plain
    nan_left = _compute("is_nan", _double(left))
    nan_right = _compute("is_nan", _double(right))
    ranked = _compute(name, nan_left.cast(pa.int8()), nan_right.cast(pa.int8()))
    return _compute("if_else", _compute("or", nan_left, nan_right), ranked, plain)

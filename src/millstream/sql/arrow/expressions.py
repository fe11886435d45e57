"""One SQL expression as a value over Arrow columns, where its meaning is exactly Spark's.

Whatever is not known to be the same is `NeedsSpark`: what can raise (integers that overflow,
casts to narrower types, divisors that may be zero), what depends on the session, and what
sqlglot may read in another way than Spark's parser.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from millstream.sql import columns as sql
from millstream.sql.arrow.types import (
    BOOL,
    DOUBLE,
    FLOAT,
    INTEGERS,
    NULL,
    ORDERED,
    TEXT,
    NeedsSpark,
    common,
    is_point,
    widened,
)
from millstream.sql.arrow.values import Call, Literal, OneOf, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from millstream.sql.arrow.values import Value

MOST = 300  # values in one expression: beyond it Spark's compiler is the better one
_POINTED = pa.decimal128(30, 15)  # literals with a point: used only where they become doubles
_WHOLE = re.compile(r"\d{1,19}")
_POINT = re.compile(r"\d{1,15}\.\d{1,15}")
_EXPONENT = re.compile(r"(\d{1,15}|\d{0,15}\.\d{1,15})[eE]-?\d{1,3}")


def expression(text: str, columns: Mapping[str, Value]) -> Value:
    """What a SQL text means over these columns.

    Raises:
        NeedsSpark: it is not known to mean here what it means in Spark.
    """
    tree: Any = sql.parsed(text, "an expression").unalias()
    signs = sum(1 for _ in tree.find_all(exp.Add))
    nodes = sum(1 for _ in tree.walk())
    if "\\" in text or text.count("+") != signs or nodes > MOST or sql.at_clock(text, 0) != text:
        raise NeedsSpark
    return _made(tree, columns)


def found(name: str, columns: Iterable[str]) -> str:
    """The column of a name in any case, as it is written among the others."""
    same = [column for column in columns if column.lower() == name.lower()]
    if len(same) != 1 or (same[0] != name and not (name + same[0]).isascii()):
        raise NeedsSpark
    return same[0]


def _made(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    if type(tree) not in _MAKERS:
        raise NeedsSpark
    parts, maker = _MAKERS[type(tree)]
    if any(value for part, value in tree.args.items() if part not in parts):
        raise NeedsSpark
    made = maker(tree, columns)
    of_constants = not made.columns and not isinstance(made, Literal)
    if of_constants or made.size > MOST:
        raise NeedsSpark
    return made


def _operands(tree: exp.Expression, columns: Mapping[str, Value], *more: str) -> Iterator[Value]:
    """The parts of a comparison; one that is a condition itself may be read in two ways."""
    for part in ("this", *more):
        if isinstance(tree.args[part].unnest(), exp.Predicate | exp.Connector | exp.Not):
            raise NeedsSpark
        yield _made(tree.args[part], columns)


# -- columns, literals ---------------------------------------------------------------


def _column(tree: Any, columns: Mapping[str, Value]) -> Value:
    """A column, or a field of one, or a field of that."""
    name, *inside = [part.name for part in tree.parts]
    value = columns[found(name, columns)]
    for part in inside:
        if not pa.types.is_struct(value.type):
            raise NeedsSpark
        fields = [field.name for field in value.type]
        place = fields.index(found(part, fields))
        value = Part(value, place, value.type[place].type)
    return value


def _literal(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    text: str = tree.this
    if tree.args["is_string"]:
        return Literal(text, TEXT)
    if _WHOLE.fullmatch(text) and int(text) < 2**63:
        return Literal(int(text), pa.int32() if int(text) < 2**31 else pa.int64())
    if _POINT.fullmatch(text):
        return Literal(Decimal(text), _POINTED)
    if _EXPONENT.fullmatch(text) and math.isfinite(float(text)):
        return Literal(float(text), DOUBLE)
    raise NeedsSpark


def _boolean(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    return Literal(bool(tree.this), BOOL)


def _null(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    return Literal(None, NULL)


def _inner(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    return _made(tree.this, columns)


def _negative(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    value = _made(tree.this, columns)
    if isinstance(value, Literal):
        if isinstance(tree.this, exp.Paren) or not value.value or value.value in (2**31, 2**63):
            raise NeedsSpark
        if isinstance(value.value, str | bool):
            raise NeedsSpark
        return Literal(-value.value, value.type)
    if value.type not in (DOUBLE, FLOAT):
        raise NeedsSpark
    return Call("negate", (value,), value.type)


_TARGETS = {
    exp.DType.TINYINT: pa.int8(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: pa.int32(),
    exp.DType.BIGINT: pa.int64(),
    exp.DType.DOUBLE: DOUBLE,
}


def _cast(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    """To a wider number; `1L` and `1.5D` are casts, too."""
    to = tree.args["to"]
    kind = _TARGETS.get(to.this)
    if kind is None or to.expressions:
        raise NeedsSpark
    value = _made(tree.this, columns)
    if isinstance(value, Literal) and value.type in INTEGERS and kind in INTEGERS:
        half = 2 ** (kind.bit_width - 1)
        if not -half < value.value < half:
            raise NeedsSpark
        return Literal(value.value, kind)
    return widened(value, kind)


# -- comparisons ---------------------------------------------------------------------


def _call(function: str, *operands: Value) -> Value:
    return Call(function, operands, BOOL)


def _condition(value: Value) -> Value:
    if value.type != BOOL:
        raise NeedsSpark
    return value


def _equal(left: Value, right: Value) -> Value:
    """NaN equals NaN."""
    equal = _call("equal", left, right)
    if left.type not in (DOUBLE, FLOAT) or isinstance(left, Literal) or isinstance(right, Literal):
        return equal
    return _call("or", equal, _call("and", _call("is_nan", left), _call("is_nan", right)))


def _less(left: Value, right: Value) -> Value:
    """NaN is larger than any number."""
    less = _call("less", left, right)
    if left.type not in (DOUBLE, FLOAT) or isinstance(right, Literal):
        return less
    nan = _call("is_nan", right)
    if isinstance(left, Literal):
        return _call("or", less, nan)
    return _call("or", less, _call("and_not", nan, _call("is_nan", left)))


def _not_above(left: Value, right: Value) -> Value:
    less = _call("less_equal", left, right)
    if left.type not in (DOUBLE, FLOAT) or isinstance(right, Literal):
        return less
    return _call("or", less, _call("is_nan", right))


def _same(left: Value, right: Value) -> Value:
    both = _call("and", _call("is_null", left), _call("is_null", right))
    return _call("coalesce", _equal(left, right), both)


_COMPARED: dict[type, Callable[[Value, Value], Value]] = {
    exp.EQ: _equal,
    exp.NEQ: lambda left, right: _call("invert", _equal(left, right)),
    exp.LT: _less,
    exp.LTE: _not_above,
    exp.GT: lambda left, right: _less(right, left),
    exp.GTE: lambda left, right: _not_above(right, left),
    exp.NullSafeEQ: _same,
}


def _comparable(left: Value, right: Value, *, order: bool) -> tuple[Value, Value]:
    """Both as one type. Longs and floats are not compared with doubles: Spark's optimizer may
    turn the cast around."""
    kinds = {left.type, right.type}
    if len(kinds) > 1 and DOUBLE in kinds and kinds & {pa.int64(), FLOAT}:
        raise NeedsSpark
    if NULL in kinds:
        raise NeedsSpark
    kind = common([left, right])
    if kind not in ORDERED and (order or kind != BOOL):
        raise NeedsSpark
    return widened(left, kind), widened(right, kind)


def _comparison(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    left, right = _operands(tree, columns, "expression")
    order = not isinstance(tree, exp.EQ | exp.NEQ | exp.NullSafeEQ)
    return _COMPARED[type(tree)](*_comparable(left, right, order=order))


def _between(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    value, low, high = _operands(tree, columns, "low", "high")
    least, above = _comparable(low, value, order=True)
    below, most = _comparable(value, high, order=True)
    return _call("and_kleene", _not_above(least, above), _not_above(below, most))


def _one_of(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    (value,) = _operands(tree, columns)
    these = [_made(one, columns) for one in tree.expressions]
    kind = common([value, *these])
    if kind not in (*INTEGERS, TEXT) or not value.columns:
        raise NeedsSpark
    if not all(isinstance(one, Literal) and one.value is not None for one in these):
        raise NeedsSpark
    literals = tuple(one.value for one in these if isinstance(one, Literal))
    return OneOf(widened(value, kind), literals)


def _is_null(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    if not isinstance(tree.expression, exp.Null):
        raise NeedsSpark
    (value,) = _operands(tree, columns)
    return _call("is_null", value)


# -- logic, arithmetic, choices ------------------------------------------------------


def _not(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    return _call("invert", _condition(_made(tree.this, columns)))


def _both(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    function = "and_kleene" if isinstance(tree, exp.And) else "or_kleene"
    sides = [_made(side, columns) for side in (tree.this, tree.expression)]
    return _call(function, *map(_condition, sides))


_ARITHMETIC: dict[type, str] = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply"}


def _arithmetic(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    """Of doubles: nothing else is sure not to overflow."""
    sides = [_made(side, columns) for side in (tree.this, tree.expression)]
    if DOUBLE not in [side.type for side in sides] or NULL in [side.type for side in sides]:
        raise NeedsSpark
    operands = tuple(widened(side, DOUBLE) for side in sides)
    return Call(_ARITHMETIC[type(tree)], operands, DOUBLE)


def _divided(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    """By a literal that is not zero: of integers, too, the quotient is a double."""
    value, by = _made(tree.this, columns), _made(tree.expression, columns)
    if not isinstance(by, Literal) or not by.value or value.type not in (*INTEGERS, DOUBLE):
        raise NeedsSpark
    if is_point(by) and value.type != DOUBLE:
        raise NeedsSpark
    return Call("divide", (widened(value, DOUBLE), widened(by, DOUBLE)), DOUBLE)


def _remainder(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    """Of integers, by a literal that is not zero; the sign is that of the dividend."""
    value, by = _made(tree.this, columns), _made(tree.expression, columns)
    if not isinstance(by, Literal) or not by.value or by.type not in INTEGERS:
        raise NeedsSpark
    kind = common([value, by])
    if kind not in INTEGERS:
        raise NeedsSpark
    dividend, divisor = widened(value, kind), Literal(abs(by.value), kind)
    times = Call("divide", (dividend, divisor), kind)
    whole = Call("multiply", (times, divisor), kind)
    return Call("subtract", (dividend, whole), kind)


def _chosen(condition: Value, then: Value, other: Value) -> Value:
    """What is null is not true."""
    kind = common([then, other])
    sure = _call("coalesce", _condition(condition), Literal(False, BOOL))  # noqa: FBT003
    return Call("if_else", (sure, widened(then, kind), widened(other, kind)), kind)


def _if(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    if tree.args.get("false") is None:
        raise NeedsSpark
    parts = (_made(tree.args[part], columns) for part in ("this", "true", "false"))
    return _chosen(*parts)


def _case(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    cases = [(_made(case.this, columns), _made(case.args["true"], columns))
             for case in tree.args["ifs"]]  # fmt: skip
    default = tree.args.get("default")
    made = Literal(None, NULL) if default is None else _made(default, columns)
    kind = common([made, *(value for _, value in cases)])
    chosen: Value = widened(made, kind)
    for condition, value in reversed(cases):
        chosen = _chosen(condition, widened(value, kind), chosen)
    return chosen


def _coalesced(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    values = [_made(part, columns) for part in (tree.this, *tree.expressions)]
    kind = common(values)
    return Call("coalesce", tuple(widened(value, kind) for value in values), kind)


def _null_if(tree: exp.Expression, columns: Mapping[str, Value]) -> Value:
    left, right = _operands(tree, columns, "expression")
    equal = _equal(*_comparable(left, right, order=False))
    return _chosen(equal, Literal(None, left.type), left)


_BINARY = ("this", "expression")
_Maker = tuple[tuple[str, ...], "Callable[[Any, Mapping[str, Value]], Value]"]
_MAKERS: dict[type, _Maker] = {
    exp.Column: (("this", "table", "db", "catalog"), _column),
    exp.Literal: (("this", "is_string"), _literal),
    exp.Boolean: (("this",), _boolean),
    exp.Null: ((), _null),
    exp.Paren: (("this",), _inner),
    exp.Neg: (("this",), _negative),
    exp.Cast: (("this", "to"), _cast),
    exp.TryCast: (("this", "to", "safe"), _cast),
    **dict.fromkeys(_COMPARED, (_BINARY, _comparison)),
    exp.Between: (("this", "low", "high"), _between),
    exp.In: (("this", "expressions"), _one_of),
    exp.Is: (_BINARY, _is_null),
    exp.Not: (("this",), _not),
    exp.And: (_BINARY, _both),
    exp.Or: (_BINARY, _both),
    **dict.fromkeys(_ARITHMETIC, (_BINARY, _arithmetic)),
    exp.Div: ((*_BINARY, "safe"), _divided),
    exp.Mod: (_BINARY, _remainder),
    exp.If: (("this", "true", "false"), _if),
    exp.Case: (("ifs", "default"), _case),
    exp.Coalesce: (("this", "expressions"), _coalesced),
    exp.Nullif: (_BINARY, _null_if),
}

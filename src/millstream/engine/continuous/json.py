"""The JSON decoder as Spark SQL, for continuous mode, where no Python runs per row.

`formats/json/exact.py` is the definition: these expressions accept the same records and give the
same values. Spark's `from_json` does not: it rounds, accepts `5` as a string, and reads only the
first value. So the text is prepared, then parsed as a variant:

- every number is quoted, after a random marker, so that its digits survive;
- unpaired surrogates are written out after a second marker, because they are errors only in fields
  that are read;
- the value becomes the first element of a list whose second is a third marker: if a record is not
  exactly one value, that marker is not in its place.

The markers are random for each run, so no record can contain them on purpose.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.engine.continuous import values
from millstream.engine.continuous.values import let, text
from millstream.formats.json.syntax import DEEPEST
from millstream.schema import Array, Decimal, Map, Struct
from millstream.sql.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millstream.schema import Field, Scalar, Schema, Type

GOOD, EXTRA = "_good", "_extra"
_WHOLE = {"byte": "tinyint", "short": "smallint", "int": "int", "long": "bigint"}
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALVES = text(rf"(?s)({_PAIR}|\\[^u])|\\u([dD][89a-fA-F][0-9a-fA-F]{{2}})")
_PERHAPS_HALF = text(r"\\u[dD][89a-fA-F]")
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:[.][0-9]++)?(?:[eE][+-]?[0-9]++)?"
_NUMBERS = text(rf"(?s)({_STRING})|({_NUMBER})")
_NOT_BRACKETS = (r"(?s)\\.", '"[^"]*"', r"[^{}\[\]]+")


@dataclass(frozen=True)
class JsonColumns:
    """Turns record values into the columns of a schema."""

    schema: Schema
    word: str = field(default_factory=lambda: uuid.uuid4().hex)

    def decoded(self, frame: DataFrame) -> DataFrame:
        """The frame with its own columns and those of the schema, decoded from `_value`.

        `_good` says whether a row is valid; if not, its columns have no meaning. `_extra` says
        whether it has fields outside the schema.
        """
        own = [quoted(name) for name in frame.columns]
        for name, expression in (
            ("_text", self._text()), ("_prepared", self._prepared()),
            ("_parsed", self._parsed()), ("_object", self._object()),
        ):  # fmt: skip
            frame = frame.selectExpr("*", f"{expression} as {name}")
        fields = list(enumerate(self.schema))
        found = [f"{_at('_object', part)} as _v{n}" for n, part in fields]
        frame = frame.selectExpr("*", *found)
        strings = [f"{_string(f'_v{n}')} as _s{n}" for n, part in fields if _is_string(part.type)]
        frame = frame.selectExpr("*", *strings)
        made = [f"{self._column(n, part.type)} as {quoted(part.name)}" for n, part in fields]
        frame = frame.selectExpr("*", *made)
        fits = [_fits(f"_v{n}", quoted(part.name), part) for n, part in fields]
        return frame.selectExpr(
            *own,
            *(quoted(name) for name in self.schema.names),
            f"(_object is not null and {' and '.join(fits)}) as {GOOD}",
            f"{_more('_object', self.schema.fields)} as {EXTRA}",
        )

    def _marker(self, letter: str) -> str:
        """A marker: neither base64 nor a date, and without special characters of patterns."""
        return f"{letter}~{self.word}"

    # -- the text -----------------------------------------------------------------------

    def _text(self) -> str:
        """The value as text, with unpaired surrogates written out; null if it is not UTF-8."""
        half, end = self._marker("h"), self._marker("e")
        marked = f"regexp_replace(_t, {_HALVES}, {text(f'$1{half}$2{end}')})"
        written = f"replace({marked}, {text(half + end)}, '')"
        body = f"if(_t rlike {_PERHAPS_HALF}, {written}, _t)"
        return let("_t", "try_validate_utf8(cast(_value as string))", body)

    def _prepared(self) -> str:
        """The text with its numbers quoted; null if it is nested too deep."""
        left, right = self._marker("l"), self._marker("r")
        quote = f'"{self._marker("n")}'
        made = f"regexp_replace(_text, {_NUMBERS}, {text(f'$1{left}$2{right}')})"
        made = f"replace({made}, {text(left + right)}, '')"
        made = f"replace(replace({made}, {text(left)}, {text(quote)}), {text(right)}, '\"')"
        return f"if({_shallow('_text')}, {made}, null)"

    def _parsed(self) -> str:
        """A list of the value and the last marker; null if that is not JSON."""
        named = text(f'"{self._marker("n")}[^"]*"\\s*:')
        last = text(f',"{self._marker("e")}"]')
        return f"if(_prepared rlike {named}, null, try_parse_json(concat('[', _prepared, {last})))"

    def _object(self) -> str:
        last = "try_variant_get(_parsed, '$[1]', 'string')"
        value = "try_variant_get(_parsed, '$[0]', 'map<string,variant>')"
        return f"if({last} = {text(self._marker('e'))}, {value}, null)"

    # -- values: null if the variant is null or does not fit ------------------------------

    def _column(self, place: int, type_: Type) -> str:
        if isinstance(type_, Array | Map | Struct) or not _is_string(type_):
            return self._value(f"_v{place}", type_)
        return self._scalar(f"_s{place}", type_)

    def _value(self, variant: str, type_: Type) -> str:
        if isinstance(type_, Array):
            return self._array(variant, type_)
        if isinstance(type_, Map):
            return self._map(variant, type_)
        if isinstance(type_, Struct):
            return self._struct(variant, type_)
        if not _is_string(type_):
            value = f"try_variant_get({variant}, '$', 'boolean')"
            return f"if(schema_of_variant({variant}) = 'BOOLEAN', {value}, null)"
        return let("_s", _string(variant), self._scalar("_s", type_))

    def _scalar(self, string: str, type_: Scalar | Decimal) -> str:
        mark = self._marker("n")
        is_number = f"startswith({string}, {text(mark)})"
        digits = f"if({is_number}, substr({string}, {len(mark) + 1}), null)"
        plain = f"if({is_number}, null, {string})"
        if isinstance(type_, Decimal):
            return let("_d", f"coalesce({digits}, {string})", values.decimal("_d", type_))
        name = type_.name
        if name in _WHOLE:
            return let("_d", digits, values.whole("_d", _WHOLE[name]))
        if name in ("float", "double"):
            return let("_d", digits, values.real("_d", string, name))
        if name == "timestamp":
            number = let("_d", digits, values.millis("_d"))
            return f"if({is_number}, {number}, {values.instant(string)})"
        if name == "string":
            half = f"contains({string}, {text(self._marker('h'))})"
            return f"if({is_number} or {half}, null, {string})"
        read = {"binary": values.binary, "date": values.date, "timestamp_ntz": values.wall_clock}
        return let("_p", plain, read[name]("_p"))

    def _array(self, variant: str, type_: Array) -> str:
        elements = f"try_variant_get({variant}, '$', 'array<variant>')"
        read = f"transform(_e, _x -> {self._value('_x', type_.element)})"
        wrong = "exists(arrays_zip(_e, _r), _z -> not is_variant_null(_z._e) and _z._r is null)"
        body = let("_r", read, f"if({wrong}, null, _r)")
        return let("_e", elements, f"if(_e is null, null, {body})")

    def _map(self, variant: str, type_: Map) -> str:
        half = f"contains(_x.key, {text(self._marker('h'))})"
        wrong = f"({half} or (not is_variant_null(_x.value) and _w is null))"
        entry = f"struct(_x.key as key, _w as value, {wrong} as wrong)"
        read = f"transform(_e, _x -> {let('_w', self._value('_x.value', type_.value), entry)})"
        made = "map_from_entries(transform(_r, _z -> struct(_z.key, _z.value)))"
        body = let("_r", read, f"if(exists(_r, _z -> _z.wrong), null, {made})")
        return let("_e", f"map_entries({_object(variant)})", f"if(_e is null, null, {body})")

    def _struct(self, variant: str, type_: Struct) -> str:
        names = [quoted(part.name) for part in type_.fields]
        parts = list(zip(type_.fields, names, strict=True))
        read = [f"{self._value(_at('_o', part), part.type)} as {name}" for part, name in parts]
        fits = [_fits(_at("_o", part), f"_r.{name}", part) for part, name in parts]
        body = let("_r", f"struct({', '.join(read)})", f"if({' and '.join(fits)}, _r, null)")
        return let("_o", _object(variant), f"if(_o is null, null, {body})")


def _is_string(type_: Type) -> bool:
    """Whether a value's variant is a string: a JSON string, or a quoted number."""
    return not isinstance(type_, Array | Map | Struct) and type_.ddl() != "boolean"


def _string(variant: str) -> str:
    value = f"try_variant_get({variant}, '$', 'string')"
    return f"if(schema_of_variant({variant}) = 'STRING', {value}, null)"


def _object(variant: str) -> str:
    return f"try_variant_get({variant}, '$', 'map<string,variant>')"


def _at(given: str, part: Field) -> str:
    return f"try_element_at({given}, {text(part.name)})"


def _fits(variant: str, value: str, part: Field) -> str:
    """Whether a field has a value of its type, or none if it is nullable."""
    if not part.nullable:
        return f"{value} is not null"
    return f"({value} is not null or {variant} is null or is_variant_null({variant}))"


def _shallow(words: str) -> str:
    """Whether a text is not nested too deep; counted only if it has enough brackets."""
    opened = f"length({words}) - length(translate({words}, '{{[', ''))"
    bare = words
    for pattern in _NOT_BRACKETS:
        bare = f"regexp_replace({bare}, {text(pattern)}, '')"
    step = "_a.d + if(_c in ('{', '['), 1, -1)"
    deepest = (
        f"aggregate(split({bare}, ''), struct(0 as d, 0 as m), (_a, _c) -> "
        f"struct({step} as d, greatest(_a.m, {step}) as m), _a -> _a.m)"
    )
    return f"({opened} <= {DEEPEST} or {deepest} <= {DEEPEST})"


def _more(given: str, fields: tuple[Field, ...]) -> str:
    """Whether an object has fields outside the schema, at any depth."""
    known = ", ".join(text(part.name) for part in fields)
    here = f"size(array_except(map_keys({given}), array({known}))) > 0"
    inside = [_more_inside(_at(given, part), part.type) for part in fields]
    return f"coalesce({' or '.join([here, *filter(None, inside)])}, false)"


def _more_inside(variant: str, type_: Type) -> str | None:
    if isinstance(type_, Struct):
        return let("_o", _object(variant), _more("_o", type_.fields))
    if not isinstance(type_, Array | Map):
        return None
    element = type_.element if isinstance(type_, Array) else type_.value
    inside = _more_inside("_x", element)
    elements = f"try_variant_get({variant}, '$', 'array<variant>')"
    if isinstance(type_, Map):
        elements = f"map_values({_object(variant)})"
    return inside and f"coalesce(exists({elements}, _x -> {inside}), false)"

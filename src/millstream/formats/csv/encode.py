"""Encodes rows as CSV records, with cells in column order.

`decode` with the same schema returns every value: null is an empty cell, an empty string `""`. Text
is quoted if it contains a comma, a quote or a line break, or begins with a byte order mark. Other
types are written as in JSON, without quotes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidInput
from millstream.formats.csv.exact import check_schema
from millstream.formats.json.encode import as_text
from millstream.schema import Scalar, Schema

if TYPE_CHECKING:
    from millstream.schema import Type

_TO_QUOTE = '[",\r\n\ufeff]'


def encode(table: pa.Table) -> pa.Array:
    """Encode each row as a record value (binary, never null).

    Raises:
        InvalidSpec: a column's type does not fit into a cell.
        InvalidInput: a time is outside the years 1 to 9999, or there is no column.
    """
    schema = Schema.from_arrow(table.schema)
    if not len(schema):
        raise InvalidInput("encode needs at least one column", got="a table without columns")
    check_schema(schema)
    kinds = pa.schema([pa.field(part.name, part.type) for part in schema.arrow()])
    pieces = [
        pc.binary_join_element_wise(
            *(
                _cells(column, field.type)
                for column, field in zip(batch.columns, schema, strict=True)
            ),
            ",",
        ).cast(pa.binary())
        for batch in table.cast(kinds).to_batches()
    ]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.binary())


def _cells(column: pa.Array, type_: Type) -> pa.Array:
    if type_ == Scalar("string"):
        special = pc.or_(pc.match_substring_regex(column, _TO_QUOTE), pc.equal(column, ""))
        inner = pc.replace_substring(column, '"', '""')
        made = pc.if_else(special, pc.binary_join_element_wise('"', inner, '"', ""), column)
    else:
        made = pc.if_else(column.is_valid(), as_text(column, type_), pa.scalar(None, pa.string()))
        made = pc.utf8_trim(made, '"')
        made = pc.if_else(pc.equal(made, ""), '""', made)
    return made.fill_null("")

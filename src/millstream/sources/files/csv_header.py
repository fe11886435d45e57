"""The first line of a CSV file: names of columns, or a row like the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.formats.csv.exact import InvalidCsv, parse_cells

if TYPE_CHECKING:
    from millstream.schema import Schema


class NoHeader(ValueError):
    """The line names some columns and not others, or one twice; the message says which."""


def header_of(line: bytes, schema: Schema) -> tuple[str, ...] | None:
    """The names in a first line that names every column, in any order, among others or not.

    None where it names none of them: then it is a row, and cells stand in the schema's
    order.

    Raises:
        NoHeader: it could be either.
    """
    try:
        found = [cell.text for cell in parse_cells(line)]
    except InvalidCsv:
        return None
    known = [name for name in found if name in schema.names]
    if not known:
        return None
    twice = sorted({name for name in known if known.count(name) > 1})
    lacking = [name for name in schema.names if name not in known]
    if twice:
        raise NoHeader(f"the first line names {', '.join(twice)} twice")
    if lacking:
        raise NoHeader(
            f"the first line names {', '.join(known)} and not {', '.join(lacking)}: a header needs "
            "all columns of the schema, a row none of their names"
        )
    return tuple(found)

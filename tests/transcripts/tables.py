"""Tables in transcripts: one line per row, cells parted by blanks, the first line names columns.

Times are seconds from the transcript's zero, or ISO texts (UTC). `window` is
`window_start..window_end`. `null` is null; `"null"` is a text; `[1, 2]` is a list.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.transcripts.nodes import Item

_CELL = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\{[^}]*\}|\S+')
_FAR = timedelta(days=10)
BOUNDS = ("window_start", "window_end")


@dataclass(frozen=True)
class Line:
    """One row of a table: its cells by column, and where it stands."""

    number: int
    cells: dict[str, str]
    text: str


@dataclass(frozen=True)
class Table:
    """Rows as they are written, with the columns they name."""

    item: Item
    columns: tuple[str, ...]
    lines: tuple[Line, ...]


def table(item: Item) -> Table:
    """The table in a text, or the empty one for `none`."""
    if item.text().strip() == "none":
        return Table(item, (), ())
    lines = item.lines()
    if len(lines) < 2:
        raise item.refuse("a table is needed", got=f"{len(lines)} lines",
                          do="write a line of columns and one per row, or none")  # fmt: skip
    columns = tuple(lines[0][1].split())
    if len(set(columns)) < len(columns):
        raise item.refuse("a table needs each column once", got=lines[0][1].strip(),
                          do="name it once")  # fmt: skip
    rows = []
    for number, text in lines[1:]:
        cells = _CELL.findall(text)
        if len(cells) != len(columns):
            raise item.refuse(
                f"the table needs {len(columns)} cells in each row",
                got=f"{len(cells)} in line {number}: {text.strip()}",
                do=f"give one for each of {', '.join(columns)}, null for nothing",
            )
        rows.append(Line(number, dict(zip(columns, cells, strict=True)), text.strip()))
    return Table(item, columns, tuple(rows))


def of_columns(found: Table, known: Sequence[str], *, every: bool) -> Table:
    """The table, if its columns are among these, and all of them where `every` is asked."""
    named = {n for column in found.columns for n in (BOUNDS if column == "window" else (column,))}
    strange = [column for column in named if column not in known]
    if strange:
        raise found.item.refuse("a column that is there is needed", got=strange[0],
                                do=f"name one of {', '.join(known)}")  # fmt: skip
    if every and found.columns and (missing := [c for c in known if c not in named]):
        raise found.item.refuse("a table needs every column of the output",
                                got=f"none for {', '.join(missing)}", do="add it")  # fmt: skip
    return found


def time_of(cell: str, zero: datetime) -> datetime:
    """The time a cell tells: seconds from zero, or ISO text.

    Raises:
        ValueError: it tells none.
    """
    try:
        micros = Decimal(cell) * 1_000_000
    except InvalidOperation:
        found = datetime.fromisoformat(cell)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return zero + timedelta(microseconds=int(micros))


def json_value(cell: str, kind: str, zero: datetime) -> Any:
    """A cell as the JSON value that is fed for a column of this type.

    Raises:
        ValueError: it is no JSON value, or no time.
    """
    if cell == "null":
        return None
    if cell.startswith('"'):
        return json.loads(cell)
    if kind == "timestamp":
        return time_of(cell, zero).isoformat()
    return cell if kind == "string" else json.loads(cell)


def window_of(cell: str, zero: datetime) -> tuple[datetime | None, datetime | None]:
    """The bounds `0..10`, or two nulls.

    Raises:
        ValueError: it is neither.
    """
    if cell == "null":
        return None, None
    start, dots, end = cell.partition("..")
    if not dots:
        raise ValueError(f"a window is written start..end, not {cell}")
    return time_of(start, zero), time_of(end, zero)


def agrees(cell: str, value: Any, zero: datetime) -> bool:
    """Whether a cell tells a value; floats to 1e-12."""
    if value is None or cell == "null":
        return value is None and cell == "null"
    try:
        return _agrees(cell, value, zero)
    except (ValueError, InvalidOperation):
        return False


def _agrees(cell: str, value: Any, zero: datetime) -> bool:
    match value:
        case bool():
            return cell == ("true" if value else "false")
        case int():
            return int(cell) == value
        case float():
            meant = float(cell)
            both_nan = math.isnan(meant) and math.isnan(value)
            return both_nan or math.isclose(meant, value, rel_tol=1e-12)
        case Decimal():
            return Decimal(cell) == value
        case datetime():
            return time_of(cell, zero) == value
        case str():
            return value == (json.loads(cell) if cell.startswith('"') else cell)
        case _:
            return bool(json.loads(cell) == value)


def shown(value: Any, zero: datetime) -> str:
    """A value as its cell."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case datetime():
            return _time(value, zero)
        case str():
            plain = value != "null" and re.fullmatch(r'[^\s"\[{]\S*', value)
            return value if plain else json.dumps(value, ensure_ascii=False)
        case list() | dict():
            return json.dumps(value, ensure_ascii=False, default=str)
        case _:
            return str(value)


def _time(value: datetime, zero: datetime) -> str:
    if abs(value - zero) > _FAR:
        return value.isoformat()
    micros = (value - zero) // timedelta(microseconds=1)
    return f"{Decimal(micros) / 1_000_000:f}"

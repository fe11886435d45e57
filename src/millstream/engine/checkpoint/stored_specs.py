"""Windows and joins as JSON beside their state, and back: it is readable without its pipeline."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from millstream.errors import InvalidSpec
from millstream.operators.joins.interval.spec import Interval
from millstream.operators.joins.stream_table.spec import AsOf, Lookup
from millstream.operators.joins.table_table.spec import TableJoin
from millstream.operators.windows.by_rows.spec import Delta, Punctuated, Rows
from millstream.operators.windows.sessions.spec import Session
from millstream.operators.windows.sliding.spec import Sliding
from millstream.operators.windows.spec import Everything, Hopping, Tumbling

IS = "is"
_KNOWN: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Tumbling, Hopping, Session, Sliding, Rows, Delta, Punctuated, Everything,
                 Interval, AsOf, Lookup, TableJoin)
}  # fmt: skip


def told(value: Any) -> Any:
    """A frozen value as JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: told(getattr(value, field.name)) for field in fields(value)}
        return {IS: type(value).__name__, **parts}
    if isinstance(value, tuple | list):
        return [told(one) for one in value]
    if isinstance(value, Decimal | timedelta):
        return {IS: type(value).__name__, "text": str(value) if isinstance(value, Decimal)
                else value // timedelta(microseconds=1)}  # fmt: skip
    return value


def made(body: Any) -> Any:
    """The value again.

    Raises:
        InvalidSpec: it is of a kind this version does not know.
    """
    if isinstance(body, list):
        return tuple(made(one) for one in body)
    if not isinstance(body, dict):
        return body
    if body[IS] == "Decimal":
        return Decimal(body["text"])
    if body[IS] == "timedelta":
        return timedelta(microseconds=body["text"])
    if body[IS] not in _KNOWN:
        raise InvalidSpec("reading state needs a step this version knows", got=repr(body[IS]),
                          do="ask with the pipeline that wrote it")  # fmt: skip
    return _KNOWN[body[IS]](**{name: made(part) for name, part in body.items() if name != IS})

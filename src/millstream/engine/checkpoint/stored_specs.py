"""Specs of windows and joins as JSON beside their state, so that it can be read without the
pipeline."""

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


def spec_to_json(value: Any) -> Any:
    """A frozen dataclass as JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: spec_to_json(getattr(value, field.name)) for field in fields(value)}
        return {IS: type(value).__name__, **parts}
    if isinstance(value, tuple | list):
        return [spec_to_json(one) for one in value]
    if isinstance(value, Decimal | timedelta):
        return {IS: type(value).__name__, "text": str(value) if isinstance(value, Decimal)
                else value // timedelta(microseconds=1)}  # fmt: skip
    return value


def spec_from_json(body: Any) -> Any:
    """The dataclass from its JSON.

    Raises:
        InvalidSpec: this version does not know its kind.
    """
    if isinstance(body, list):
        return tuple(spec_from_json(one) for one in body)
    if not isinstance(body, dict):
        return body
    if body[IS] == "Decimal":
        return Decimal(body["text"])
    if body[IS] == "timedelta":
        return timedelta(microseconds=body["text"])
    if body[IS] not in _KNOWN:
        raise InvalidSpec("reading state needs a step this version knows", got=repr(body[IS]),
                          do="use the version that wrote it")  # fmt: skip
    return _KNOWN[body[IS]](
        **{name: spec_from_json(part) for name, part in body.items() if name != IS}
    )

"""A record of a topic, and the conversion of keys, values, headers and timestamps to its bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import methodcaller
from typing import TYPE_CHECKING

from millstream.errors import InvalidInput

if TYPE_CHECKING:
    from confluent_kafka import Message

Value = bytes | str | Mapping[str, object] | None
Headers = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic; the timestamp is aware, in UTC."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


UNREADABLE: list[tuple[str, bytes | None]] = [("\N{REPLACEMENT CHARACTER}", None)]


_HEADERS = methodcaller("headers")


def from_message(message: Message) -> Record:
    """The record in a message of confluent-kafka that is not an error."""
    return Record(
        topic=message.topic(),  # type: ignore[arg-type]
        partition=message.partition(),  # type: ignore[arg-type]
        offset=message.offset(),  # type: ignore[arg-type]
        timestamp=moment(message.timestamp()[1]),
        key=message.key(),
        value=message.value(),
        headers=tuple(headers_of(message)),
    )


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers of a message; `UNREADABLE` if the name of one is not UTF-8.

    For such a message confluent-kafka returns a list that crashes the process, and sets an
    exception that `message.headers()` may miss and `methodcaller` does not. It must not be called
    twice.
    """
    try:
        return _HEADERS(message) or []
    except (SystemError, UnicodeDecodeError):
        return UNREADABLE


def moment(milliseconds: int) -> datetime:
    """The time at these epoch milliseconds; after the year 9999, the last one that Python has.

    >>> moment(1_500).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return _LAST


def milliseconds(time: datetime | int, *, what: str = "timestamp") -> int:
    """Epoch milliseconds of a time (no zone means UTC; fractions are truncated).

    >>> milliseconds(datetime(1970, 1, 1, 0, 0, 2))
    2000
    """
    if isinstance(time, datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        length = (aware - EPOCH) // _MILLISECOND
    elif isinstance(time, int) and not isinstance(time, bool):
        length = time
    else:
        raise InvalidInput(
            f"{what} needs a datetime or whole epoch milliseconds",
            got=repr(time),
            do="write for instance datetime.now(UTC)",
        )
    if length < 0:
        raise InvalidInput(f"{what} needs a time from 1970 on", got=str(time), do="correct it")
    return length


def sent_at(time: datetime | int) -> int:
    """Epoch milliseconds for a record to be sent; 0 would mean "now" to the client."""
    length = milliseconds(time)
    if length == 0:
        raise InvalidInput(
            "the timestamp of a record needs to be after 1970-01-01 00:00:00 UTC",
            got=str(time),
            do='send 1 millisecond or more, because the client treats 0 as "now"',
        )
    return length


def encode(value: object, *, what: str = "value") -> bytes | None:
    """The bytes of a value: bytes as they are, text as UTF-8, a mapping as compact JSON.

    >>> encode({"price": 5.0, "at": datetime(2026, 1, 1)})
    b'{"price":5.0,"at":"2026-01-01T00:00:00.000000Z"}'
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return _json(value, what)
    raise InvalidInput(
        f"the {what} of a record needs bytes, text, a mapping or None",
        got=f"{value!r:.80} of type {type(value).__name__}",
        do="encode it first",
    )


def encode_key(key: object) -> bytes | None:
    """The bytes of a key: bytes as they are, text as UTF-8."""
    if isinstance(key, Mapping):
        raise InvalidInput(
            "the key of a record needs bytes or text",
            got="a mapping",
            do="encode it yourself: equal keys need equal bytes",
        )
    return encode(key, what="key")


def encode_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Headers as pairs; names may repeat in the sequence form."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        named = [(name, encode(value, what="header value")) for name, value in pairs]
    except (TypeError, ValueError) as problem:
        if isinstance(problem, InvalidInput):
            raise
        raise InvalidInput(
            "headers need a mapping or pairs of name and value", got=repr(headers)
        ) from None
    for name, _ in named:
        if not isinstance(name, str):
            raise InvalidInput("a header needs a name that is text", got=repr(name))
    return named


def _json(value: Mapping[str, object], what: str) -> bytes:
    try:
        text = json.dumps(
            value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain
        )
        return text.encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidInput(
            f"the {what} of a record needs values that JSON can hold",
            got=str(problem),
            do="convert it, or send bytes",
        ) from None


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return aware.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__}")

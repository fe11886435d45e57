"""Checks the arguments of `Producer`, and makes the settings of its librdkafka client."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

from millstream.duration import Duration, micros
from millstream.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import datetime

    from millstream.kafka.records import Value

Acks = Literal[0, 1, "all"]

_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def rows(
    values: Iterable[Value],
    keys: Iterable[bytes | str | None] | None,
    timestamps: Iterable[datetime | int | None] | None,
) -> Iterable[tuple[Value, bytes | str | None, datetime | int | None]]:
    """The rows of `send_many`; lengths that are known are compared before the first is sent."""
    if keys is None and timestamps is None:
        return zip(values, repeat(None), repeat(None), strict=False)
    given = {"values": values, "keys": keys, "timestamps": timestamps}
    columns: dict[str, Collection[Any]] = {
        name: column if isinstance(column, Collection) else list(column)
        for name, column in given.items()
        if column is not None
    }
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInput(
            "send_many needs as many keys and timestamps as values",
            got=", ".join(f"{count} {name}" for name, count in lengths.items()),
        )
    nothing: Iterable[Any] = repeat(None)
    return zip(
        columns["values"],
        columns.get("keys", nothing),
        columns.get("timestamps", nothing),
        strict=False,
    )


def throughput(linger: Duration, compression: str) -> dict[str, str]:
    if compression not in _COMPRESSIONS:
        raise InvalidInput(
            f"compression needs one of {', '.join(_COMPRESSIONS)}", got=repr(compression)
        )
    wait = micros(linger, what="linger")
    if wait < 0:
        raise InvalidInput("linger needs a duration of zero or more", got=repr(linger))
    return {
        "linger.ms": f"{wait / 1000:g}",
        "compression.type": compression,
        "queue.buffering.max.messages": "500000",
        "queue.buffering.max.kbytes": "262144",
    }


def safety(acks: Acks, transactional_id: str | None, *, idempotent: bool) -> dict[str, str]:
    if isinstance(acks, bool) or acks not in (0, 1, "all"):
        raise InvalidInput('acks needs 0, 1 or "all"', got=repr(acks))
    if idempotent and acks != "all":
        raise InvalidInput(
            'an idempotent producer needs acks="all"',
            got=f"acks={acks!r}",
            do="pass idempotent=False, or omit acks",
        )
    safety = {
        "acks": str(acks),
        "enable.idempotence": "true" if idempotent else "false",
        "delivery.timeout.ms": "120000" if transactional_id is None else "60000",
    }
    if transactional_id is not None:
        if not idempotent or not isinstance(transactional_id, str) or not transactional_id:
            raise InvalidInput(
                "a transactional_id needs text and an idempotent producer",
                got=repr(transactional_id) if idempotent else "idempotent=False",
            )
        safety["transactional.id"] = transactional_id
    return safety

"""Settings of a topic: as text for Kafka, and which one a broker refused."""

from __future__ import annotations

import difflib
import math
import re
from typing import TYPE_CHECKING

from millstream.duration import Duration, positive_micros
from millstream.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

Setting = str | int | float | bool

IN_SYNC = "min.insync.replicas"

_KNOWN = (
    "cleanup.policy",
    "compression.type",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "index.interval.bytes",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    IN_SYNC,
    "preallocate",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
)
_UNKNOWN = re.compile(r"Unknown topic config name: (\S+)")
_INVALID = re.compile(r"Invalid value (.*?) for configuration (\S+?)(?:: (.*))?$", re.DOTALL)


def text(name: object, value: object, *, kind: str = "topic") -> str:
    """A setting's value as Kafka writes it.

    >>> text("preallocate", True), text("retention.ms", 1000)
    ('true', '1000')
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"a {kind} setting needs a name", got=repr(name))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    raise InvalidInput(
        f"the {kind} setting {name} needs text, a number or a boolean", got=repr(value)
    )


def texts(
    settings: Mapping[str, Setting] | None,
    *,
    retention: Duration | None = None,
    retention_bytes: int | None = None,
    compact: bool = False,
) -> dict[str, str]:
    """All settings of a new topic as text; each may be given once."""
    named: dict[str, Setting] = {}
    if retention is not None:
        named["retention.ms"] = max(1, positive_micros(retention, what="retention") // 1000)
    if retention_bytes is not None:
        named["retention.bytes"] = retention_bytes
    if compact:
        named["cleanup.policy"] = "compact"
    for name in settings or {}:
        if name in named:
            raise InvalidInput(
                f"the topic setting {name} needs to be given once",
                got="it in settings= and as an argument",
                do="omit one",
            )
    return {name: text(name, value) for name, value in {**(settings or {}), **named}.items()}


def refused(message: str) -> InvalidInput:
    """The error for a setting that the broker refused with this message."""
    unknown = _UNKNOWN.search(message)
    if unknown:
        near = difflib.get_close_matches(unknown.group(1), _KNOWN, n=2)
        return InvalidInput(
            "a topic setting needs a name that Kafka knows",
            got=repr(unknown.group(1)),
            do=f"did you mean {' or '.join(near)}?" if near else "see `topics describe`",
        )
    invalid = _INVALID.search(message)
    if invalid:
        value, name, reason = invalid.groups()
        kind = "group" if name.startswith("share.") else "topic"
        return InvalidInput(
            f"the {kind} setting {name} needs another value", got=repr(value), do=reason or None
        )
    return InvalidInput("the topic needs other settings", got=message)

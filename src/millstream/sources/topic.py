"""`Topic`: a Kafka topic, as the place events come from and as a place answers go to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from millstream.errors import InvalidSpec
from millstream.schema import Schema

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


@dataclass(frozen=True)
class Topic:
    """A Kafka topic.

    As a source it needs a `schema`. As a sink, `key` names the columns of the record
    key (default: the operator's keys), the event time is the record's timestamp, and
    a missing topic is made with the cluster's defaults.

    >>> Topic("bids", schema="auction long, price double, ts timestamp").name
    'bids'
    """

    name: str
    schema: str | Schema | None = None
    format: Literal["json"] = "json"
    key: str | tuple[str, ...] | list[str] | None = None
    _parsed: Schema | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.match(self.name) or set(self.name) <= {"."}:
            raise InvalidSpec(
                "a topic name needs 1 to 249 letters, digits, dots, dashes or underscores",
                got=repr(self.name),
            )
        if self.format != "json":
            raise InvalidSpec("Topic needs a format this version has: json", got=repr(self.format))
        if self.schema is not None:
            parsed = self.schema if isinstance(self.schema, Schema) else Schema.parse(self.schema)
            object.__setattr__(self, "_parsed", parsed)
        if isinstance(self.key, list):
            object.__setattr__(self, "key", tuple(self.key))

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The columns of the record key, where they were given."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key) if self.key else None

    def row_schema(self) -> Schema:
        """The columns of its rows; asked for only where the topic is a source."""
        if self._parsed is None:
            raise InvalidSpec(
                f"reading the topic {self.name!r} needs a schema",
                got="none",
                do=f'write Topic("{self.name}", schema="id long, at timestamp, …")',
            )
        return self._parsed

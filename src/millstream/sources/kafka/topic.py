"""`Topic`: a Kafka topic, as a source and as a sink."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from millstream.errors import InvalidSpec
from millstream.formats.choice import columns_of, format_of, framed_format

if TYPE_CHECKING:
    import os

    from millstream.formats.spec import Format
    from millstream.schema import Schema
    from millstream.sources.spec import Opener, Reader, SourceOpening

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


@dataclass(frozen=True)
class Topic:
    """A Kafka topic.

    As a source it needs a `schema`: columns as text for JSON and CSV; an `.avsc` file, its
    JSON, or columns for Avro; `"FILE#message"` with a descriptor set for Protobuf; text
    and bytes have one column. As a sink, `key` names the columns of the record key
    (default: the operator's keys), the event time is the record's timestamp, and a
    missing topic is created with the cluster's defaults.

    >>> Topic("bids", schema="auction long, price double, ts timestamp").name
    'bids'
    """

    name: str
    schema: str | os.PathLike[str] | Schema | None = None
    format: Literal["json", "avro", "protobuf", "csv", "text", "bytes"] = "json"
    key: str | tuple[str, ...] | list[str] | None = None
    framing: str | None = field(default=None, kw_only=True)
    _parsed: Schema | None = field(init=False, repr=False, compare=False, default=None)
    _wire: Format | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.match(self.name) or set(self.name) <= {"."}:
            raise InvalidSpec(
                "a topic name needs 1 to 249 letters, digits, dots, dashes or underscores",
                got=repr(self.name),
            )
        found = framed_format(self.format, self.schema, self.framing)
        if found is None:
            object.__setattr__(self, "_parsed", columns_of(self.format, self.schema))
        else:
            object.__setattr__(self, "_wire", found[0])
            object.__setattr__(self, "_parsed", found[1])
        if isinstance(self.key, list):
            object.__setattr__(self, "key", tuple(self.key))

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The columns of the record key, if given."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key) if self.key else None

    def row_schema(self) -> Schema:
        """The columns of its rows; needed only if the topic is a source."""
        if self._parsed is None:
            raise InvalidSpec(
                f"reading the topic {self.name!r} needs a schema",
                got="none",
                do=f'write Topic("{self.name}", schema="id long, at timestamp, …")',
            )
        return self._parsed

    def wire(self) -> Format:
        """The format of its record values."""
        return self._wire if self._wire is not None else format_of(self.format)

    def opener(self) -> Opener:
        """Decodes its record values."""
        from millstream.sources.values import Values

        return Values(self.wire())

    @property
    def log_name(self) -> str:
        """The name that identifies its log in the cluster."""
        return self.name

    def reader(self, opening: SourceOpening) -> Reader:
        """Open the topic in the job's Kafka cluster for one run."""
        from millstream.sources.kafka.reader import TopicReader

        return TopicReader(opening.kafka(), self.name, opening.group, waiting=opening.on_wait,
                           answered=opening.on_answer,
                           patience=opening.patience)  # fmt: skip

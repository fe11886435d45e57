"""Transactions by Kafka's own protocol: the questions that a writing client asks.

For listeners without security, as `wire.py`. Versions are the last ones before lengths
became variable: every broker since 2018 knows them. Only how far a transaction is needs one of
2021.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from millstream.kafka.protocol.flexible import NO_TAGS, Compact, many, text
from millstream.kafka.protocol.wire import Answer, WireError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.kafka.protocol.wire import Connection

_PRODUCE, _FIND, _INIT, _ADD, _ADD_OFFSETS, _END, _OFFSETS = (
    (0, 7), (10, 2), (22, 1), (24, 1), (25, 1), (26, 1), (28, 2),
)  # fmt: skip
_DESCRIBE = (65, 0)
GROUP, TRANSACTION = 0, 1
_ALL_IN_SYNC = -1
_NO_TRANSACTION = struct.pack(">h", -1)


class Identity(NamedTuple):
    """Who writes: a transactional id if there is one, the producer's number, its epoch."""

    name: str | None
    producer: int
    epoch: int

    def packed(self) -> bytes:
        """As every question of a transaction begins."""
        return _text(self.name or "") + struct.pack(">qh", self.producer, self.epoch)


class Mark(NamedTuple):
    """An offset of a group, with a text beside it."""

    group: str
    topic: str
    offset: int
    text: str


def ask_who_coordinates(connection: Connection, kind: int, name: str) -> None:
    """Ask which broker coordinates a group or the transactions of an id."""
    connection.ask(_FIND, _text(name) + struct.pack(">b", kind))


def coordinator(connection: Connection) -> tuple[int, tuple[str, int]]:
    """An error code, and the host and port of the broker."""
    told = Answer(connection.answer())
    _, error = told.numbers("ih")
    told.text()
    told.number("i")
    host = told.text()
    return error, (host, told.number("i"))


def ask_who_i_am(connection: Connection, name: str | None, timeout_ms: int) -> None:
    """Ask for a producer's number; with a transactional id all who had it before are shut out,
    and what they had begun is ended."""
    named = _NO_TRANSACTION if name is None else _text(name)
    connection.ask(_INIT, named + struct.pack(">i", timeout_ms))


def identity(connection: Connection, name: str | None) -> tuple[int, Identity]:
    """An error code, and the number with its epoch."""
    _, error, producer, epoch = Answer(connection.answer()).numbers("ihqh")
    return error, Identity(name, producer, epoch)


def ask_to_add(
    connection: Connection, who: Identity, topic: str, partitions: Sequence[int]
) -> None:
    """Ask to take partitions of a topic into the transaction."""
    listed = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    connection.ask(_ADD, who.packed() + struct.pack(">i", 1) + _text(topic) + listed)


def added(connection: Connection) -> int:
    """The first error code of any partition."""
    told = Answer(connection.answer())
    told.number("i")
    errors = []
    for _ in told.count():
        told.text()
        errors += [told.numbers("ih")[1] for _ in told.count()]
    return next(filter(None, errors), 0)


def ask_to_add_group(connection: Connection, who: Identity, group: str) -> None:
    """Ask to take offsets of a group into the transaction."""
    connection.ask(_ADD_OFFSETS, who.packed() + _text(group))


def ask_to_end(connection: Connection, who: Identity) -> None:
    """Ask to commit."""
    connection.ask(_END, who.packed() + b"\x01")


def ask_how_far(connection: Connection, name: str) -> None:
    """Ask how far the transaction of an id is."""
    connection.ask(_DESCRIBE, NO_TAGS + many([text(name)]) + NO_TAGS)


def how_far(connection: Connection) -> tuple[int, str]:
    """An error code, and the state: `PrepareCommit` until readers can see all of it."""
    told = Compact(connection.answer())
    told.tags()
    told.number("i")
    if len(told.count()) != 1:
        raise WireError("an answer about something else")
    error = told.number("h")
    told.text()
    return error, told.text()


def error_of(connection: Connection) -> int:
    """The error code of an answer that has nothing else to tell."""
    _, error = Answer(connection.answer()).numbers("ih")
    return int(error)


def ask_to_mark(connection: Connection, who: Identity, mark: Mark) -> None:
    """Ask the group's coordinator to write an offset that the transaction makes valid."""
    connection.ask(
        _OFFSETS,
        _text(who.name or "") + _text(mark.group) + struct.pack(">qh", who.producer, who.epoch)
        + struct.pack(">i", 1) + _text(mark.topic) + struct.pack(">iiqi", 1, 0, mark.offset, -1)
        + _text(mark.text),
    )  # fmt: skip


def ask_to_append(
    connection: Connection, who: Identity, topic: str, partition: int, batch: bytes, wait_ms: int
) -> None:
    """Ask a leader to append a record batch to a partition, for all in sync."""
    named = _NO_TRANSACTION if who.name is None else _text(who.name)
    head = struct.pack(">hii", _ALL_IN_SYNC, wait_ms, 1) + _text(topic)
    connection.ask(_PRODUCE, named + head + struct.pack(">iii", 1, partition, len(batch)) + batch)


def appended(connection: Connection) -> int:
    """The first error code of any partition."""
    told = Answer(connection.answer())
    errors = []
    for _ in told.count():
        told.text()
        errors += [told.numbers("ihqqq")[1] for _ in told.count()]
    return next(filter(None, errors), 0)


def _text(text: str) -> bytes:
    plain = text.encode()
    return struct.pack(">h", len(plain)) + plain

"""Changes bytes in the log files of a real broker."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker


def log_file(broker: ThrowAwayBroker, topic: str, partition: int = 0) -> Path:
    """The only segment of a partition."""
    [found] = broker.folder.rglob(f"{topic}-{partition}/*.log")
    return found


def batch_places(data: bytes) -> list[tuple[int, int]]:
    """The file position and base offset of each batch."""
    found, place = [], 0
    while place + 61 <= len(data):
        base, size = struct.unpack_from(">qi", data, place)
        found.append((place, base))
        place += 12 + size
    return found


def flip(
    broker: ThrowAwayBroker, topic: str, *, batch: int, bytes_in: Sequence[int] = (-5,),
    partition: int = 0,
) -> int:  # fmt: skip
    """Change bytes of a batch, counted from its start or end; returns its base offset."""
    path = log_file(broker, topic, partition)
    data = path.read_bytes()
    places = batch_places(data)
    begin, base = places[batch]
    end = places[batch + 1][0] if batch + 1 < len(places) else len(data)
    with path.open("r+b") as file:
        for one in bytes_in:
            at = begin + one if one >= 0 else end + one
            file.seek(at)
            file.write(bytes([data[at] ^ 0x40]))
    return base

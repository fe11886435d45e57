"""Damages record batches in a broker's log files; shares no code with `src`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

HEADER, CRC_AT, ATTRIBUTES_AT, MAGIC_AT, LAST_AT = 61, 17, 21, 16, 23
Harm = Callable[[bytearray], None]


@dataclass
class Stored:
    """One batch of a log file."""

    first: int
    last: int
    raw: bytearray


def stored(file: Path) -> list[Stored]:
    """The batches of a log file."""
    raw, at, found = file.read_bytes(), 0, []
    while at + HEADER <= len(raw):
        first, size = struct.unpack_from(">qi", raw, at)
        if size <= 0:
            break
        (delta,) = struct.unpack_from(">i", raw, at + LAST_AT)
        found.append(Stored(first, first + delta, bytearray(raw[at : at + 12 + size])))
        at += 12 + size
    return found


def log_file(broker: ThrowAwayBroker, topic: str, partition: int = 0) -> Path:
    """The only segment of a partition."""
    [file] = broker.folder.rglob(f"{topic}-{partition}/00000000000000000000.log")
    return file


def rewrite(broker: ThrowAwayBroker, *changes: tuple[Path, Callable[[list[Stored]], None]]) -> None:
    """Change log files while their broker is down."""
    broker.stop()
    for file, change in changes:
        batches = stored(file)
        change(batches)
        file.write_bytes(b"".join(batch.raw for batch in batches))
    broker.start()


def flipped(raw: bytearray) -> None:
    """Flip one bit of the records: the checksum fails."""
    raw[HEADER + 20] ^= 1


def scrambled(raw: bytearray) -> None:
    """Change compressed records so that they cannot be decompressed; the checksum is correct."""
    for at in range(HEADER, HEADER + 10):
        raw[at] ^= 0x5A
    sealed(raw)


def unknown_codec(raw: bytearray) -> None:
    """Set a codec that does not exist."""
    struct.pack_into(">h", raw, ATTRIBUTES_AT, 7)
    sealed(raw)


def other_format(raw: bytearray) -> None:
    """Set a record format that does not exist."""
    raw[MAGIC_AT] = 3
    sealed(raw)


def sealed(raw: bytearray) -> None:
    """Update the checksum of a batch."""
    struct.pack_into(">I", raw, CRC_AT, crc32c(bytes(raw[ATTRIBUTES_AT:])))


def crc32c(raw: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit."""
    crc = 0xFFFFFFFF
    for byte in raw:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

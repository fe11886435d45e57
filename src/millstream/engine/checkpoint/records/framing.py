"""How records lie in a file: one after another, each with a header and a checksum.

    RS<kind> <number> <encoding> <length> <checksum of the body> <name> <checksum of the header>\n
    <body>\n

RS is ASCII's record separator, which no text in JSON contains.

A record that was not written completely can only be the last one. It is recognised by its
checksum and dropped, since nothing may follow from it. A damaged record with whole ones behind it
is another matter: `scan` lists it, or the bytes where it was.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN, PACKED = "plain", "zlib"
_HEADER = re.compile(rb"\x1e([a-z]+) (\d+) (plain|zlib) (\d+) ([0-9a-f]{32}) (\S+) ([0-9a-f]{8})\n")
_LONGEST_HEADER = 2048
_NO_NAME = "-"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a record lies in its file: `body` is the offset of its `length` bytes."""

    kind: str
    number: int
    name: str
    encoding: str
    at: int
    body: int
    length: int
    digest: str

    @property
    def end(self) -> int:
        """The offset after the record."""
        return self.body + self.length + 1

    def moved(self, at: int) -> Entry:
        """The same record at another offset."""
        return replace(self, at=at, body=at + self.body - self.at)

    def decoded(self, stored: bytes) -> bytes | None:
        """The body from its bytes in the file; None if they are not what was written."""
        if digest_of(stored[: self.length]) != self.digest or stored[self.length :] != b"\n":
            return None
        body = stored[: self.length]
        return zlib.decompress(body) if self.encoding == PACKED else body


@dataclass(frozen=True, slots=True)
class Scan:
    """The records of a file from one offset on.

    `end` is the offset after the last whole record; `gaps` are ranges before it that hold no
    readable header.
    """

    entries: list[Entry]
    end: int
    gaps: list[tuple[int, int]]


def digest_of(body: bytes) -> str:
    """The checksum of a body."""
    return hashlib.sha256(body).hexdigest()[:32]


def encoded(
    kind: str, number: int, body: bytes, *, name: str = "", packed: bool = False, at: int = 0
) -> tuple[bytes, Entry]:
    """A record as it is stored, and its entry if it is written at this offset."""
    stored, encoding = (zlib.compress(body, 6), PACKED) if packed else (body, PLAIN)
    digest = digest_of(stored)
    parts = (kind, number, encoding, len(stored), digest, quote(name) or _NO_NAME)
    header = " ".join(map(str, parts)).encode()
    begin = b"\x1e%b %08x\n" % (header, zlib.crc32(header))
    entry = Entry(kind, number, name, encoding, at, at + len(begin), len(stored), digest)
    return b"%b%b\n" % (begin, stored), entry


def unreadable(kind: str, number: int, at: int) -> tuple[bytes, Entry]:
    """A record that says that there was one, which is damaged: reading it fails."""
    whole, entry = encoded(kind, number, b"", at=at)
    wrong = "0" * len(entry.digest)
    header = whole[1 : entry.body - at - 10].replace(entry.digest.encode(), wrong.encode())
    return b"\x1e%b %08x\n\n" % (header, zlib.crc32(header)), replace(entry, digest=wrong)


def scan(data: bytes, start: int = 0, *, complete: bool = False) -> Scan:
    """Find the records of a file whose first `start` bytes are known.

    A damaged record whose header is whole is an entry: reading it fails. A `complete` file was
    whole once: what is not readable at its end is damaged, not torn.
    """
    entries: list[Entry] = []
    gaps: list[tuple[int, int]] = []
    at = start
    while at < len(data):
        entry = _header(data, at)
        if entry is not None and _whole(data, entry):
            entries.append(entry)
            at = entry.end
            continue
        following = _next_whole(data, at + 1 if entry is None else entry.body)
        if following is None and not complete:
            break
        end = len(data) if following is None else following
        if entry is None:
            gaps.append((at, end))
        else:
            entries.append(entry)
        at = end
    return Scan(entries, at, gaps)


def _header(data: bytes, at: int) -> Entry | None:
    found = _HEADER.match(data, at, at + _LONGEST_HEADER)
    if found is None or zlib.crc32(data[at + 1 : found.end(6)]) != int(found[7], 16):
        return None
    name = found[6].decode()
    return Entry(
        kind=found[1].decode(),
        number=int(found[2]),
        name="" if name == _NO_NAME else unquote(name),
        encoding=found[3].decode(),
        at=at,
        body=found.end(),
        length=int(found[4]),
        digest=found[5].decode(),
    )


def _whole(data: bytes, entry: Entry) -> bool:
    stored = data[entry.body : entry.end]
    return digest_of(stored[:-1]) == entry.digest and stored[-1:] == b"\n"


def _next_whole(data: bytes, start: int) -> int | None:
    """The offset of the next whole record; None if there is none."""
    return next((entry.at for entry in _headers(data, start) if _whole(data, entry)), None)


def _headers(data: bytes, start: int) -> Iterator[Entry]:
    for found in _HEADER.finditer(data, start):
        entry = _header(data, found.start())
        if entry is not None:
            yield entry

"""Where the records of CSV text end, one character after the other: RFC 4180, and what is not.

Written from the definition in docs/sources-and-formats.md; imports nothing of Millstream.
"""

from __future__ import annotations


def records(raw: bytes) -> list[bytes]:
    """The records with their ends; one with quotes that do not fit is its first line."""
    found = []
    at = 0
    while at < len(raw):
        end = _record(raw, at)
        if end is None:
            feed = raw.find(b"\n", at)
            end = len(raw) if feed < 0 else feed + 1
        found.append(raw[at:end])
        at = end
    return found


def _record(raw: bytes, at: int) -> int | None:
    """The place after a record whose quotes fit."""
    while True:
        end = _quoted(raw, at + 1) if raw[at : at + 1] == b'"' else _bare(raw, at)
        if end is None:
            return None
        rest = raw[end : end + 2]
        if not rest:
            return end
        if rest[:1] == b"\n":
            return end + 1
        if rest == b"\r\n" or (rest == b"\r" and end + 1 == len(raw)):
            return end + len(rest)
        if rest[:1] != b",":
            return None
        at = end + 1


def _quoted(raw: bytes, at: int) -> int | None:
    """The place after the quote that ends a cell."""
    while at < len(raw):
        if raw[at : at + 2] == b'""':
            at += 2
        elif raw[at : at + 1] == b'"':
            return at + 1
        else:
            at += 1
    return None


def _bare(raw: bytes, at: int) -> int | None:
    """The place after a cell without quotes."""
    while at < len(raw) and raw[at : at + 1] not in (b",", b"\n"):
        if raw[at : at + 1] == b'"':
            return None
        at += 1
    if raw[at - 1 : at + 1] == b"\r\n":
        return at - 1
    return at

"""Writes the records that stay to a new file, compressed, so that it can replace segments.

Nothing else is changed here: until a new segment lists the file, it does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.records.framing import PACKED, encoded, unreadable
from millstream.engine.checkpoint.records.heads import full_of, head_at
from millstream.engine.checkpoint.records.segments import Part, as_bytes
from millstream.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from millstream.engine.checkpoint.records.framing import Entry
    from millstream.engine.checkpoint.records.segments import Segments


class Stays(NamedTuple):
    """A record that stays; with `full`, as a commit that needs no earlier one."""

    kind: str
    number: int
    full: bool = False


class KeptFile(NamedTuple):
    """A file of compacted records, which is on disk."""

    part: Part
    entries: list[Entry]
    full: dict[int, dict[str, Any]]  # of the commits that became full


def write_kept(
    segments: Segments, path: Path, stays: Iterable[Stays], *, despite_damage: bool = False
) -> KeptFile:
    """Write these records to a new file and wait until it is on disk.

    Raises:
        Damaged: one of them cannot be read; with `despite_damage`, a record that cannot be read
            either takes its place.
    """
    entries: list[Entry] = []
    full: dict[int, dict[str, Any]] = {}
    at = 0
    with durable.new_file(path) as file:
        for one in stays:
            try:
                whole, entry = _encoded(segments, one, at, full)
            except Damaged:
                if not despite_damage:
                    raise
                whole, entry = unreadable(one.kind, one.number, at)
            file.write(whole)
            entries.append(entry)
            at = entry.end
    reached("kept records written", 0)
    return KeptFile(Part(path.name, at), entries, full)


def _encoded(
    segments: Segments, stays: Stays, at: int, made_full: dict[int, dict[str, Any]]
) -> tuple[bytes, Entry]:
    kind, number, full = stays
    place = segments.index[kind, number]
    if not full and place.entry is not None and place.entry.encoding == PACKED:
        whole, _ = segments.stored(place.path.name, place.entry)
        return whole, place.entry.moved(at)
    body = segments.read(kind, number)
    if full and body["full"] is None:
        head, _ = head_at(number, lambda batch: segments.read("commit", batch))
        made_full[number] = full_of(head)
        body |= {"full": made_full[number], "sources": {}, "steps": {}}
    return encoded(kind, number, as_bytes(body), packed=True, at=at)

"""Records in a file: a torn last one is dropped, any other damage is found."""

from __future__ import annotations

import random

import pytest

from millstream.engine.checkpoint.records.framing import PACKED, encoded, scan, unreadable

BODIES = (b'{"batch":1,"text":"a\\nb"}', b"{}", b'{"batch":3,"next":{"0":12,"1":30}}')


def file() -> bytes:
    """A file of three records."""
    whole = b""
    for number, body in enumerate(BODIES, 1):
        whole += encoded("commit", number, body, packed=number == 2, at=len(whole))[0]
    return whole


def read(data: bytes) -> list[bytes | None]:
    """The bodies of all records, None for a damaged one."""
    return [entry.decoded(data[entry.body : entry.end]) for entry in scan(data).entries]


def test_records_are_read_as_they_were_written() -> None:
    data = file()
    found = scan(data)

    assert read(data) == list(BODIES)
    assert [(entry.kind, entry.number) for entry in found.entries] == [
        ("commit", 1), ("commit", 2), ("commit", 3)
    ]  # fmt: skip
    assert found.entries[1].encoding == PACKED
    assert (found.end, found.gaps) == (len(data), [])


def test_names_with_spaces_and_lines_are_kept() -> None:
    whole, entry = encoded("state", 7, b"x", name="a b/ü\n-.arrow")

    assert scan(whole).entries == [entry]
    assert entry.name == "a b/ü\n-.arrow"


@pytest.mark.parametrize("tail", [b"", b"\0" * 300, b"\x1e\n", random.Random(3).randbytes(900)])
def test_a_last_record_that_is_cut_at_any_byte_is_dropped(tail: bytes) -> None:
    data = file()
    start = scan(data).entries[2].at
    for cut in range(start, len(data)):
        found = scan(data[:cut] + tail)
        assert [entry.number for entry in found.entries] == [1, 2]
        assert (found.end, found.gaps) == (start, [])


def test_in_a_file_that_was_whole_once_a_cut_record_is_damage() -> None:
    data = file()
    start = scan(data).entries[2].at
    for cut in range(start + 1, len(data)):
        found = scan(data[:cut], complete=True)
        damaged = [entry for entry in found.entries
                   if entry.decoded(data[:cut][entry.body : entry.end]) is None]  # fmt: skip
        assert damaged or found.gaps == [(start, cut)]
        assert found.end == cut


def test_a_change_of_any_bit_before_a_whole_record_is_found() -> None:
    data = file()
    before = scan(data).entries[2].at
    for place in range(before * 8):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        found, bodies = scan(bytes(changed)), read(bytes(changed))
        assert None in bodies or found.gaps, place
        assert bodies[-1] == BODIES[2]
        assert set(bodies) <= {*BODIES, None}


def test_bytes_that_are_lost_before_a_whole_record_are_found() -> None:
    data = file()
    before = scan(data).entries[2].at
    chance = random.Random(1)
    for _ in range(300):
        first = chance.randrange(before)
        cut = data[:first] + data[min(before, first + chance.randrange(1, 40)) :]
        bodies = read(cut)
        assert bodies[-1] == BODIES[2]
        assert None in bodies or scan(cut).gaps or len(bodies) < len(BODIES)
        assert set(bodies) <= {*BODIES, None}


def test_a_record_can_say_that_there_was_one() -> None:
    whole, entry = unreadable("commit", 9, 0)

    assert scan(whole, complete=True).entries == [entry]
    assert entry.decoded(whole[entry.body : entry.end]) is None

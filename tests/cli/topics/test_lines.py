"""All input is checked before anything is sent."""

from __future__ import annotations

import io
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.topics import lines
from millstream.cli.topics.bodies import Format
from millstream.cli.topics.lines import Entry, Lines, Rules, Spool
from millstream.errors import InvalidInput, SetupFailed


def read(raw: bytes, rules: Rules) -> list[Entry]:
    return list(Lines(io.BytesIO(raw), rules))


def test_each_line_is_a_value_as_it_was_written() -> None:
    found = read(b'{"a": 1.10}\r\n[1,2]\n"x"', Rules())
    assert found == [Entry(None, b'{"a": 1.10}'), Entry(None, b"[1,2]"), Entry(None, b'"x"')]


def test_blank_lines_are_not_json_and_are_counted() -> None:
    given_lines = Lines(io.BytesIO(b"1\n\n  \n2\n"), Rules())
    assert [entry.value for entry in given_lines] == [b"1", b"2"]
    assert given_lines.blank == 2


def test_a_blank_line_of_text_is_an_empty_value() -> None:
    assert read(b"a\n\nb\n", Rules(form=Format.text)) == [
        Entry(None, b"a"),
        Entry(None, b""),
        Entry(None, b"b"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"n": 1', "expecting ',' delimiter at character 8"),
        (b"hello", "expecting value at character 1"),
        (b'{"n": NaN}', "NaN is not JSON"),
        (b"\xff", "byte 1 is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{} {}", "extra data at character 4"),
        ("\ufeff1".encode(), "unexpected UTF-8 BOM"),
    ],
)
def test_a_malformed_line_is_named_by_number_value_and_reason(line: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read(b"1\n" + line + b"\n", Rules())
    sentence = str(raised.value)
    assert sentence.startswith("line 2 needs JSON; got '")
    assert reason in sentence
    assert line.decode("ascii", "ignore")[:20] in sentence


def test_the_key_precedes_the_first_separator() -> None:
    rules = Rules(separator=b":")
    assert read(b'ann:{"a":1}\n:2\n', rules) == [Entry(b"ann", b'{"a":1}'), Entry(b"", b"2")]
    with pytest.raises(InvalidInput, match="line 1 needs a key, ':' and a value; got '7'"):
        read(b"7\n", rules)


def test_an_empty_value_is_a_tombstone_if_requested() -> None:
    rules = Rules(separator=b"=", empty_as_null=True)
    assert read(b"ann=\nbob=1\n", rules) == [Entry(b"ann", None), Entry(b"bob", b"1")]


def test_hexadecimal_is_bytes() -> None:
    assert read(b"00ff\n", Rules(form=Format.hex)) == [Entry(None, b"\x00\xff")]
    with pytest.raises(InvalidInput, match="line 1 needs pairs of hexadecimal digits; got '0f0'"):
        read(b"0f0\n", Rules(form=Format.hex))


def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 2**20)
    with pytest.raises(InvalidInput, match="line 1 needs to be at most 1 MB long"):
        read(b"x" * (2**20 + 5), Rules(form=Format.text))


def test_a_malformed_line_can_be_reported_and_the_next_one_read() -> None:
    reported: list[InvalidInput] = []
    given_lines = Lines(io.BytesIO(b"1\noops\n2\n"), Rules(), on_invalid=reported.append)
    assert [entry.value for entry in given_lines] == [b"1", b"2"]
    assert given_lines.invalid == len(reported) == 1


parts = st.none() | st.binary(max_size=20)


@given(st.lists(st.builds(Entry, parts, parts)))
def test_a_spool_can_be_read_repeatedly(given_entries: list[Entry]) -> None:
    with Spool(given_entries) as spool:
        assert spool.count == len(given_entries)
        assert list(spool) == given_entries == list(spool)


def test_a_large_spool_is_stored_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "IN_MEMORY", 1000)
    many = [Entry(str(n).encode(), b"x" * n) for n in range(200)]
    with Spool(many) as spool:
        assert list(spool) == many


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "IN_MEMORY", 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(SetupFailed, match="got File too large; free"):
            Spool(Entry(None, b"x" * 500) for _ in range(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

"""Records as lines: complete for programs, escaped for people."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.topics.bodies import Format, for_people, for_programs, value_alone
from millstream.kafka.records import Record
from millstream.viewing.fields import strict_json

NOON = datetime(2026, 1, 1, 12, 0, 0, 123_000, tzinfo=UTC)


def record(
    value: bytes | None,
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> Record:
    return Record("shop", 2, 41, NOON, key, value, headers)


def test_json_output_has_the_whole_record() -> None:
    line = for_programs(record(b'{"n": 1}', b"ann", (("a", b"1"), ("a", None))), Format.json)
    assert json.loads(line) == {
        "topic": "shop",
        "partition": 2,
        "offset": 41,
        "timestamp": "2026-01-01T12:00:00.123000Z",
        "key": "ann",
        "value": {"n": 1},
        "headers": [{"name": "a", "value": "1"}, {"name": "a", "value": None}],
    }


@pytest.mark.parametrize(
    "raw", [b"1.10", b"1e400", b"123456789012345678901234567890", b'{"a":1,"a":2}', b'"\\u001b"']
)
def test_the_json_of_a_value_is_unchanged(raw: bytes) -> None:
    assert f'"value": {raw.decode()}, ' in for_programs(record(raw), Format.json)


def test_json_over_several_lines_becomes_one() -> None:
    line = for_programs(record(b'{\r\n\t"a":\n1}\n'), Format.json)
    assert "\n" not in line
    assert json.loads(line)["value"] == {"a": 1}


def test_a_value_that_is_not_json_is_marked() -> None:
    found = json.loads(for_programs(record(b"hello"), Format.json))
    assert (found["value"], found["not_json"]) == ("hello", True)
    assert "not_json" not in json.loads(for_programs(record(b"hello"), Format.text))


def test_bytes_that_are_not_text_are_hexadecimal() -> None:
    found = json.loads(for_programs(record(b"\xff\x00", b"\xfe"), Format.json))
    assert (found["key"], found["key_hex"]) == (None, "fe")
    assert (found["value"], found["value_hex"], found["not_json"]) == (None, "ff00", True)
    assert json.loads(for_programs(record(b"\xff\x00"), Format.hex))["value"] == "ff00"


def test_a_tombstone_is_null() -> None:
    assert json.loads(for_programs(record(None), Format.json))["value"] is None
    assert for_people(record(None), Format.json).endswith("  -  (null)")


raws = st.none() | st.binary(max_size=30) | st.text(max_size=20).map(str.encode)


all_headers = st.lists(st.tuples(st.text(max_size=5), raws), max_size=3)


@given(raws, raws, all_headers, st.sampled_from(Format))
def test_any_record_is_one_line_of_json_that_holds_its_bytes(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    form: Format,
) -> None:
    line = for_programs(record(value, key, tuple(headers)), form)
    found = json.loads(line)
    assert not any(ord(character) < 32 for character in line)
    assert _bytes(found, "key") == key
    if form is Format.text:
        assert _bytes(found, "value") == value
    assert [(h["name"], _bytes(h, "value")) for h in found["headers"]] == headers


def _bytes(found: dict[str, str | None], name: str) -> bytes | None:
    if f"{name}_hex" in found:
        return bytes.fromhex(found[f"{name}_hex"] or "")
    text = found[name]
    return None if text is None else text.encode()


@given(raws, raws)
def test_any_record_is_one_escaped_line_for_people(key: bytes | None, value: bytes | None) -> None:
    line = for_people(record(value, key), Format.text)
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in line)


def test_people_see_time_position_key_value_and_headers() -> None:
    line = for_people(record(b'{"n": 1}', b"ann", (("a", b"1"),)), Format.json)
    assert line == '2026-01-01 12:00:00.123  2@41      ann  {"n": 1}  a=1'


def test_values_are_written_to_a_pipe_byte_for_byte() -> None:
    assert value_alone(record(b"\xff\x1b"), Format.text) == b"\xff\x1b"
    assert value_alone(record(b"\xff\x1b"), Format.hex) == b"ff1b"
    assert value_alone(record(None), Format.json) == b""


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "", "[" * 50_000, "{'a': 1}", "1 2"])
def test_only_json_is_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|nested|char"):
        strict_json(text)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_parsed_json_has_the_right_values(value: object) -> None:
    assert strict_json(json.dumps(value)) == value

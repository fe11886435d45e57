"""The key of a record without a value says which row it deletes, in whichever way it is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from millstream.operators.tables.upserts import RecordKeys
from millstream.schema import Schema

COLUMNS = Schema.parse(
    "id long, name string, at timestamp, ok boolean, part struct<a: long, b: string>"
)


def found(keys: list[str], *values: bytes | None) -> tuple[list[Any], list[str]]:
    decoded = RecordKeys.of(COLUMNS, keys).decode(pa.chunked_array([list(values)], pa.binary()))
    rows: list[Any] = [None] * len(values)
    for place, row in zip(decoded.good.tolist(), decoded.table.to_pylist(), strict=True):
        rows[place] = tuple(row.values())
    for place, reason in zip(decoded.bad.tolist(), decoded.reasons, strict=True):
        rows[place] = "bad"
        assert reason.startswith("the record's key: ")
    return rows, decoded.reasons


def test_an_object_has_the_key_columns_alone_or_next_to_its_schema() -> None:
    whole = b'{"schema": {}, "payload": {"id": 3, "name": "c"}}'
    bare = [b'{"id": 1, "name": "a", "more": 2}', b' {"name":"b","id":2}']
    rows, _ = found(["id", "name"], *bare, whole, b'{"id": 4}', b"5", None)

    assert rows == [(1, "a"), (2, "b"), (3, "c"), "bad", "bad", "bad"]


def test_one_column_may_be_the_value_itself() -> None:
    rows, _ = found(["id"], b"1", b" 2 ", b'{"id": 3}', b'"4"', b"five", b"6.5", b"null", b"")

    assert rows == [(1,), (2,), (3,), "bad", "bad", "bad", "bad", "bad"]


def test_a_string_may_be_plain_text() -> None:
    rows, _ = found(
        ["name"], b"plain", b'"quoted"', b'{"name": "inside"}', b"12", "é".encode(), b""
    )

    assert rows == [("plain",), ("quoted",), ("inside",), ("12",), ("é",), ("",)]


def test_text_that_is_not_utf8_is_bad() -> None:
    assert found(["name"], b"\xff")[0] == ["bad"]


def test_a_struct_may_be_the_object_itself() -> None:
    rows, _ = found(["part"], b'{"a": 1, "b": "x"}', b'{"part": {"a": 2, "b": null}}')

    assert rows == [({"a": 1, "b": "x"},), ({"a": 2, "b": None},)]


@pytest.mark.parametrize(("column", "key"), [("at", b"1000"), ("ok", b"true")])
def test_other_types_are_read_as_in_json(column: str, key: bytes) -> None:
    assert found([column], key)[0] != ["bad"]

"""The ends of records in CSV files with line breaks in quotes, however a file is divided."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.oracles.csv_record_oracle import records
from tests.sources.test_files_listing import put, reader

from millstream.formats.csv.format import Csv
from millstream.formats.csv.records import record_ends
from millstream.schema import Schema
from millstream.sources.files import lines
from millstream.sources.files.files import Files
from millstream.sources.files.seen import Seen

if TYPE_CHECKING:
    from pathlib import Path

PARTS = st.sampled_from([
    b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"x", b'"a\nb"', b'"a\r\nb",', b'"a""\n""b"\n', b',"',
    b'x"', b"1,2\n", b'1,"open\n', b"\0", "é\u2028".encode(),
])  # fmt: skip
BODIES = st.lists(PARTS, max_size=14).map(b"".join)


def by_ends(raw: bytes) -> list[bytes]:
    bounds = [0, *record_ends(raw, whole=True).tolist()]
    cut = [raw[a:b] for a, b in pairwise(bounds)]
    return cut + ([raw[bounds[-1] :]] if bounds[-1] < len(raw) else [])


@settings(max_examples=800, deadline=None)
@given(BODIES)
@example(b'a,"x\ny"\nb\n')
@example(b'"a\nb"\r')
@example(b'"a\n')
def test_records_end_as_the_definition_requires(raw: bytes) -> None:
    assert by_ends(raw) == records(raw)


@settings(max_examples=500, deadline=None)
@given(BODIES, BODIES)
def test_the_end_of_a_record_does_not_depend_on_later_bytes(raw: bytes, more: bytes) -> None:
    early = record_ends(raw, whole=False).tolist()
    late = record_ends(raw + more, whole=True).tolist()
    assert early == late[: len(early)]


@settings(max_examples=400, deadline=None)
@given(BODIES, st.integers(1, 9), st.sampled_from([6, 1 << 20]), st.booleans())
def test_csv_rows_are_counted_and_split_as_they_are_read(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, chunk: int, longest: int, mark: bool
) -> None:
    path = tmp_path_factory.mktemp("csv") / "x"
    path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + body)
    begin, size = (3 if mark else 0), len(body) + (3 if mark else 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK", chunk)
        patch.setattr(lines, "LONGEST", longest)
        found = lines.count_quoted(path, begin)

    whole = []
    for (row, at), (until, end) in zip(
        found.marks, [*found.marks[1:], (found.rows, size)], strict=True
    ):
        piece = lines.read(path, at, end, with_ends=True, quoted=True).to_pylist()
        assert len(piece) == until - row
        whole += piece
    assert b"".join(whole) == body
    if longest > len(body):
        assert whole == records(body)


def test_an_open_quote_costs_one_row_and_not_the_rest_of_the_file(tmp_path: Path) -> None:
    body = b'1,a\n2,"open\n3,b\n4,"c\nd"\n5,5" wide\n6,"x"y\n7,e\n'
    put(tmp_path, "a.csv", body, 1)
    made = reader(tmp_path, "csv", "id long, text string")
    assert made.extent().end == {0: 7}
    opened = Files("x", format="csv", schema="id long, text string").opener().open(
        made.table({0: (0, 7)}), Schema.parse("id long, text string"))  # fmt: skip
    assert opened.decoded.table.to_pylist() == [
        {"id": 1, "text": "a"}, {"id": 3, "text": "b"}, {"id": 4, "text": "c\nd"},
        {"id": 7, "text": "e"},
    ]  # fmt: skip
    assert opened.decoded.bad.tolist() == [1, 4, 5]
    originals = made.originals({0: [1, 3]})["value"].to_pylist()
    assert originals == [b'2,"open', b'4,"c\nd"']


def test_the_names_in_a_header_may_contain_line_breaks(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", b'\xef\xbb\xbf"a\nb",id\r\n"x\r\ny",1\r\n', 1)
    schema = "id long, `a\nb` string"
    made = reader(tmp_path, "csv", schema)
    assert made.extent().end == {0: 1}
    opened = Files("x", format="csv", schema=schema).opener().open(
        made.table({0: (0, 1)}), Schema.parse(schema))  # fmt: skip
    assert opened.decoded.table.to_pylist() == [{"id": 1, "a\nb": "x\r\ny"}]


def test_a_file_that_was_noted_by_lines_is_read_by_lines(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", b'1,"a\nb"\n2,c\n', 1)
    made = reader(tmp_path, "csv", "id long, text string")
    made.extent()
    [note] = made._notes.all()
    old = {**note["files"][0], "rows": 3}
    del old["quoted"]
    assert not Seen.of(old).quoted
    made._notes.replace({"files": [old]})
    again = reader(tmp_path, "csv", "id long, text string")
    assert again.extent().end == {0: 3}
    opened = Files("x", format="csv", schema="id long, text string").opener().open(
        again.table({0: (0, 3)}), Schema.parse("id long, text string"))  # fmt: skip
    assert opened.decoded.table.to_pylist() == [{"id": 2, "text": "c"}]
    assert opened.decoded.bad.tolist() == [0, 1]


def test_rows_with_line_breaks_are_read_in_columns() -> None:
    row = b'1,"a\nb","c\r\n,d"\n'
    schema = Schema.parse("id long, a string, b string")
    values = pa.array([row] * 20_000)
    Csv().decode(values, schema)
    began = time.process_time()
    made = Csv().decode(values, schema)
    assert made.table.to_pylist()[:1] == [{"id": 1, "a": "a\nb", "b": "c\r\n,d"}]
    assert (time.process_time() - began) / len(values) < 8e-6


@pytest.mark.parametrize(
    "line", [b'1,"open\n', b'5" wide,x\n', b'"a""\n', b'"""\n', b'""x,"\n', b'1,""\n', b'","\n'],
    ids=repr,
)  # fmt: skip
def test_unbalanced_quotes_take_time_linear_in_the_size_of_the_file(line: bytes) -> None:
    def seconds(size: int) -> float:
        raw = b'"' + line * (size // len(line))
        began = time.process_time()
        record_ends(raw, whole=True)
        return time.process_time() - began

    small = min(seconds(1 << 16) for _ in range(3))
    assert seconds(1 << 20) < 0.2 + small * 16 * 2.2

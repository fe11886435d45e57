"""`Files` as a source, without an engine: counts, pieces, durable notes, compaction."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.keeping import opening

from millstream.errors import DataGone, InvalidSpec
from millstream.formats.csv.records import AmbiguousHeader, header_of
from millstream.schema import Schema
from millstream.sources.files import lines, parquet, seen
from millstream.sources.files.files import Files
from millstream.sources.files.reader import FilesReader, listed

if TYPE_CHECKING:
    from pathlib import Path


def reader(folder: Path, format_: Any = "text", schema: str | None = None) -> FilesReader:
    made = Files(folder / "in", format=format_, schema=schema).reader(opening(folder))
    assert isinstance(made, FilesReader)
    return made


def put(folder: Path, name: str, content: bytes, age: float) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_bytes(content)
    os.utime(folder / "in" / name, (age, age))


def texts(made: FilesReader, a: int, b: int, format_: Any = "text") -> list[Any]:
    files = Files("unused", format=format_, schema=None)
    raw = made.table({0: (a, b)})
    opened = files.opener().open(raw, Schema.parse("value string"))
    assert opened.records["offset"].to_pylist() == list(range(a, b))
    found: list[Any] = opened.decoded.table["value"].to_pylist()
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([b"", b"a", b"\r", b"x\r", b"long line", b"\0"]), max_size=12),
       st.sampled_from([b"\n", b"\r\n"]), st.booleans(), st.booleans(),
       st.integers(1, 9))  # fmt: skip
def test_lines_are_counted_and_split_as_they_are_read(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], end: bytes, last: bool,
    mark: bool, chunk: int,
) -> None:  # fmt: skip
    body = end.join(parts) + (end if last and parts else b"")
    path = tmp_path_factory.mktemp("lines") / "x"
    path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + body)
    begin = 3 if mark else 0
    expected = [line.removesuffix(b"\r") for line in body.split(b"\n")]
    if not body or body.endswith(b"\n"):
        expected.pop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK", chunk)
        found = lines.count(path, begin)

    assert found.rows == len(expected)
    size = path.stat().st_size
    assert lines.read(path, begin, size).to_pylist() == expected
    for (row, at), (until, end_) in zip(found.marks, [*found.marks[1:], (len(expected), size)],
                                        strict=True):  # fmt: skip
        assert lines.read(path, at, end_).to_pylist() == expected[row:until]


def test_a_range_across_files_and_marks_returns_exactly_its_rows(tmp_path: Path) -> None:
    put(tmp_path, "a", b"".join(b"%d\n" % n for n in range(50)), 1)
    put(tmp_path, "b", b"50\n51", 2)
    put(tmp_path, "c", b"".join(b"%d\n" % n for n in range(52, 90)), 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK", 16)
        made = reader(tmp_path)
        assert made.extent().end == {0: 90}
    for a, b in ((0, 90), (0, 1), (7, 8), (49, 53), (50, 52), (89, 90), (13, 61)):
        assert texts(made, a, b) == [str(n) for n in range(a, b)]


def test_the_order_of_files_is_fixed_when_they_are_first_seen(tmp_path: Path) -> None:
    put(tmp_path, "late", b"1\n", 50)
    assert reader(tmp_path).extent().end == {0: 1}
    put(tmp_path, "early", b"2\n", 1)
    for _ in range(2):
        made = reader(tmp_path)
        assert made.extent().end == {0: 2}
        assert texts(made, 0, 2) == ["1", "2"]


def test_many_notes_are_combined_without_files_that_were_read_and_deleted(
    tmp_path: Path,
) -> None:
    (tmp_path / "in").mkdir()
    made = reader(tmp_path)
    for number in range(120):
        put(tmp_path, f"f{number:03d}", b"%d\n" % number, number + 1)
        assert made.extent().end == {0: number + 1}
        if number < 100:
            (tmp_path / "in" / f"f{number:03d}").unlink()
        made.progress({0: number + 1})
    notes = list((tmp_path / "checkpoint" / "sources" / "bids").iterdir())
    assert len(notes) < 40
    again = reader(tmp_path)
    assert again.extent().end == {0: 120}
    assert texts(again, 110, 120) == [str(n) for n in range(110, 120)]
    assert again.extent().first == {0: 100}


def test_single_rows_are_returned_as_in_their_files(tmp_path: Path) -> None:
    put(tmp_path, "a", b"x\ny\r\n", 1)
    made = reader(tmp_path)
    made.extent()
    rows = made.originals({0: [0, 1]}).to_pylist()
    assert [row["value"] for row in rows] == [b"x", b"y"]
    assert [row["headers"][1]["value"] for row in rows] == [b"0", b"1"]


def test_a_compressed_file_is_one_bad_row_with_the_reason(tmp_path: Path) -> None:
    put(tmp_path, "a.gz", b"\x1f\x8b", 1)
    made = reader(tmp_path)
    raw = made.table({0: (0, made.extent().end[0])})
    opened = Files("x", format="text").opener().open(raw, Schema.parse("value string"))
    assert opened.decoded.reasons == ["compressed files (.gz) are not read: decompress it"]


def test_a_file_without_read_permission_is_one_bad_row_and_keeps_its_identity(
    tmp_path: Path,
) -> None:
    put(tmp_path, "a", b"1\n2\n", 1)
    put(tmp_path, "b", b"3\n", 2)

    def refused(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "head_of", refused)
        made = reader(tmp_path)
        assert made.extent().end == {0: 2}
    assert made.extent().end == {0: 2}
    raw = made.table({0: (0, 2)})
    opened = Files("x", format="text").opener().open(raw, Schema.parse("value string"))
    assert opened.decoded.reasons == ["cannot be read: Permission denied"] * 2


@pytest.mark.parametrize(
    ("kind", "values", "wanted", "good"),
    [
        (pa.int32(), [1, None], "long", [1, None]),
        (pa.int64(), [1, 2**40], "int", [1]),
        (pa.float32(), [0.5], "double", [0.5]),
        (pa.decimal128(10, 4), ["1.2500", "1.2345"], "decimal(9,2)", ["1.25"]),
        (pa.dictionary(pa.int8(), pa.string()), ["a"], "string", ["a"]),
        (pa.timestamp("ns"), [1_000, 1_001], "timestamp_ntz", [1]),
        (pa.timestamp("ms"), [5], "timestamp", [5_000]),
        (pa.timestamp("us", "UTC"), [2**62, 7], "timestamp", [7]),
        (pa.list_(pa.int64()), [[1, None]], "array<long>", [[1, None]]),
    ],
    ids=str,
)
def test_parquet_values_fit_exactly_or_are_bad_rows(
    tmp_path: Path, kind: pa.DataType, values: list[Any], wanted: str, good: list[Any]
) -> None:
    from decimal import Decimal

    given_ = [Decimal(v) for v in values] if pa.types.is_decimal(kind) else values
    pq.write_table(pa.table({"x": pa.array(given_, kind)}), tmp_path / "x")
    schema = Schema.parse(f"x {wanted}")
    rows, groups = parquet.count(tmp_path / "x", schema)
    made = parquet.read(tmp_path / "x", groups[0], 0, rows, schema)
    column = made.table["x"]
    plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    shown = (
        [str(value) for value in plain.to_pylist()] if "decimal" in wanted else plain.to_pylist()
    )
    assert shown == good
    assert made.bad.size == len(values) - len(good)
    assert all(reason.startswith(f"x: needs {wanted}; got ") for reason in made.reasons)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [(pa.string(), "long"), (pa.float64(), "long"), (pa.float64(), "float"),
     (pa.int64(), "boolean"), (pa.timestamp("us", "UTC"), "timestamp_ntz"),
     (pa.list_(pa.string()), "array<long>")],
    ids=str,
)  # fmt: skip
def test_a_parquet_file_of_other_types_is_unreadable_as_a_whole(
    tmp_path: Path, kind: pa.DataType, wanted: str
) -> None:
    pq.write_table(pa.table({"x": pa.array([], kind)}), tmp_path / "x")
    with pytest.raises(parquet.Unreadable, match=f"x: needs {wanted}; the file has"):
        parquet.count(tmp_path / "x", Schema.parse(f"x {wanted}"))


def test_missing_columns_are_null_and_extra_columns_are_counted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1, None], pa.int64()), "more": [1, 2]}), tmp_path / "x")
    made = parquet.read(tmp_path / "x", 0, 0, 2, Schema.parse("a long not null, b string"))
    assert made.table.to_pylist() == [{"a": 1, "b": None}]
    assert (made.extra, made.reasons) == (1, ["a: needs long; got null"])
    with pytest.raises(parquet.Unreadable, match="the file has no such column"):
        parquet.count(tmp_path / "x", Schema.parse("c long not null"))


def test_a_first_line_is_a_header_if_it_names_all_columns_and_a_row_if_it_names_none() -> None:
    schema = Schema.parse("a long, b string")
    assert header_of(b"b,more,a", schema) == ("b", "more", "a")
    assert header_of(b"1,x", schema) is None
    assert header_of(b'"', schema) is None
    for line, says in ((b"a,c", "names a and not b"), (b"a,b,a", "names a twice")):
        with pytest.raises(AmbiguousHeader, match=says):
            header_of(line, schema)


def test_files_that_a_sink_has_compacted_are_not_read_again(tmp_path: Path) -> None:
    part, other = "part-0000000001-0-abcdef01.json", "part-0000000040-0-abcdef01.json"
    whole = "part-0000000001-to-0000000032-1.json"
    put(tmp_path, part, b"1\n", 1)
    made = reader(tmp_path)
    assert made.extent().end == {0: 1}
    (tmp_path / "in" / part).unlink()
    put(tmp_path, whole, b"1\n2\n", 2)
    with pytest.raises(
        DataGone, match=r"needs to have other rows than .*part-0000000001-0-abcdef01"
    ):
        made.extent()
    (tmp_path / "checkpoint").rename(tmp_path / "old")
    put(tmp_path, other, b"3\n", 3)
    assert reader(tmp_path).extent().end == {0: 3}


def test_globs_folders_and_single_files_are_found(tmp_path: Path) -> None:
    for name in ("a.json", "b.csv", "deep/c.json", ".d.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = {
        pattern: sorted(path.removeprefix(f"{tmp_path}/") for path, _ in listed(tmp_path / pattern))
        for pattern in ("", "*.json", "**/*.json", "a.json")
    }
    assert found == {"": ["a.json", "b.csv"], "*.json": ["a.json"],
                     "**/*.json": ["a.json", "deep/c.json"], "a.json": ["a.json"]}  # fmt: skip


def test_invalid_files_sources_raise_while_building(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="Files needs a format among parquet, json, csv, text"):
        Files("x", format="xml")  # type: ignore[arg-type]
    with pytest.raises(InvalidSpec, match="reading x needs a schema; got none"):
        Files("x", format="json").row_schema()
    with pytest.raises(InvalidSpec, match="needs a schema, or an existing Parquet file"):
        Files(tmp_path).row_schema()
    pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), tmp_path / "x.parquet")
    assert Files(tmp_path).row_schema() == Schema.parse("a int")
    assert Files("data/bids/*.json", format="text").name == "bids"

"""Files as a source: order, identity, half-written and hostile files, restarts, both lanes."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine.scenes import PLACES, SCHEMA, at, bid, counted, drive_in, out, window

import millstream as ms
from millstream.errors import DataGone, NotFound
from millstream.testing import Drive

if TYPE_CHECKING:
    from pathlib import Path

LANES = PLACES


def put(path: Path, *lines: str | bytes, old: float | None = None) -> None:
    """Write a file of lines atomically; `old` is its modification time."""
    text = b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(text)
    if old is not None:
        os.utime(draft, (old, old))
    draft.rename(path)


def rows_of(folder: Path, format_: Any = "json", schema: str | None = SCHEMA) -> ms.Stream:
    return ms.read(ms.Files(folder, format=format_, schema=schema))


def auctions(drive: Drive) -> list[int]:
    return [row["auction"] for row in drive.rows("out")]


@pytest.mark.parametrize("lane", LANES)
def test_files_are_read_once_by_age_and_name_and_new_ones_later(tmp_path: Path, lane: Any) -> None:
    put(tmp_path / "b.json", json.dumps(bid(1, 2)), json.dumps(bid(1, 3)), old=100)
    put(tmp_path / "a.json", json.dumps(bid(1, 4)), old=100.5)
    put(tmp_path / "c.json", json.dumps(bid(1, 1)), old=100)
    with drive_in(out(rows_of(tmp_path)), lane) as drive:
        assert drive.step().rows == 4
        assert auctions(drive) == [2, 3, 1, 4]
        put(tmp_path / "0.json", json.dumps(bid(1, 9)), old=1)
        drive.step()
        drive.restart()
        drive.step()
        assert auctions(drive) == [9]


def test_hidden_and_temporary_files_and_folders_are_ignored(tmp_path: Path) -> None:
    for name in (".hidden", "_SUCCESS", "x.tmp", "y.part", "z.json~", "e.json.inprogress"):
        (tmp_path / name).write_text("nonsense\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.json").touch()
    with Drive(out(rows_of(tmp_path)), lane="narrow") as drive:
        assert drive.step().rows == 0
        (tmp_path / "empty.json").write_text(json.dumps(bid(1, 5)) + "\n")
        drive.step()
        assert auctions(drive) == [5]


@pytest.mark.parametrize("how", ["grows", "is rewritten"])
def test_a_file_that_changes_after_it_was_listed_stops_the_job_and_is_named(
    tmp_path: Path, how: str
) -> None:
    file = tmp_path / "bids.json"
    put(file, json.dumps(bid(1, 1)), old=100)
    with Drive(out(rows_of(tmp_path)), lane="narrow") as drive:
        drive.step()
        if how == "grows":
            with file.open("a") as more:
                more.write(json.dumps(bid(1, 2)) + "\n")
        else:
            put(file, json.dumps(bid(1, 7)), old=200)
        with pytest.raises(DataGone, match=r"bids.json needs to stay as it was .*; got a file of"):
            drive.step()


def test_a_file_restored_with_the_same_bytes_is_the_same_file(tmp_path: Path) -> None:
    file = tmp_path / "bids.json"
    put(file, json.dumps(bid(1, 1)), old=100)
    with Drive(out(rows_of(tmp_path)), lane="narrow") as drive:
        drive.step()
        held = (tmp_path / ".held").open("w")
        file.unlink()
        put(file, json.dumps(bid(1, 1)), old=100)
        held.close()
        assert drive.step().rows == 0


def test_a_read_file_may_be_deleted_and_an_unread_one_may_not(tmp_path: Path) -> None:
    put(tmp_path / "a.json", json.dumps(bid(1, 1)), old=100)
    with Drive(out(rows_of(tmp_path)), lane="narrow") as drive:
        drive.step()
        (tmp_path / "a.json").unlink()
        put(tmp_path / "b.json", json.dumps(bid(1, 2)), old=200)
        drive.step()
        drive.restart()
        put(tmp_path / "c.json", json.dumps(bid(1, 3)), old=300)
        drive._engine.waiting()
        (tmp_path / "c.json").unlink()
        with pytest.raises(DataGone):
            drive.step()


@pytest.mark.parametrize("lane", LANES)
def test_bad_lines_are_dead_rows_that_name_file_and_row(tmp_path: Path, lane: Any) -> None:
    put(tmp_path / "a.json", json.dumps(bid(1, 1)), b"{", b"\xff\x00", b"", json.dumps(bid(1, 2)))
    with drive_in(out(rows_of(tmp_path)), lane) as drive:
        assert drive.step().dead == 3
        assert auctions(drive) == [1, 2]
        dead = drive.dead()
        assert [row["value"] for row in dead] == [b"{", b"\xff\x00", b""]
        assert [row["offset"] for row in dead] == [1, 2, 3]
        named = {part["key"]: part["value"] for part in dead[1]["headers"]}
        assert named == {
            "millstream.file": str(tmp_path / "a.json").encode(), "millstream.row": b"2",
        }  # fmt: skip


@pytest.mark.parametrize("lane", LANES)
def test_an_unreadable_file_is_one_dead_row_and_the_others_are_read(
    tmp_path: Path, lane: Any
) -> None:
    table = pa.table({"auction": pa.array([1, 2], pa.int64())})
    pq.write_table(table, tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[:-9])
    pq.write_table(pa.table({"auction": ["x"]}), tmp_path / "c.parquet")
    with drive_in(out(rows_of(tmp_path, "parquet", "auction long")), lane) as drive:
        drive.step()
        assert auctions(drive) == [1, 2]
        dead = {row["reason"].split(":")[0]: row for row in drive.dead()}
        assert set(dead) == {"not Parquet", "auction"}
        assert dead["auction"]["reason"] == "auction: needs long; the file has string"
        assert dead["not Parquet"]["value"] == whole[:-9]


@pytest.mark.parametrize("lane", LANES)
def test_every_format_gives_the_same_rows(tmp_path: Path, lane: Any) -> None:
    table = pa.table({
        "auction": pa.array([1, 2, None], pa.int64()), "name": ["a,b", "", None],
        "ts": pa.array([at(1), at(2), at(3)], pa.timestamp("us", "UTC")),
    })  # fmt: skip
    for folder in ("parquet", "json", "csv", "headed"):
        (tmp_path / folder).mkdir()
    pq.write_table(table, tmp_path / "parquet" / "x.parquet", row_group_size=2)
    from millstream.formats.csv.encode import encode as as_csv
    from millstream.formats.json.encode import encode as as_json

    put(tmp_path / "json" / "x.json", *as_json(table).to_pylist())
    put(tmp_path / "csv" / "x.csv", *as_csv(table).to_pylist())
    turned = table.select(["ts", "name", "auction"])
    lines = [line + b"\r" for line in (b"\xef\xbb\xbfts,name,auction", *as_csv(turned).to_pylist())]
    put(tmp_path / "headed" / "x.csv", *lines)
    schema = "auction long, name string, ts timestamp"
    reads = [rows_of(tmp_path / name, {"headed": "csv"}.get(name, name), schema)
             for name in ("parquet", "json", "csv", "headed")]  # fmt: skip
    names = ["parquet", "json", "csv", "headed"]
    with drive_in(out(*reads, names=names), lane) as drive:
        assert drive.step().dead == 0
        for name in names:
            assert drive.rows(name) == table.to_pylist(), name


@pytest.mark.parametrize("lane", LANES)
def test_one_file_over_many_batches_gives_the_panes_of_one_batch(tmp_path: Path, lane: Any) -> None:
    rows = [bid(second / 10, second % 3) for second in range(400)]
    put(tmp_path / "bids.json", *(json.dumps(row) for row in rows))
    source = ms.Files(tmp_path, format="json", schema=SCHEMA)
    topic = ms.Topic("bids", schema=SCHEMA)
    results = []
    for read, batches in ((topic, 1), (source, 1), (source, 4)):
        with drive_in(out(counted(ms.read(read, time="ts"))), lane) as drive:
            if read is topic:
                drive.feed("bids", rows)
            cut_into(drive, batches, 400)
            drive.finish()
            results.append(sorted(drive.rows("out"), key=_place))
    assert results[0] == results[1] == results[2]
    assert results[0][0] == window(0, 0, 34)


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["window_start"], row["auction"]


def cut_into(drive: Drive, batches: int, rows: int) -> None:
    """Read so many rows in so many batches, like a planner that limits bytes."""
    engine = drive._engine
    for batch in range(1, batches + 1):
        engine.ends = {name: {0: rows * batch // batches} for name in engine.typed.stages.reads}
        engine.step(always=True)
    engine.ends = None


def test_a_redone_batch_reads_the_same_rows_although_files_were_added(
    tmp_path: Path,
) -> None:
    put(tmp_path / "b.json", json.dumps(bid(1, 1)), json.dumps(bid(1, 2)), old=100)
    with Drive(out(rows_of(tmp_path)), lane="narrow") as drive:
        whole = drive._engine.checkpoint.prepare
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(drive._engine.checkpoint, "prepare", _power_cut)
            with pytest.raises(OSError, match="power cut"):
                drive.step()
        assert drive._engine.checkpoint.prepare == whole
        put(tmp_path / "a.json", json.dumps(bid(1, 3)), old=1)
        drive.restart()
        assert auctions(drive) == [1, 2]
        drive.step()
        assert auctions(drive) == [3]


def _power_cut(prepared: object) -> None:
    raise OSError("power cut")


def test_a_missing_folder_and_an_ambiguous_header_are_reported(tmp_path: Path) -> None:
    says = r"reading files needs .*nowhere; got no folder .*nowhere"
    with (
        pytest.raises(NotFound, match=says),
        Drive(out(rows_of(tmp_path / "nowhere")), lane="narrow"),
    ):
        pass
    (tmp_path / "file").write_text("")
    for path, says in (("nowhere/*.json", "got no folder .*nowhere;"),
                       ("file/in", "got the file .*file above it")):  # fmt: skip
        with (
            pytest.raises(NotFound, match=says),
            Drive(out(rows_of(tmp_path / path)), lane="narrow"),
        ):
            pass
    (tmp_path / "file").unlink()
    put(tmp_path / "x.csv", "auction,price", "1,2")
    with Drive(out(rows_of(tmp_path, "csv", "auction long, name string")), lane="narrow") as drive:
        drive.step()
        [dead] = drive.dead()
        assert dead["reason"].startswith("the first line names auction and not name")

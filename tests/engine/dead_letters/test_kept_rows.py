"""Rows in files are read completely, even while the job merges files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.sinks.batches import opened, staged

from millstream.engine.dead_letters.kept_rows import KeptRows
from millstream.errors import Damaged
from millstream.sinks.files.files import FilesSink
from millstream.sinks.files.writer import TOGETHER, committed
from millstream.sources.files.files import Files

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.plan.side_outputs import SideOutput
    from millstream.sinks.spec import Writer

EACH = 3


def write(writer: Writer, sink: FilesSink, batch: int) -> None:
    first = batch * EACH
    table = pa.table({"step": ["s"] * EACH, "row": [str(first + n) for n in range(EACH)]})
    writer.write(f"{batch:032x}", batch, [staged(sink, table=table)])


def numbers(kept: KeptRows, first: int = 0) -> list[int]:
    return [int(json.loads(record.value or b"")["row"]) for record in kept.records(first)]


@pytest.fixture
def sink(tmp_path: Path) -> FilesSink:
    return FilesSink(Files(tmp_path / "late", format="json"))


def test_files_merged_while_they_are_read_give_each_row_once(
    sink: FilesSink,
) -> None:
    writer, kept = opened(sink), KeptRows(sink.files, "late")
    for batch in range(TOGETHER - 1):
        write(writer, sink, batch)
    before = committed(kept.folder)
    rows = kept.records()
    found = [next(rows) for _ in range(EACH + 1)]
    write(writer, sink, TOGETHER - 1)
    assert not any(path.exists() for path in before)

    found += rows
    assert [record.offset for record in found] == [*range(TOGETHER * EACH)]
    assert numbers(kept) == [*range(TOGETHER * EACH)]
    assert kept.count() == TOGETHER * EACH
    assert numbers(kept, 50) == [*range(50, TOGETHER * EACH)]
    writer.close()


def test_a_missing_folder_has_no_rows(tmp_path: Path) -> None:
    kept = KeptRows(Files(tmp_path / "nothing", format="json"), "dead")
    assert (numbers(kept), kept.count(), kept.newest()) == ([], 0, None)


@pytest.mark.parametrize("kind", ["dead", "late"])
def test_a_line_that_is_not_json_raises_damaged(sink: FilesSink, kind: SideOutput) -> None:
    writer = opened(sink)
    write(writer, sink, 1)
    [path] = committed(KeptRows(sink.files, kind).folder)
    path.write_text("half a li\n")
    with pytest.raises(Damaged, match="not JSON"):
        list(KeptRows(sink.files, kind).records())
    writer.close()

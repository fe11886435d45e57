"""Bounded sources, run to their end: the batch form gives the results of the stream."""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.scenes import PLACES, SCHEMA, at, bid, counted, drive_in, out

import millstream as ms
from millstream.errors import DataGone, MillstreamError
from millstream.testing import Drive

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [bid(second / 4, second % 5, price=1.5) for second in range(200)]


def panes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["window_start"], row["auction"]))


def test_files_and_memory_run_to_the_end_give_the_results_of_the_topic(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for part in range(3):
        lines = (json.dumps(row) + "\n" for row in ROWS[part::3])
        (tmp_path / "in" / f"{part}.json").write_text("".join(lines))
    with Drive(out(counted(ms.read(ms.Topic("bids", schema=SCHEMA), time="ts", watermark="1 day"))),
               lane="narrow") as drive:  # fmt: skip
        drive.feed("bids", ROWS)
        drive.step()
        drive.finish()
        wanted = panes(drive.rows("out"))
    assert len(wanted) == 25
    sources: dict[str, ms.Files | ms.Memory] = {
        "files": ms.Files(tmp_path / "in", format="json", schema=SCHEMA),
        "memory": ms.Memory(ROWS, schema=SCHEMA),
    }
    for name, source in sources.items():
        kept = ms.Memory("kept")
        stream = counted(ms.read(source, time="ts", watermark="1 day", ahead=None))
        pipeline = ms.Pipeline(name, stream.to(kept))
        pipeline.run(until="finished", checkpoint=tmp_path / name)
        assert panes(kept.rows) == wanted
        pipeline.run(until="finished", checkpoint=tmp_path / name)
        assert len(kept.rows) == 25


def test_existing_objects_are_frozen_only_during_a_run(tmp_path: Path) -> None:
    frozen: list[int] = []
    pipeline = ms.Pipeline("p", ms.read(ms.Memory(ROWS, schema=SCHEMA)).to(ms.Memory("kept")))
    pipeline.run(until="finished", checkpoint=tmp_path / "job",
                 on_batch=lambda facts, lag: frozen.append(gc.get_freeze_count()))  # fmt: skip

    assert min(frozen) > 10_000
    assert gc.get_freeze_count() == 0


def test_a_finished_job_refuses_new_files_and_names_them(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text(json.dumps(bid(1)) + "\n")
    source = ms.Files(tmp_path / "in", format="json", schema=SCHEMA)
    pipeline = ms.Pipeline("files", ms.read(source).to(ms.Memory("kept")))
    pipeline.run(until="finished", checkpoint=tmp_path / "job")
    (tmp_path / "in" / "b.json").write_text(json.dumps(bid(2)) + "\n")
    with pytest.raises(MillstreamError, match="got new records: up to 1 in in"):
        pipeline.run(until="finished", checkpoint=tmp_path / "job")


def test_a_job_refuses_other_rows_in_memory(tmp_path: Path) -> None:
    def pipeline(*auctions: int) -> ms.Pipeline:
        memory = ms.Memory([{"auction": n} for n in auctions])
        return ms.Pipeline("memory", ms.read(memory).to(ms.Memory("kept")))

    pipeline(1, 2).run(until="caught_up", checkpoint=tmp_path / "job")
    pipeline(1, 2).run(until="caught_up", checkpoint=tmp_path / "job")
    with pytest.raises(DataGone, match="another one of that name"):
        pipeline(3).run(until="caught_up", checkpoint=tmp_path / "job")


@pytest.mark.parametrize("lane", PLACES)
def test_rate_gives_the_same_rows_by_the_clock_after_a_restart(lane: Any) -> None:
    with drive_in(out(ms.read(ms.Rate(rows_per_second=5))), lane) as drive:
        drive.clock(at(0))
        assert drive.step().rows == 0
        drive.clock(at(2))
        assert drive.step().rows == 10
        drive.restart()
        drive.clock(at(3))
        drive.step()
        rows = drive.rows("out")
        assert [row["value"] for row in rows] == list(range(15))
        assert rows[7]["at"] == at(1.4)

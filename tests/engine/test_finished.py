"""Running a finished job again: it does nothing, or stops if pipeline or input changed."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.engine.recovery.rewind import rewind
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.api.pipeline import Pipeline
    from millstream.api.stream import Stream

ROWS = [{"page": n % 2, "price": float(n), "ts": f"2026-01-01 00:00:{n:02d}"} for n in range(20)]
SCHEMA = "page long, price double, ts timestamp"
SIZE = "10 seconds"


def views(folder: Path) -> Stream:
    folder.mkdir(exist_ok=True)
    file = folder / "a.json"
    if not file.exists():
        file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    files = ms.Files(str(folder), format="json", schema=SCHEMA)
    return ms.read(files, time="ts", watermark="5 seconds")


def counted(rows: Stream, size: str = SIZE, name: str | None = None) -> Stream:
    windows = rows.by("page").window(ms.tumbling(size))
    return windows.agg(name, n=ms.count(), total=ms.sum("price"))


def counts(tmp_path: Path, sink: Any) -> Pipeline:
    return ms.Pipeline("views", counted(views(tmp_path / "in")).to(sink, name="counts"))


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("*.json"))
            for line in file.read_text().splitlines()]  # fmt: skip


def doubled(frame: Any) -> Any:
    return frame.withColumn("price", frame["price"] * 2)


def tripled(frame: Any) -> Any:
    return frame.withColumn("price", frame["price"] * 3)


tripled.__name__ = tripled.__qualname__ = "doubled"

CHANGES: dict[str, Callable[[Stream, ms.Files], tuple[Any, ...]]] = {
    "a window": lambda rows, out: (counted(rows, "20 seconds").to(out, name="counts"),),
    "an expression": lambda rows, out: (counted(rows.where("price > 3")).to(out, name="counts"),),
    "a new output": lambda rows, out: (
        counted(rows).to(out, name="counts"),
        rows.select("page").to(ms.Memory(), name="pages"),
    ),
    "another sink": lambda rows, out: (
        counted(rows).to(ms.Files(str(out.path) + "-b", format="json"), name="counts"),
    ),
    "a late policy": lambda rows, out: (
        rows.by("page").window(ms.tumbling(SIZE)).late(rest=ms.discard)
        .agg(n=ms.count(), total=ms.sum("price")).to(out, name="counts"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_pipeline_on_a_finished_checkpoint_stops_and_lists_the_options(
    tmp_path: Path, change: str
) -> None:
    out = ms.Files(str(tmp_path / "out"), format="json")
    place = tmp_path / "job"
    counts(tmp_path, out).run(until="finished", checkpoint=place)
    before = read(tmp_path / "out")
    counts(tmp_path, out).run(until="finished", checkpoint=place)  # unchanged: nothing to do

    changed = ms.Pipeline("views", *CHANGES[change](views(tmp_path / "in"), out))
    with pytest.raises(MillstreamError, match="is finished") as stopped:
        changed.run(until="finished", checkpoint=place)
    started = changed.start(checkpoint=place)
    with pytest.raises(MillstreamError, match="is finished"):
        started.wait(60)

    for word in ("another pipeline", "--to start", "--again", "--into", "checkpoint="):
        assert word in str(stopped.value)
    assert read(tmp_path / "out") == before
    assert not (tmp_path / "out-b").exists()


def test_the_change_is_named(tmp_path: Path) -> None:
    counts(tmp_path, ms.Memory()).run(until="finished", checkpoint=tmp_path / "job")
    more = counted(views(tmp_path / "in").where("price > 3")).to(ms.Memory(), name="counts")
    with pytest.raises(MillstreamError, match="where price > 3"):
        ms.Pipeline("views", more).run(until="finished", checkpoint=tmp_path / "job")


@pytest.mark.usefixtures("spark")
def test_a_changed_body_of_a_user_function_changes_the_pipeline(tmp_path: Path) -> None:
    def made(function: Any) -> Pipeline:
        rows = views(tmp_path / "in").transform(function).select("page", "price", "ts")
        return ms.Pipeline("views", rows.to(ms.Memory("out")))

    made(doubled).run(until="finished", checkpoint=tmp_path / "job")
    made(doubled).run(until="finished", checkpoint=tmp_path / "job")
    with pytest.raises(MillstreamError, match="the function doubled"):
        made(tripled).run(until="finished", checkpoint=tmp_path / "job")


def test_after_a_rewind_a_changed_pipeline_processes_everything_again(tmp_path: Path) -> None:
    out, place = ms.Files(str(tmp_path / "out"), format="json"), tmp_path / "job"
    counts(tmp_path, out).run(until="finished", checkpoint=place)
    wider = ms.Pipeline(
        "views", counted(views(tmp_path / "in"), "20 seconds").to(out, name="counts")
    )
    with pytest.raises(MillstreamError, match="is finished"):
        wider.run(until="finished", checkpoint=place)

    rewind(wider, "start", again=True, checkpoint=place)
    wider.run(until="caught_up", checkpoint=place)
    wider.run(until="finished", checkpoint=place)
    assert sorted((row["page"], row["n"]) for row in read(tmp_path / "out")) == [(0, 10), (1, 10)]

    rewind(wider, "start", into="-2", checkpoint=place)
    wider.run(until="finished", checkpoint=place)
    assert sorted((row["page"], row["n"]) for row in read(tmp_path / "out-2")) == [(0, 10), (1, 10)]


def test_a_changed_pipeline_runs_with_a_new_checkpoint_and_new_outputs_or_take_over(
    tmp_path: Path,
) -> None:
    def wider(folder: str) -> Pipeline:
        sink = ms.Files(str(tmp_path / folder), format="json")
        rows = counted(views(tmp_path / "in"), "20 seconds")
        return ms.Pipeline("views", rows.to(sink, name="counts"))

    out = ms.Files(str(tmp_path / "out"), format="json")
    counts(tmp_path, out).run(until="finished", checkpoint=tmp_path / "job")
    wider("new").run(until="finished", checkpoint=tmp_path / "job-2")
    assert len(read(tmp_path / "new")) == 2

    wider("out").run(until="finished", checkpoint=tmp_path / "job-3", take_over=True)
    assert len(read(tmp_path / "out")) == 4 + 2


def test_a_new_file_after_the_finish_stops_the_job_and_a_rewind_reads_it(tmp_path: Path) -> None:
    out, place = ms.Files(str(tmp_path / "out"), format="json"), tmp_path / "job"
    pipeline = counts(tmp_path, out)
    pipeline.run(until="finished", checkpoint=place)
    row = {"page": 7, "price": 1.0, "ts": "2026-01-01 00:00:40"}
    (tmp_path / "in" / "b.json").write_text(json.dumps(row) + "\n")

    with pytest.raises(MillstreamError, match="up to 1 in in") as stopped:
        pipeline.run(until="finished", checkpoint=place)
    assert "--to start" in str(stopped.value)

    rewind(pipeline, "start", again=True, checkpoint=place)
    pipeline.run(until="finished", checkpoint=place)
    assert 7 in {row["page"] for row in read(tmp_path / "out")}


def test_a_file_that_grew_after_the_finish_stops_the_job_and_a_new_checkpoint_reads_it(
    tmp_path: Path,
) -> None:
    pipeline, place = counts(tmp_path, ms.Memory()), tmp_path / "job"
    pipeline.run(until="finished", checkpoint=place)
    with (tmp_path / "in" / "a.json").open("a") as file:
        file.write(json.dumps({"page": 7, "price": 1.0, "ts": "2026-01-01 00:00:01"}) + "\n")

    with pytest.raises(MillstreamError, match="is finished") as stopped:
        pipeline.run(until="finished", checkpoint=place)
    assert "a.json" in str(stopped.value)
    assert "checkpoint=" in str(stopped.value)
    assert "--to start" not in str(stopped.value)  # a rewind needs the unchanged file

    found = ms.Memory()
    counts(tmp_path, found).run(until="finished", checkpoint=tmp_path / "another")
    assert 7 in {row["page"] for row in found.rows}


@pytest.mark.parametrize(
    "rows", [ROWS[:-1], [*ROWS[:-1], {**ROWS[-1], "price": 9.5}], [*ROWS, *ROWS]]
)
def test_changed_rows_in_memory_after_the_finish_stop_the_job(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    def made(given: list[dict[str, Any]]) -> Pipeline:
        stream = ms.read(ms.Memory(given, schema=SCHEMA), time="ts")
        return ms.Pipeline("views", counted(stream).to(ms.Memory()))

    made(ROWS).run(until="finished", checkpoint=tmp_path)
    made(ROWS).run(until="finished", checkpoint=tmp_path)
    with pytest.raises(MillstreamError, match="is finished") as stopped:
        made(rows).run(until="finished", checkpoint=tmp_path)
    assert "checkpoint=" in str(stopped.value)


def test_a_run_with_nothing_to_do_logs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts(tmp_path, ms.Memory()).run(until="finished", checkpoint=tmp_path / "job")
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        counts(tmp_path, ms.Memory()).run(until="finished", checkpoint=tmp_path / "job")
    [record] = caplog.records
    assert "is finished" in record.message
    assert "nothing was done" in record.message


# -- pipelines in memory -------------------------------------------------------------


def in_memory(found: ms.Memory, rows: Any = ROWS, **options: Any) -> Pipeline:
    stream = ms.read(ms.Memory(rows, schema=SCHEMA), time="ts")
    return ms.Pipeline("in-memory", counted(stream).to(found), **options)


@pytest.mark.parametrize("until", ["finished", "caught_up"])
def test_a_pipeline_in_memory_gives_the_same_rows_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    found = ms.Memory()
    pipeline = in_memory(found)
    pipeline.run(until=until)
    first = list(found.rows)
    assert len(first) == (4 if until == "finished" else 2)
    pipeline.run(until=until)
    assert found.rows == first
    again = ms.Memory()
    in_memory(again).run(until=until)
    assert again.rows == first
    changed = ms.Memory()
    in_memory(changed, ROWS[:1]).run(until="finished")
    assert len(changed.rows) == 1
    assert not (tmp_path / "jobs").exists()


def test_a_temporary_checkpoint_is_removed_after_the_run_and_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    folders = []
    job = in_memory(ms.Memory()).start(until="finished")
    folders.append(job.folder)
    job.wait(60)
    failing = in_memory(ms.Memory(), [{**ROWS[0], "ts": "never"}], on_bad="stop")
    job = failing.start(until="finished")
    folders.append(job.folder)
    with pytest.raises(MillstreamError, match="on_bad"):
        job.wait(60)

    assert all(folder.is_relative_to(tmp_path) for folder in folders)
    assert len(set(folders)) == 2
    assert not any(folder.exists() for folder in folders)


def test_a_given_checkpoint_is_kept_for_memory_too(tmp_path: Path) -> None:
    found = ms.Memory()
    in_memory(found).run(until="finished", checkpoint=tmp_path / "job")
    in_memory(found).run(until="finished", checkpoint=tmp_path / "job")
    assert len(found.rows) == 4
    assert (tmp_path / "job" / "segments").is_dir()


def test_memory_into_files_keeps_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    sink = ms.Files(str(tmp_path / "out"), format="json")
    for _ in range(2):
        in_memory(sink).run(until="finished")  # type: ignore[arg-type]
    assert len(read(tmp_path / "out")) == 4
    assert (tmp_path / "jobs" / "in-memory" / "segments").is_dir()


def test_bad_and_late_rows_of_a_temporary_run_are_kept_counted_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    bad = [*ROWS, {"page": "x"}, {**ROWS[0], "ts": None}]
    found = ms.Memory()
    job = in_memory(found, bad).start(until="finished")
    job.wait(60)

    assert (job.dead, job.late) == (2, 0)
    assert len(found.rows) == 4
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "2 bad rows" in record.message
    assert "event time is null" in record.message
    kept = tmp_path / "jobs" / "in-memory" / "last-run" / "dead"
    assert str(kept) in record.message
    assert len(read(kept)) == 2

    in_memory(found).run(until="finished")  # a run without bad rows removes those of the last one
    assert not kept.exists()


def test_bad_rows_of_a_temporary_run_go_to_a_given_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    found, dead = ms.Memory(), ms.Memory()
    for _ in range(2):
        in_memory(found, [*ROWS, {"page": "x"}], dead=dead).run(until="finished")
        assert [json.loads(row["value"]) for row in dead.rows] == [{"page": "x"}]
        assert "page" in dead.rows[0]["reason"]
    assert not (tmp_path / "jobs").exists()


def test_a_cell_gives_the_same_rows_in_another_process(tmp_path: Path) -> None:
    script = tmp_path / "cell.py"
    script.write_text(
        "import millstream as ms\n"
        "found = ms.Memory()\n"
        'rows = ms.read(ms.Memory([{"a": 1}, {"a": 2}]))\n'
        'ms.Pipeline("cell", rows.to(found)).run(until="finished")\n'
        "print([row['a'] for row in found.rows])\n"
    )
    environment = {**os.environ, "MILLSTREAM_HOME": str(tmp_path / "home")}
    for _ in range(2):
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                              check=True, env=environment, timeout=120)  # fmt: skip
        assert done.stdout == "[1, 2]\n"

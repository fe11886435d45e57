"""`millstream run` and `millstream dead` over files: without Kafka, by the installed command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.running import until

from millstream.engine.checkpoint.fault_points import POINTS
from millstream.engine.dead_letters.kept_rows import KeptRows
from millstream.sources.files.files import Files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command

FILE = """import millstream as ms

views = ms.read(
    ms.Files({folder!r}, format="json", schema="page long, ts timestamp"),
    time="ts", watermark="5 seconds",
)
counts = views.by("page").window(ms.tumbling("10 seconds")).agg(n=ms.count())
pipeline = ms.Pipeline("views", counts.to(ms.Files({out!r}, format="json")){more})
"""
GOOD = [{"page": n % 2, "ts": f"2026-01-01 00:00:{n:02d}"} for n in range(30)]
BAD, LATE = {"page": "x", "ts": "2026-01-01 00:00:29"}, {"page": 7, "ts": "2026-01-01 00:00:01"}
FUTURE = {"page": 8, "ts": "2999-01-01 00:00:00"}


def written(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A pipeline over a folder with thirty good rows."""
    written(tmp_path / "in", "a", GOOD)
    return made(tmp_path)


def made(tmp_path: Path, more: str = "") -> str:
    file = tmp_path / "views.py"
    file.write_text(FILE.format(folder=str(tmp_path / "in"), out=str(tmp_path / "out"), more=more))
    return str(file)


def results(tmp_path: Path) -> list[int]:
    return sorted(json.loads(line)["n"] for part in (tmp_path / "out").glob("*.json")
                  for line in part.read_text().splitlines())  # fmt: skip


def real(millstream: Command, *words: str) -> subprocess.CompletedProcess[str]:
    with millstream.process(*words) as process:
        out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(words, process.returncode, out.decode(), err.decode())


def test_a_bad_a_future_and_a_late_row_without_kafka_are_kept_listed_shown_and_dropped(
    offline: Command, file: str, tmp_path: Path
) -> None:
    folder = ["--checkpoint", str(tmp_path / "job")]
    first = real(offline, "run", file, *folder, "--until", "caught-up")
    assert first.returncode == 0, first.stderr
    assert "set aside" not in first.stderr
    none = real(offline, "dead", "list", file, *folder)
    assert none.returncode == 0, none.stderr
    assert "no dead rows" in none.stdout + none.stderr

    written(tmp_path / "in", "b", [BAD, FUTURE, LATE])
    last = real(offline, "run", file, *folder, "--until", "finished")
    assert last.returncode == 0, last.stderr
    assert results(tmp_path) == [5] * 6
    assert "2 bad rows" in last.stderr
    assert f"1 late row in {tmp_path / 'job' / 'late'}" in last.stderr

    for target in (file, "views"):
        rows = offline.ok("dead", "list", target, *folder, "-o", "json").json
        assert [(row["source"], row["waiting"], row["dropped"]) for row in rows] == [
            ("in", 1, 0), ("in", 1, 0)
        ]  # fmt: skip
    shown = offline.ok("dead", "show", file, *folder, "-o", "json").records
    assert [json.loads(row["value"]) for row in shown] == [BAD, FUTURE]
    assert [(row["offset"], row["dead"]) for row in shown] == [(30, "0@0"), (31, "0@1")]
    people = offline.ok("dead", "show", file, *folder, "--reason", "ahead")
    assert "2999" in people.out
    assert "millstream.file" in people.out + people.err

    refused = offline("dead", "retry", file, *folder)
    assert refused.code == 2
    assert "a new file" in refused.err
    assert "dead drop" in refused.err

    assert "1 dead row" in offline.ok("dead", "drop", file, *folder, "--offset", "30").err
    assert "no dead rows" in offline.ok("dead", "drop", file, *folder, "--offset", "30").err
    assert offline.ok("dead", "show", file, *folder).out.count("2999") == 1
    rows = offline.ok("dead", "list", file, *folder, "-o", "json").json
    assert sorted((row["waiting"], row["dropped"]) for row in rows) == [(0, 1), (1, 0)]
    assert len(offline.ok("dead", "show", file, *folder, "--all", "-o", "json").records) == 2


def kill_at(
    point: str, millstream: Command, file: str, folder: list[str], hold: Path, batch: str = "*",
    verb: str = "run",
) -> None:  # fmt: skip
    """Run the file up to a point of the protocol, and kill all its processes there."""
    hold.mkdir()
    (hold / f"{point}@{batch}").touch()
    environment = {**os.environ, **millstream.environment, "MILLSTREAM_HOLD": str(hold)}
    with millstream.process(verb, file, *folder, env=environment,
                            start_new_session=True) as process:  # fmt: skip
        until(lambda: (hold / "held").exists() or process.poll() is not None, point, 60)
        assert process.poll() is None, process.communicate()
        os.killpg(process.pid, signal.SIGKILL)


HELD = [point for point in POINTS if point not in ("in the middle of a run",)]


@pytest.mark.parametrize("point", HELD)
def test_a_kill_at_any_moment_leaves_each_late_and_bad_row_once(
    offline: Command, file: str, tmp_path: Path, point: str
) -> None:
    folder = ["--checkpoint", str(tmp_path / "job"), "--until"]
    assert real(offline, "run", file, *folder, "caught-up").returncode == 0
    written(tmp_path / "in", "b", [BAD, FUTURE, LATE])
    kill_at(point, offline, file, [*folder, "finished"], tmp_path / "hold")

    last = real(offline, "run", file, *folder, "finished")
    assert last.returncode == 0, last.stderr
    assert results(tmp_path) == [5] * 6
    shown = offline.ok("dead", "show", file, "--checkpoint", folder[1], "-o", "json").records
    assert [json.loads(row["value"]) for row in shown] == [BAD, FUTURE]
    late = KeptRows(Files(tmp_path / "job" / "late", format="json"), "late").records()
    assert [json.loads(json.loads(row.value or b"")["row"])["page"] for row in late] == [7]


def test_rows_are_read_from_the_named_folder(offline: Command, file: str, tmp_path: Path) -> None:
    for format_ in ("json", "parquet"):
        out, folder = tmp_path / f"dead-{format_}", ["--checkpoint", str(tmp_path / format_)]
        named = made(tmp_path, f', dead=ms.Files({str(out)!r}, format="{format_}")')
        written(tmp_path / "in", "b", [BAD])
        offline.ok("run", named, *folder, "--until", "caught-up", "--take-over")
        [shown] = offline.ok("dead", "show", named, *folder, "-o", "json").records
        assert json.loads(shown["value"]) == BAD
        offline.ok("dead", "drop", named, *folder)
        assert offline.ok("dead", "list", named, *folder, "-o", "json").json[0]["dropped"] == 1


def test_a_store_of_another_kind_is_named(offline: Command, tmp_path: Path) -> None:
    file = made(tmp_path, f', dead=ms.Sqlite({str(tmp_path / "x.db")!r}, "bad")')
    said = offline("dead", "list", file)
    assert said.code == 2
    assert "Sqlite" in said.err


def test_a_changed_pipeline_on_a_finished_checkpoint_stops_the_command(
    offline: Command, file: str, tmp_path: Path
) -> None:
    folder = ["--checkpoint", str(tmp_path / "job")]
    offline.ok("run", file, *folder, "--until", "finished")
    same = offline.ok("run", file, *folder, "--until", "finished")
    assert "already finished" in same.err
    changed = made(tmp_path, ', on_bad="stop"')
    for more in (["--until", "finished"], []):
        said = offline("run", changed, *folder, *more)
        assert said.code == 1
        assert "another pipeline: bad rows (changed)" in said.err
        assert "--to start" in said.err

    offline.ok("rewind", changed, *folder, "--to", "start", "--again")
    offline.ok("run", changed, *folder, "--until", "finished")
    assert results(tmp_path) == [5] * 6
    offline.ok("run", changed, "--checkpoint", str(tmp_path / "new"), "--take-over", "--until",
               "finished")  # fmt: skip
    assert results(tmp_path) == [5] * 12


def test_a_pipeline_in_memory_needs_no_kafka_and_leaves_no_checkpoint(
    offline: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    file = tmp_path / "memory.py"
    file.write_text(
        "import millstream as ms\n"
        'rows = ms.read(ms.Memory([{"a": 1}, {"a": 2}, {"a": "x"}], schema="a long"))\n'
        'pipeline = ms.Pipeline("in-memory", rows.to(ms.Memory("out")))\n'
    )
    for _ in range(2):
        said = offline.ok("run", str(file), "--until", "finished")
        assert "temporary checkpoint" in said.err
        assert "finished: 3 rows read" in said.err
        assert "1 bad row " in said.err
        for target in (str(file), "in-memory"):
            [row] = offline.ok("dead", "show", target, "-o", "json").records
            assert json.loads(row["value"]) == {"a": "x"}
    assert not list((tmp_path / "home" / "jobs" / "in-memory").glob("segments"))


def test_a_pipeline_that_changes_during_its_last_batch_stops_after_it(
    offline: Command, file: str, tmp_path: Path
) -> None:
    folder = ["--checkpoint", str(tmp_path / "job"), "--until", "finished"]
    kill_at("after prepared", offline, file, folder, tmp_path / "hold", batch="2")
    said = offline("run", made(tmp_path, ', on_bad="stop"'), *folder)
    assert said.code == 1
    assert "another pipeline" in said.err
    assert results(tmp_path) == [5] * 6  # of the pipeline that had prepared them
    assert "already finished" in offline.ok("run", made(tmp_path), *folder).err


def test_a_killed_rewind_is_completed_for_kept_rows_too(
    offline: Command, file: str, tmp_path: Path
) -> None:
    folder = ["--checkpoint", str(tmp_path / "job")]
    written(tmp_path / "in", "b", [BAD])
    offline.ok("run", file, *folder, "--until", "finished")
    again = [*folder, "--to", "start", "--again"]
    kill_at("after rewind", offline, file, again, tmp_path / "hold", verb="rewind")
    offline.ok("run", file, *folder, "--until", "finished")
    assert results(tmp_path) == [5] * 6
    assert len(offline.ok("dead", "show", file, *folder, "-o", "json").records) == 1

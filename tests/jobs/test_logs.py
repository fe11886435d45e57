"""Logs of jobs: structured, rotated, followed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from millstream.jobs import logs
from millstream.jobs.summaries import Summary
from millstream.metrics.facts import Facts

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_line_is_json_with_the_fixed_keys_first(tmp_path: Path) -> None:
    log = logs.Log(tmp_path / "job.log", pipeline="hot")
    log("batch", rows=3, text="two\nlines", odd=tmp_path)
    log.close()
    [line] = (tmp_path / "job.log").read_text().splitlines()
    entry = json.loads(line)
    assert list(entry)[:4] == ["ts", "level", "event", "pipeline"]
    assert (entry["rows"], entry["text"]) == (3, "two\nlines")


def test_a_log_is_rotated_and_its_last_lines_are_read_across_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LARGEST", 2000)
    log = logs.Log(tmp_path / "job.log")
    for number in range(300):
        log("n", n=number)
    log.close()
    assert len(list(tmp_path.iterdir())) == logs.KEPT + 1
    lines = logs.last_lines(tmp_path / "job.log", 30)
    assert [json.loads(line)["n"] for line in lines] == list(range(270, 300))


def test_a_log_begins_a_new_file_each_day_also_across_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, yesterday = tmp_path / "job.log", "2026-01-01T00:00:00.000000Z"
    path.write_text(json.dumps({"ts": yesterday, "event": "old"}) + "\n")
    log = logs.Log(path)
    log("new")
    log("newer")
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["new", "newer"]
    assert json.loads((tmp_path / "job.log.1").read_text())["event"] == "old"
    monkeypatch.setattr(logs, "OLDEST", 0.0)
    log("next day")
    log.close()
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["next day"]


def test_an_open_file_is_rotated_each_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "output.log"
    path.write_text("first day")
    logs.rotate_open_file(path)
    assert path.read_text() == "first day"
    monkeypatch.setattr(logs, "OLDEST", 0.0)
    logs.rotate_open_file(path)
    assert path.read_text() == ""
    logs.rotate_open_file(path)
    assert (tmp_path / "output.log.1").read_text() == "first day"


def test_an_error_that_repeats_is_written_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.Log(tmp_path / "supervisor.log")
    for _ in range(50):
        log.rarely("lag unknown", "warning", pipeline="hot")
    log.rarely("lag unknown", "warning", pipeline="cold")
    monkeypatch.setattr(logs, "RARELY", 0.0)
    log.rarely("lag unknown", "warning", pipeline="hot")
    log.close()
    found = [json.loads(line) for line in (tmp_path / "supervisor.log").read_text().splitlines()]
    assert [(one["pipeline"], one.get("repeated")) for one in found] == [
        ("hot", None), ("cold", None), ("hot", 49),
    ]  # fmt: skip


def test_the_batches_of_a_minute_are_one_line() -> None:
    now = [0.0]
    summary = Summary(clock=lambda: now[0])
    for batch in range(840):
        summary.add(Facts(batch, 3, 1, 0, "narrow", outputs={"out": 2}, seconds=0.01), lag=5)
    assert summary.take() is None
    now[0] = 60.0
    found = summary.take()
    assert found is not None
    assert (found["batches"], found["rows"], found["late"], found["lag"]) == (840, 2520, 840, 5)
    assert (found["outputs"], found["busy_ms"], found["longest_ms"]) == ({"out": 1680}, 8400, 10)
    now[0] = 200.0
    assert summary.take() is None
    summary.add(Facts(841, 1, 0, 0, "narrow"), lag=0)
    rest = summary.take(now=True)
    assert rest is not None
    assert rest["batches"] == 1


def test_an_open_file_that_grew_too_large_is_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LARGEST", 100)
    path = tmp_path / "output.log"
    with path.open("ab", buffering=0) as stream:
        stream.write(b"x" * 150)
        logs.rotate_open_file(path)
        stream.write(b"after")
    assert path.read_bytes() == b"after"
    assert (tmp_path / "output.log.1").read_bytes() == b"x" * 100


def test_following_continues_after_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("old\n")

    def write_one() -> None:
        with path.open("a") as stream:
            stream.write("one\n")

    def rotate() -> None:
        path.rename(tmp_path / "job.log.1")
        path.write_text("two\n")

    def wait() -> None:
        """One round without a change."""

    meanwhile = iter([write_one, wait, rotate, wait])

    def ended() -> bool:
        step = next(meanwhile, None)
        if step is not None:
            step()
        return step is None

    assert list(logs.follow(path, ended)) == ["one", "two"]

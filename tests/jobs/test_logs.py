"""Logs of jobs: structured, rotated, followed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from millstream.jobs import logs

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

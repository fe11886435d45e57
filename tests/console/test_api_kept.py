"""Late and dead rows of jobs without topics, read over the API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from millstream.cli.job_process import about_run
from millstream.cli.terminal.pipelines import load
from millstream.engine.dead_letters.files import FileDeadLetters
from millstream.engine.dead_letters.kept_rows import KeptRows
from millstream.engine.dead_letters.rows import Selection
from millstream.kafka.settings import Cluster
from millstream.sources.files.files import Files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.console.serving import Served

NAME = "kept-job"
FILE = """import millstream as ms

views = ms.read(ms.Files({folder!r}, format="json", schema="page long, ts timestamp"), time="ts")
counts = views.by("page").window(ms.tumbling("10 seconds")){late}.agg(n=ms.count())
pipeline = ms.Pipeline("kept-job", counts.to(ms.Files({out!r}, format="json")){more})
"""
BAD = 130
LATE = 3


def run(console: Served, folder: Path, late: str = "", more: str = "") -> Path:
    """A job that has read a good row in its first batch; bad and late ones in its second."""
    (folder / "in").mkdir()
    file, checkpoint = folder / "kept.py", folder / "job"
    file.write_text(FILE.format(folder=str(folder / "in"), out=str(folder / "out"), late=late,
                                more=more))  # fmt: skip
    rows = [f"no json {n}" for n in range(BAD)]
    rows += [json.dumps({"page": n, "ts": "2026-01-01 00:00:01"}) for n in range(LATE)]
    for name, some in (("a", [json.dumps({"page": 1, "ts": "2026-01-01 01:00:00"})]), ("b", rows)):
        (folder / "in" / f"{name}.json").write_text("\n".join(some) + "\n")
        load(str(file))[1].run(until="caught_up", checkpoint=checkpoint)
    loaded, pipeline = load(str(file))
    about = about_run(loaded, pipeline, Cluster("127.0.0.1:1"), checkpoint)
    console.add_job(NAME, checkpoint=str(checkpoint), batches=0, about=about)
    return checkpoint


def asked(console: Served, path: str) -> Any:
    answer = console(f"/api/jobs/{NAME}/{path}")
    assert answer.status == 200, answer.body
    return answer.json


def values(page: Any) -> list[str]:
    return [row["record"]["value"]["text"].strip() for row in page["rows"]]


def test_dead_rows_in_files_are_paged_forward_and_back_each_once(
    console: Served, tmp_path: Path
) -> None:
    stack = run(console, tmp_path)
    every = [f"no json {n}" for n in range(BAD)]
    page = asked(console, "dead")
    assert page["topic"] == str(stack / "dead")
    assert values(page) == every[-50:]
    assert (page["later"], page["complete"]) == (None, True)
    back = values(page)
    while page["earlier"]:
        page = asked(console, f"dead?before={page['earlier']}")
        back = values(page) + back
    assert back == every

    page = asked(console, "dead?at=beginning&limit=60")
    forth = values(page)
    while page["later"]:
        page = asked(console, f"dead?from={page['later']}&limit=60")
        forth += values(page)
    assert forth == every
    assert values(asked(console, "dead?at=@128")) == every[128:]
    assert asked(console, "dead?at=-1h&limit=1")["rows"]
    assert all(row["reason"] and row["step"] == "in" for row in page["rows"])


def test_dead_rows_in_files_have_their_state(console: Served, tmp_path: Path) -> None:
    stack = run(console, tmp_path)
    kept = KeptRows(Files(stack / "dead", format="json"), "dead")
    FileDeadLetters(kept).drop(Selection(places=((None, 7),)))
    [row] = asked(console, "dead?state=dropped")["rows"]
    assert row["record"]["value"]["text"].strip() == "no json 6"
    assert len(asked(console, "dead?state=waiting&limit=200")["rows"]) == BAD - 1
    assert asked(console, "dead?reason=nothing")["rows"] == []
    assert asked(console, "dead?reason=nothing")["scanned"] == BAD


def test_late_rows_in_files_have_their_origin(console: Served, tmp_path: Path) -> None:
    stack = run(console, tmp_path)
    page = asked(console, "late")
    folder = str(stack / "late")
    assert (page["topic"], page["topics"], page["other_sinks"]) == (folder, [folder], [])
    assert [row["origin"]["offset"] for row in page["rows"]] == [131, 132, 133]
    assert [json.loads(row["row"]["text"])["page"] for row in page["rows"]] == [0, 1, 2]
    assert asked(console, f"late?topic={folder}&limit=1")["rows"]
    assert console(f"/api/jobs/{NAME}/late?topic=/etc").status == 404
    assert asked(console, "late?step=other")["rows"] == []


def test_rows_of_configured_folders_are_read_and_other_sinks_are_listed(
    console: Served, tmp_path: Path
) -> None:
    late = f".late(rest=ms.Files({str(tmp_path / 'late')!r}))"
    run(console, tmp_path, late, f', dead=ms.Sqlite({str(tmp_path / "x.db")!r}, "bad")')
    page = asked(console, "late")
    assert [row["origin"]["offset"] for row in page["rows"]] == [131, 132, 133]
    assert json.loads(page["rows"][0]["row"]["text"])["page"] == 0
    dead = asked(console, "dead")
    assert (dead["topic"], dead["rows"]) == (None, [])
    [other] = dead["other_sinks"]
    assert "Sqlite" in other


@pytest.mark.parametrize("door", ["late", "dead"])
def test_a_job_without_late_and_dead_rows_has_empty_pages(console: Served, door: str) -> None:
    console.add_job(NAME, about={door: {"topics": [], "files": [["/nowhere/at/all", "json"]],
                                        "other_sinks": [], "marks": "files"}})  # fmt: skip
    assert asked(console, door)["rows"] == []

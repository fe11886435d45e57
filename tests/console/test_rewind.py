"""The process that rewinds a job: one at a time, ended with the console, with bounded output.

tests/jobs/test_rewind.py tests its effect on a job. Here a script replaces it that is slow,
prints too much or fails.
"""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from millstream.console import rewind
from millstream.jobs.registry import JobRegistry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.console.serving import ApiResponse, Served

PATIENCE = 60.0
AGAIN = json.dumps({"to": "start", "again": True}).encode()


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a shell script run where the command would."""

    def use(script: str) -> None:
        file = tmp_path / "stand-in"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o700)
        monkeypatch.setattr(rewind, "sys", SimpleNamespace(executable=str(file)))

    return use


def rewound(console: Served, job: str = "hot") -> ApiResponse:
    return console(f"/api/jobs/{job}/rewind", "POST", body=AGAIN)


def events(console: Served) -> list[str]:
    with JobRegistry(console.folder.registry, read_only=True) as registry:
        return [event.event for event in registry.events("hot")]


def test_a_request_reaches_the_command_as_checked_arguments(
    console: Served, stand_in: Callable[[str], None], tmp_path: Path
) -> None:
    console.add_job()
    stand_in(f'printf "%s\\n" "$@" > {tmp_path / "words"}; echo done >&2')
    for wish in ({"to": "7", "into": "-2"}, {"to": "2026-01-01T12:00", "again": True}):
        console("/api/jobs/hot/rewind", "POST", body=json.dumps(wish).encode())
        words = (tmp_path / "words").read_text().splitlines()
        to, how = (
            ("7", "--into=-2") if "into" in wish else ("2026-01-01T12:00:00.000000Z", "--again")
        )
        assert words == ["-m", "millstream.cli.main", "jobs", "rewind", "--no-wait", f"--to={to}",
                         how, "--", "hot"]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "status"), [(1, 409), (2, 400), (3, 400), (4, 404), (5, 503), (6, 410), (77, 409)]
)
def test_a_refusal_is_passed_on_with_its_kind(
    console: Served, stand_in: Callable[[str], None], code: int, status: int
) -> None:
    console.add_job()
    stand_in(f'echo "looking" >&2; echo "error: rewind needs a commit; got none" >&2; exit {code}')
    answer = rewound(console)
    assert (answer.status, answer.json) == (status, {"error": "rewind needs a commit; got none"})
    assert events(console)[-2:] == ["rewind requested", "rewind failed"]


def test_one_rewind_of_a_job_runs_at_a_time_and_ends_with_the_console(
    console: Served, stand_in: Callable[[str], None]
) -> None:
    console.add_job()
    stand_in("exec sleep 600")
    answers: list[ApiResponse] = []
    first = threading.Thread(target=lambda: answers.append(rewound(console)))
    first.start()
    deadline = time.monotonic() + PATIENCE
    while not any(console.console.rewinds._running.values()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    second = rewound(console)
    assert (second.status, "rewinds of hot" in second.json["error"]) == (409, True)
    console.console.rewinds.end()
    first.join(PATIENCE)
    assert answers[0].json == {"error": "rewind exited with -15"}
    assert rewound(console, "nobody").status == 404


def test_the_output_of_a_command_is_bounded_in_the_response(
    console: Served, stand_in: Callable[[str], None]
) -> None:
    console.add_job()
    stand_in("i=0; while [ $i -lt 3000 ]; do echo 'a line \x1b[31m <b>' >&2; i=$((i+1)); done")
    answer = rewound(console)
    assert answer.status == 200
    assert len(answer.json["messages"]) == 20
    assert "\x1b" not in answer.json["messages"][0]
    assert events(console)[-1] == "rewound"

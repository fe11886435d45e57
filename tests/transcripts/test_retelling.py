"""Transcripts and oracle were written from DESIGN §3 apart from each other; they must agree.

No Spark and no kernel runs here: what is judged is the judges.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.transcripts.playing import Judge
from tests.transcripts.reading import Transcript, transcripts
from tests.transcripts.retelling import NoStory, retell


def has_a_story(transcript: Transcript) -> bool:
    try:
        return transcript.refusal is None and bool(list(retell(transcript)))
    except NoStory:
        return False


ALL = transcripts(sorted(Path(__file__).parent.glob("*.yaml")))
RETOLD = [transcript for transcript in ALL if has_a_story(transcript)]


def test_the_oracle_knows_most_stories() -> None:
    assert len(RETOLD) >= 90


@pytest.mark.parametrize("transcript", RETOLD, ids=lambda one: one.name)
def test_the_oracle_tells_the_same_story(transcript: Transcript) -> None:
    for step, panes, late in retell(transcript):
        judge = Judge(transcript, step)
        seen = late if "discard" not in transcript.outputs["out"] else []
        told = [envelope(transcript, judge, row, windows) for row, windows in seen]
        assert [*judge.rows("panes", step.panes["out"], panes),
                *judge.rows("late rows", step.late, told)] == []  # fmt: skip


def envelope(
    transcript: Transcript, judge: Judge, row: dict[str, Any],
    windows: list[tuple[datetime, datetime]],
) -> dict[str, Any]:  # fmt: skip
    """A late row as Drive shows it; the step is the one the pipeline has."""
    gone = ",".join(judge.window(*window) for window in windows)
    step = transcript.build().outputs[0].input.name  # type: ignore[attr-defined]
    return {**row, "ts": datetime.fromisoformat(row["ts"]), "windows": gone, "step": step}

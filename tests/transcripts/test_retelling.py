"""Transcripts and oracle were written from DESIGN §3 apart from each other; they must agree.

No Spark and no kernel runs here: what is judged is the judges.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.transcripts.playing import Judge
from tests.transcripts.reading import Transcript, transcripts
from tests.transcripts.retelling import NoStory, retell

if TYPE_CHECKING:
    from tests.transcripts.reading import Step


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
        told = [envelope(step, judge, row, windows) for row, windows in seen]
        assert [*judge.rows("panes", step.panes["out"], panes),
                *judge.rows("late rows", step.late, told)] == []  # fmt: skip


def envelope(
    step: Step, judge: Judge, row: dict[str, Any], windows: list[tuple[datetime, datetime]]
) -> dict[str, Any]:
    """A late row as Drive shows it; the name of the step is none of the oracle's business."""
    gone = ",".join(judge.window(*window) for window in windows)
    name = step.late.lines[0].cells.get("step") if step.late and step.late.lines else None
    return {**row, "ts": datetime.fromisoformat(row["ts"]), "windows": gone, "step": name}

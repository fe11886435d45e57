"""Transcripts and oracle were written from DESIGN §3 independently; they must agree.

No Spark and no kernel runs here: this checks the two references against each other.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.transcripts.oracle_replay import Unsupported, replay
from tests.transcripts.playing import Judge
from tests.transcripts.reading import Transcript, transcripts

if TYPE_CHECKING:
    from tests.transcripts.reading import Step


def is_supported(transcript: Transcript) -> bool:
    try:
        return transcript.refusal is None and bool(list(replay(transcript)))
    except Unsupported:
        return False


ALL = transcripts(sorted(Path(__file__).parent.glob("*.yaml")))
REPLAYED = [transcript for transcript in ALL if is_supported(transcript)]


def test_the_oracle_supports_most_transcripts() -> None:
    assert len(REPLAYED) >= 90


@pytest.mark.parametrize("transcript", REPLAYED, ids=lambda one: one.name)
def test_the_oracle_agrees_with_the_transcript(transcript: Transcript) -> None:
    for step, panes, late in replay(transcript):
        judge = Judge(transcript, step)
        seen = late if "discard" not in transcript.outputs["out"] else []
        envelopes = [envelope(step, judge, row, windows) for row, windows in seen]
        assert [*judge.rows("panes", step.panes["out"], panes),
                *judge.rows("late rows", step.late, envelopes)] == []  # fmt: skip


def envelope(
    step: Step, judge: Judge, row: dict[str, Any], windows: list[tuple[datetime, datetime]]
) -> dict[str, Any]:
    """A late row as Drive shows it; the oracle does not know the name of the step."""
    gone = ",".join(judge.window(*window) for window in windows)
    name = step.late.lines[0].cells.get("step") if step.late and step.late.lines else None
    return {**row, "ts": datetime.fromisoformat(row["ts"]), "windows": gone, "step": name}

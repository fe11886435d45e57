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

FILES = ("tumbling", "hopping", "late", "triggers", "panes", "sessions")
ALL = transcripts(
    [file for name in FILES if (file := Path(__file__).with_name(f"{name}.yaml")).exists()]
)
STRANGE = {
    "NaN is the largest number and equal to itself",
    "Decimals are added exactly",
}


@pytest.mark.parametrize("transcript", ALL, ids=lambda one: one.name)
def test_the_oracle_tells_the_same_story(transcript: Transcript) -> None:
    if transcript.title in STRANGE:
        with pytest.raises(NoStory):
            list(retell(transcript))
        return
    for step, panes, late in retell(transcript):
        judge = Judge(transcript, step)
        told = (
            []
            if "discard" in transcript.outputs["out"]
            else [envelope(judge, *one) for one in late]
        )
        assert [*judge.rows("panes", step.panes["out"], panes),
                *judge.rows("late rows", step.late, told)] == []  # fmt: skip


def envelope(
    judge: Judge, row: dict[str, Any], windows: list[tuple[datetime, datetime]]
) -> dict[str, Any]:
    gone = ",".join(judge.window(*window) for window in windows)
    return {**row, "ts": datetime.fromisoformat(row["ts"]), "windows": gone, "step": "tens"}

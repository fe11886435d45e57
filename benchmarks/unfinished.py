"""Rounds of an unfinished row, stored one by one so that it can be continued."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks import report

if TYPE_CHECKING:
    from benchmarks.report import Round


class Unfinished:
    """The rounds measured so far with the same commit and settings; others are discarded."""

    def __init__(self, row: str, settings: dict[str, Any]) -> None:
        self._path = report.RESULTS / "unfinished" / f"{row}.json"
        self._about = {"commit": report.commit(), "settings": settings}
        self._rounds: dict[str, list[Round]] = {}
        if self._path.exists():
            kept = json.loads(self._path.read_text())
            if kept["about"] == json.loads(json.dumps(self._about)):
                self._rounds = kept["rounds"]

    def round(self, engine: str, number: int) -> Round | None:
        """A stored round, if there is one."""
        done = self._rounds.get(engine, [])
        return done[number] if number < len(done) else None

    def add(self, engine: str, figures: Round) -> None:
        """Store a round of an engine."""
        self._rounds.setdefault(engine, []).append(figures)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        text = json.dumps({"about": self._about, "rounds": self._rounds}, default=str)
        draft.write_text(text)
        draft.replace(self._path)

    def end(self) -> None:
        """Mark the row as finished."""
        self._path.unlink(missing_ok=True)

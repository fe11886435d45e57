"""How many records wait in the sources of a run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.engine.engine import Engine
    from millstream.sources.spec import Ranges

_LOOK_SECONDS = 0.5


class Lag:
    """The ends of the sources are read at most twice a second."""

    def __init__(self) -> None:
        self._seen: dict[str, Ranges] = {}
        self._at = 0.0

    def of(self, engine: Engine) -> dict[str, int]:
        """How many records of each source are not read yet."""
        if time.monotonic() - self._at >= _LOOK_SECONDS:
            self._seen, self._at = engine.waiting(), time.monotonic()
        lag = {}
        for name, ranges in self._seen.items():
            known = engine.head.sources[name].next if name in engine.head.sources else {}
            lag[name] = sum(max(0, b - max(a, known.get(p, a))) for p, (a, b) in ranges.items())
        return lag

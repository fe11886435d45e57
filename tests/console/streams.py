"""A reader of server-sent events: fast, slow, or one that has stopped reading."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

    from tests.console.serving import Served

PATIENCE = 60


class Stream:
    """One stream of events as (kind, data)."""

    def __init__(self, console: Served, path: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=PATIENCE)
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {console.token}"})
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()
        assert self._answer.headers["content-type"].startswith("text/event-stream")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def next(self) -> tuple[str, Any] | None:
        """The next event; None at the end of the stream."""
        kind = "message"
        while line := self._answer.readline():
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                return kind, json.loads(line[6:])
        return None

    def until(self, count: int) -> dict[str, Any]:
        """All updates until `count` records were shown, left out or skipped."""
        total: dict[str, Any] = {"records": [], "scanned": 0, "left_out": 0, "skipped": 0}
        deadline = time.monotonic() + PATIENCE
        while len(total["records"]) + total["left_out"] + total["skipped"] < count:
            assert time.monotonic() < deadline, total
            event = self.next()
            assert event is not None
            assert event[0] == "message", event
            total["records"] += event[1]["records"]
            total["later"] = event[1]["later"]
            for name in ("scanned", "left_out", "skipped"):
                total[name] += event[1][name]
        return total

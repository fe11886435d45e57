"""A console on a real port over a stack that is filled by hand: real stores, no Spark."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn

from millstream.console.app import application
from millstream.jobs.book import Book, JobRow
from millstream.jobs.diary import Diary
from millstream.jobs.places import StackPlace, stack_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PLAN = {
    "pipeline": "hot",
    "steps": [
        {"number": 1, "from": [], "step": "read bids", "source": "topic bids, json"},
        {
            "number": 2,
            "from": [1],
            "step": "tumbling(auction)",
            "state": "one row",
            "window": "10 s",
        },
    ],
    "outputs": [{"output": "hot", "from": 2, "to": "topic hot"}],
    "dead": "topic hot.dead",
    "stages": [{"stage": 1, "name": "tumbling(auction)", "path": ["read bids"]}],
}
ABOUT = {"kafka": "127.0.0.1:9092", "version": "abc", "topics": {"bids": "bids"}, "plan": PLAN,
         "lanes": [], "leaving": ["one Kafka transaction per batch"]}  # fmt: skip


def facts(batch: int, rows: int = 100) -> dict[str, Any]:
    """The facts of a batch as a job writes them."""
    return {"batch": batch, "rows": rows, "late": 1, "dead": 2, "extra": 0, "bytes": 100,
            "lane": "short", "seconds": 0.2, "outputs": {"hot": 3}, "read": {"bids": rows},
            "phases": {"plan": 0.01, "run": 0.1, "sinks": 0.05}, "state_rows": 5,
            "state_bytes": 500, "watermarks": {"bids": "2026-01-01T00:00:00+00:00"},
            "steps": {"tumbling(auction)": {"in": rows, "out": 3, "late": 1, "dead": 0,
                                            "seconds": 0.08, "state_rows": 5, "state_bytes": 500,
                                            "watermark": None}}}  # fmt: skip


@dataclass
class Asked:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A console that answers, and the stack it shows."""

    place: StackPlace
    port: int

    @property
    def token(self) -> str:
        return self.place.token()

    @property
    def link(self) -> str:
        """The address with its token, for a browser."""
        return f"http://127.0.0.1:{self.port}/#token={self.token}"

    def __call__(
        self, path: str, method: str = "GET", *, token: str | None = "", **headers: str
    ) -> Asked:
        """Ask; the right token is shown unless another (or None) is given."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host="Host" in sent)
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return Asked(answer.status, {k.lower(): v for k, v in answer.getheaders()},
                         answer.read())  # fmt: skip
        finally:
            connection.close()

    def add_job(self, name: str = "hot", *, checkpoint: str = "nowhere") -> JobRow:
        """A job that has run three batches and stopped."""
        job = JobRow(name=name, application="shop", owner="ann", file="hot.py", pipeline=name,
                     kafka=None, checkpoint=checkpoint, lane=None, submitted=time.time(),
                     since=time.time(), wanted="stopped", state="stopped")  # fmt: skip
        with Book(self.place.book) as book:
            book.add(job)
        self.place.job(name).path.mkdir(parents=True, exist_ok=True)
        diary = Diary(self.place.job(name).facts, "r1", 1)
        diary.about({**ABOUT, "plan": {**PLAN, "pipeline": name}})
        for batch in (1, 2, 3):
            diary.batch(facts(batch))
        diary.beat(time.time(), {"bids": {0: 10}})
        diary.close()
        return job


@contextmanager
def served(home: Path, page: Path | None = None) -> Iterator[Served]:
    """The console over a home, for the length of the block."""
    place = stack_place(home)
    place.make()
    with Book(place.book) as book:
        book.tell("up")
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    app = application(place, port=port, page=page)
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < deadline, "the console did not start"
            time.sleep(0.02)
        yield Served(place, port)
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()

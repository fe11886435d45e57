"""A console on a real port over a stack that tests fill: real stores, no Spark."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.routing import Route

from millstream.console.app import Console, application
from millstream.console.guard.limits import Limits
from millstream.console.server import configured
from millstream.jobs.folders import StackFolder, stack_folder
from millstream.jobs.registry import JobRegistry, JobRow
from millstream.jobs.reports.run_log import RunLog
from millstream.jobs.stack import KAFKA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from starlette.applications import Starlette
    from starlette.types import ASGIApp

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
            "lane": "narrow", "seconds": 0.2, "outputs": {"hot": 3}, "read": {"bids": rows},
            "phases": {"plan": 0.01, "run": 0.1, "sinks": 0.05}, "state_rows": 5,
            "checkpoint": {"files": 70, "bytes": 3000, "free": 10**9, "disk": 10**11},
            "state_bytes": 500, "watermarks": {"bids": "2026-01-01T00:00:00+00:00"},
            "steps": {"tumbling(auction)": {"in": rows, "out": 3, "late": 1, "dead": 0,
                                            "seconds": 0.08, "state_rows": 5, "state_bytes": 500,
                                            "watermark": None}}}  # fmt: skip


@dataclass
class ApiResponse:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A console that answers, and the stack it shows."""

    folder: StackFolder
    port: int
    app: Starlette
    console: Console

    @property
    def token(self) -> str:
        return self.folder.token()

    @property
    def link(self) -> str:
        """The address with its token, for a browser."""
        return f"http://127.0.0.1:{self.port}/#token={self.token}"

    def __call__(
        self, path: str, method: str = "GET", *, token: str | None = "", body: bytes | None = None,
        **headers: str,
    ) -> ApiResponse:  # fmt: skip
        """Send a request, with the right token by default."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            sent = {"Content-Type": "application/json", "Content-Length": str(len(body)), **sent}
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host="Host" in sent)
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return ApiResponse(answer.status, {k.lower(): v for k, v in answer.getheaders()},
                         answer.read())  # fmt: skip
        finally:
            connection.close()

    def routes(self) -> list[tuple[str, str]]:
        """Every route of the application itself, with names such as a job filled in."""
        filled = []
        for route in self.app.routes:
            assert isinstance(route, Route)
            path = re.sub(r"{\w+(:path)?}", "1", route.path.replace("{job}", "hot"))
            filled += [(method, path) for method in route.methods or () if method != "HEAD"]
        assert len(filled) > 25
        return filled

    def add_job(
        self, name: str = "hot", *, checkpoint: str = "nowhere",
        about: dict[str, Any] | None = None, batches: int = 3, places: Sequence[str] = (),
    ) -> JobRow:  # fmt: skip
        """A job that has run `batches` batches and stopped, or one batch in each of `places`: as
        those of earlier versions, which do not name it, in an empty one."""
        job = JobRow(name=name, application="shop", owner="ann", file="hot.py", pipeline=name,
                     kafka=None, checkpoint=checkpoint, lane=None, submitted=time.time(),
                     since=time.time(), wanted="stopped", state="stopped")  # fmt: skip
        with JobRegistry(self.folder.registry) as registry:
            registry.add(job)
        self.folder.job(name).path.mkdir(parents=True, exist_ok=True)
        run_log = RunLog(self.folder.job(name).run_log, "r1", 1)
        run_log.about({**ABOUT, "plan": {**PLAN, "pipeline": name}, **(about or {})})
        for batch, where in enumerate(places or [""] * batches, start=1):
            run_log.batch({**facts(batch), **({"where": where} if where else {})})
        run_log.beat(time.time(), {"bids": {0: 10}})
        run_log.close()
        return job


@contextmanager
def served(
    home: Path,
    page: Path | None = None,
    *,
    limits: Limits | None = None,
    urls: tuple[str, ...] = (),
    kafka: str | None = None,
    port: int = 0,
) -> Iterator[Served]:
    """Serve the console of a home during the block; `kafka` is the stack's cluster.

    With `port` it replaces an earlier console at that port.
    """
    folder, limits = stack_folder(home), limits or Limits()
    folder.make()
    with JobRegistry(folder.registry) as registry:
        registry.add_event("up")
        registry.set(KAFKA, kafka)
    console = Console(folder, limits)
    with listening(port) as (held, at):
        app = application(folder, port=at, page=page, urls=urls, limits=limits, console=console)
        with running(app, limits, held, at):
            yield Served(folder, at, app.app, console)


@contextmanager
def listening(port: int = 0) -> Iterator[tuple[socket.socket, int]]:
    """A listening socket of the loopback, on a free port or the given one."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
        yield held, held.getsockname()[1]


@contextmanager
def running(app: ASGIApp, limits: Limits, held: socket.socket, port: int) -> Iterator[None]:
    """Serve an application as the console is served."""
    server = uvicorn.Server(configured(app, limits, host="127.0.0.1", port=port))
    server.config.timeout_graceful_shutdown = 1
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.run, args=([held],), daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < deadline, "the console did not start"
            time.sleep(0.02)
        yield
    finally:
        server.should_exit = True
        thread.join(30)

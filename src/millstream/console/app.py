"""The application: the API, the metrics, the health checks and the page, behind one guard."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from millstream.console.api.alerts import AlertsApi
from millstream.console.api.history import HistoryApi
from millstream.console.api.jobs import JobsApi
from millstream.console.api.request import in_thread
from millstream.console.api.routes import Endpoint, openapi
from millstream.console.api.topics import TopicsApi
from millstream.console.guard.guard import Guard
from millstream.console.guard.limits import Limits
from millstream.console.live.topics import LiveTopics
from millstream.console.live.updates import LiveUpdates
from millstream.console.metrics import exposition
from millstream.console.page import page_routes
from millstream.console.rewind import Rewinds
from millstream.console.shared import Limiter, ResultCache
from millstream.errors import Unavailable
from millstream.jobs.registry import WITHOUT_PROGRESS
from millstream.jobs.reports.overview import overview

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from starlette.requests import Request

    from millstream.jobs.folders import StackFolder


class Console:
    """The endpoints of one stack."""

    def __init__(self, stack: StackFolder, limits: Limits | None = None) -> None:
        self._stack, self._limits = stack, limits or Limits()
        self._updates, self._live_topics, self._shared = LiveUpdates(), LiveTopics(), ResultCache()
        self.rewinds = Rewinds(stack, self._limits.rewinds)
        scans = Limiter(self._limits.scans)
        self._parts = (
            JobsApi(stack, self._updates, self.rewinds, self._room, self._limits),
            HistoryApi(stack, scans),
            TopicsApi(stack, self._shared, scans, self._live_topics, self._room),
            AlertsApi(stack, self._limits),
        )

    @property
    def readers(self) -> int:
        """How many event streams are open."""
        return self._updates.readers + self._live_topics.readers

    def _room(self) -> None:
        """Raise Unavailable when no more event streams may be opened."""
        if self.readers >= self._limits.readers:
            raise Unavailable("too many event streams are open", got=str(self.readers),
                              do="close some pages")  # fmt: skip

    async def healthz(self, request: Request) -> Response:
        """This process answers."""
        return PlainTextResponse("ok\n")

    async def readyz(self, request: Request) -> Response:
        """The supervisor runs, and so does every job that should."""
        found = await self._shared.ask(overview, None, self._stack)
        jobs = {row["job"]: row["state"] for row in found}
        supervised = await in_thread(self._stack.lock("supervisor").held)
        ready = supervised and WITHOUT_PROGRESS.isdisjoint(jobs.values())
        return JSONResponse({"ready": ready, "supervisor": supervised, "jobs": jobs},
                            200 if ready else 503)  # fmt: skip

    async def metrics(self, request: Request) -> Response:
        """Prometheus' text format."""
        text = await self._shared.ask(exposition, self._stack, self.readers)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def document(self, request: Request) -> Response:
        """This API, as OpenAPI."""
        return JSONResponse(openapi(self.endpoints(), version("millstream")))

    def endpoints(self) -> list[Endpoint]:
        """Every route with its description."""
        return [
            Endpoint("GET", "/healthz", self.healthz, "whether the console responds",
                     gives="text/plain"),
            Endpoint("GET", "/readyz", self.readyz, "whether every job that should run does",
                     also=(503,)),
            Endpoint("GET", "/metrics", self.metrics, "metrics for Prometheus",
                     gives="text/plain"),
            Endpoint("GET", "/api/openapi.json", self.document, "this document"),
            *(endpoint for part in self._parts for endpoint in part.endpoints()),
        ]  # fmt: skip


def application(
    stack: StackFolder,
    *,
    port: int,
    page: Path | None,
    urls: Iterable[str] = (),
    limits: Limits | None = None,
    console: Console | None = None,
) -> Guard:
    """The guarded application on one stack; `page` is the folder with the built page.

    `urls` are its public addresses, besides the loopback.
    """
    limits = limits or Limits()
    console = console or Console(stack, limits)
    routes = [endpoint.route() for endpoint in console.endpoints()]
    app = Starlette(routes=[*routes, *page_routes(page)],
                    exception_handlers={HTTPException: _no_route})  # fmt: skip
    app.router.redirect_slashes = False
    return Guard(app, port=port, token=stack.token(), urls=urls, limits=limits)


async def _no_route(request: Request, error: Exception) -> Response:
    """An unknown path or method."""
    assert isinstance(error, HTTPException)
    sentence = "there is no such route; /api/openapi.json lists the routes and their methods"
    return JSONResponse({"error": sentence}, error.status_code, headers=error.headers)

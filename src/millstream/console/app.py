"""The application: the API, the metrics, the health checks and the page, behind one guard."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from millstream.console.guard import Guard
from millstream.console.metrics import exposition
from millstream.console.page import page_routes
from millstream.console.pulse import Pulse, TooManyReaders
from millstream.console.routes import JOB, Endpoint, Parameter, number, openapi
from millstream.errors import Unavailable
from millstream.jobs.asking import state, state_of_key
from millstream.jobs.book import Book
from millstream.jobs.detail import detail, results
from millstream.jobs.logs import last_lines
from millstream.jobs.overview import overview

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from millstream.jobs.places import StackPlace

_HEALTHY = frozenset({"starting", "running", "catching up", "idle", "stopped"})
_MOST_LINES = 5000


class Console:
    """What the routes do, on one stack."""

    def __init__(self, place: StackPlace) -> None:
        self._place, self._pulse = place, Pulse()

    async def healthz(self, request: Request) -> Response:
        """This process answers."""
        return PlainTextResponse("ok\n")

    async def readyz(self, request: Request) -> Response:
        """The supervisor lives, and every job that should run does."""
        jobs = {row["job"]: row["state"] for row in await _aside(overview, None, self._place)}
        supervised = await _aside(self._place.life("supervisor").held)
        ready = supervised and all(state in _HEALTHY for state in jobs.values())
        return JSONResponse({"ready": ready, "supervisor": supervised, "jobs": jobs},
                            200 if ready else 503)  # fmt: skip

    async def metrics(self, request: Request) -> Response:
        """Prometheus' text format."""
        text = await _aside(exposition, self._place, self._pulse.readers)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def document(self, request: Request) -> Response:
        """This API, as OpenAPI."""
        return JSONResponse(openapi(self.endpoints(), version("millstream")))

    async def jobs(self, request: Request) -> Response:
        """Every job in a few facts."""
        return JSONResponse(await _aside(overview, None, self._place))

    async def job(self, request: Request) -> Response:
        """One job in full."""
        return JSONResponse(await _aside(detail, self._place, request.path_params["job"]))

    async def log(self, request: Request) -> Response:
        """The last lines of a job's log."""
        name, last = request.path_params["job"], number(request, "last", 100, most=_MOST_LINES)
        await _aside(overview, name, self._place)
        lines = await _aside(last_lines, self._place.job(name).log, last)
        return PlainTextResponse("".join(f"{line}\n" for line in lines),
                                 media_type="application/x-ndjson")  # fmt: skip

    async def state(self, request: Request) -> Response:
        """What each step of a job remembers."""
        return JSONResponse(await _aside(state, self._place, request.path_params["job"]))

    async def state_of_key(self, request: Request) -> Response:
        """One key's value, and the batch it is true for."""
        job, step = request.path_params["job"], request.path_params["step"]
        keys = request.query_params.getlist("key")
        return JSONResponse(await _aside(state_of_key, self._place, job, step, keys))

    async def results(self, request: Request) -> Response:
        """A job's charts and live tables."""
        return JSONResponse(await _aside(results, self._place, request.path_params["job"]))

    async def stop(self, request: Request) -> Response:
        """End a job after the batch in hand."""
        return await self._wish(request, lambda book, name: book.want(name, "stopped"))

    async def restart(self, request: Request) -> Response:
        """Start a job anew."""
        return await self._wish(request, lambda book, name: book.want(name, "running", anew=True))

    async def remove(self, request: Request) -> Response:
        """Stop a job and forget it."""
        return await self._wish(request, lambda book, name: book.want(name, "removed"))

    async def _wish(self, request: Request, wish: Callable[[Book, str], Any]) -> Response:
        name = request.path_params["job"]

        def write() -> None:
            with Book(self._place.book) as book:
                wish(book, name)

        await _aside(write)
        return JSONResponse({"job": name, "asked": request.url.path.rpartition("/")[2]}, 202)

    async def watch_jobs(self, request: Request) -> Response:
        """Every job in a few facts, once a second."""
        return self._stream("jobs", lambda: {"jobs": overview(None, self._place)})

    async def watch_job(self, request: Request) -> Response:
        """One job in full with its results, once a second."""
        name = request.path_params["job"]
        await _aside(overview, name, self._place)

        def look() -> dict[str, Any]:
            return {"job": detail(self._place, name), "results": results(self._place, name)}

        return self._stream(f"job {name}", look)

    def _stream(self, name: str, look: Callable[[], Any]) -> Response:
        try:
            self._pulse.refuse_more()
        except TooManyReaders:
            raise Unavailable("the page needs fewer readers", got=f"{self._pulse.readers}",
                              do="close some of them") from None  # fmt: skip
        return StreamingResponse(self._pulse.watch(name, look), media_type="text/event-stream")

    def endpoints(self) -> list[Endpoint]:
        """Every route with its description."""
        last = Parameter("last", "how many lines", "query", "integer", default=100)
        step = Parameter("step", "the step's name, as in the plan")
        key = Parameter("key", "NAME=VALUE for each key column, or the value of the only one",
                        "query", many=True)  # fmt: skip
        events = "text/event-stream"
        return [
            Endpoint("GET", "/healthz", self.healthz, "whether the console answers",
                     gives="text/plain"),
            Endpoint("GET", "/readyz", self.readyz, "whether every job that should run does"),
            Endpoint("GET", "/metrics", self.metrics, "metrics for Prometheus",
                     gives="text/plain"),
            Endpoint("GET", "/api/openapi.json", self.document, "this document"),
            Endpoint("GET", "/api/jobs", self.jobs, "every job in a few facts"),
            Endpoint("GET", "/api/jobs/{job}", self.job, "one job in full", [JOB]),
            Endpoint("DELETE", "/api/jobs/{job}", self.remove, "stop a job and forget it", [JOB],
                     status=202),
            Endpoint("POST", "/api/jobs/{job}/stop", self.stop,
                     "end a job after the batch in hand", [JOB], status=202),
            Endpoint("POST", "/api/jobs/{job}/restart", self.restart, "start a job anew", [JOB],
                     status=202),
            Endpoint("GET", "/api/jobs/{job}/log", self.log, "the last lines of a job's log",
                     [JOB, last], gives="application/x-ndjson"),
            Endpoint("GET", "/api/jobs/{job}/state", self.state,
                     "what each step of a job remembers", [JOB]),
            Endpoint("GET", "/api/jobs/{job}/state/{step:path}", self.state_of_key,
                     "one key's value, and the batch it is true for", [JOB, step, key]),
            Endpoint("GET", "/api/jobs/{job}/results", self.results,
                     "a job's charts and live tables", [JOB]),
            Endpoint("GET", "/api/stream", self.watch_jobs, "every job, once a second",
                     gives=events),
            Endpoint("GET", "/api/jobs/{job}/stream", self.watch_job,
                     "one job and its results, once a second", [JOB], gives=events),
        ]  # fmt: skip


async def _aside(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run what reads files in another thread, so that nobody else waits."""
    return await run_in_threadpool(function, *arguments)


def application(place: StackPlace, *, port: int, page: Path | None) -> ASGIApp:
    """The guarded application on one stack; `page` is the folder with the built page."""
    console = Console(place)
    routes = [endpoint.route() for endpoint in console.endpoints()]
    app = Starlette(routes=[*routes, *page_routes(page)])
    return Guard(app, port=port, token=place.token())

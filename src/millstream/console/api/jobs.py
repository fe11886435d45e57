"""Routes for jobs: their state, once or as a stream, and the actions of `millstream jobs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from millstream.console.api.request import in_thread, json_body, query_int
from millstream.console.api.routes import JOB, Endpoint, Parameter, query_parameter
from millstream.errors import InvalidInput
from millstream.jobs.logs import last_lines
from millstream.jobs.queries import state, state_of_key
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.detail import detail, results
from millstream.jobs.reports.overview import overview
from millstream.viewing.record_json import bound_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from millstream.console.guard.limits import Limits
    from millstream.console.live.updates import LiveUpdates
    from millstream.console.rewind import Rewinds
    from millstream.jobs.folders import StackFolder

_MOST_LINES = 5000
_REWIND = {
    "type": "object",
    "required": ["to"],
    "additionalProperties": False,
    "properties": {
        "to": {"type": "string", "description": "a batch, a time, a time ago (-1h), or start"},
        "into": {
            "type": "string",
            "description": "new outputs: this suffix is added to their names",
        },
        "again": {"type": "boolean", "description": "write to the same outputs"},
    },
}


class JobsApi:
    """The jobs of the stack."""

    def __init__(
        self, stack: StackFolder, updates: LiveUpdates, rewinds: Rewinds, room: Callable[[], None],
        limits: Limits,
    ) -> None:  # fmt: skip
        self._stack, self._updates, self._rewinds = stack, updates, rewinds
        self._room, self._limits = room, limits

    async def jobs(self, request: Request) -> Response:
        """Every job in short."""
        return JSONResponse(await in_thread(overview, None, self._stack))

    async def job(self, request: Request) -> Response:
        """One job in full."""
        return JSONResponse(await in_thread(detail, self._stack, request.path_params["job"]))

    async def log(self, request: Request) -> Response:
        """The last lines of a job's log."""
        name, last = request.path_params["job"], query_int(request, "last", 100, most=_MOST_LINES)
        await in_thread(overview, name, self._stack)
        lines = await in_thread(last_lines, self._stack.job(name).log, last)
        return PlainTextResponse(_last_of(lines, self._limits.log),
                                 media_type="application/x-ndjson")  # fmt: skip

    async def state(self, request: Request) -> Response:
        """The state of each step of a job."""
        return JSONResponse(await in_thread(state, self._stack, request.path_params["job"]))

    async def state_of_key(self, request: Request) -> Response:
        """The state of one key, and the batch it belongs to."""
        job, step = request.path_params["job"], request.path_params["step"]
        keys = request.query_params.getlist("key")
        return JSONResponse(bound_json(await in_thread(state_of_key, self._stack, job, step, keys)))

    async def results(self, request: Request) -> Response:
        """A job's charts and live tables."""
        found = await in_thread(results, self._stack, request.path_params["job"])
        return JSONResponse(bound_json(found))

    async def stop(self, request: Request) -> Response:
        """Stop a job after the current batch."""
        return await self._request(request, lambda registry, name: registry.want(name, "stopped"))

    async def restart(self, request: Request) -> Response:
        """Restart a job."""
        return await self._request(
            request, lambda registry, name: registry.want(name, "running", restart=True)
        )

    async def remove(self, request: Request) -> Response:
        """Stop a job and remove it."""
        return await self._request(request, lambda registry, name: registry.want(name, "removed"))

    async def rewind(self, request: Request) -> Response:
        """Rewind a job to an earlier commit."""
        name = request.path_params["job"]
        wish = await json_body(request, self._limits, to=str, into=str, again=bool)
        if "to" not in wish:
            raise InvalidInput("rewind needs `to`", got="none", do="give a batch, a time or start")
        again = wish.get("again", False)
        messages = await in_thread(
            self._rewinds.rewind, name, wish["to"], wish.get("into"), again=again
        )
        return JSONResponse({"job": name, "messages": messages})

    async def watch_jobs(self, request: Request) -> Response:
        """Every job in short, once a second."""
        return self._stream("jobs", lambda: {"jobs": overview(None, self._stack)})

    async def watch_job(self, request: Request) -> Response:
        """One job in full with its results, once a second."""
        name = request.path_params["job"]
        await in_thread(overview, name, self._stack)

        def look() -> dict[str, Any]:
            return {
                "job": detail(self._stack, name),
                "results": bound_json(results(self._stack, name)),
            }

        return self._stream(f"job {name}", look)

    async def _request(self, request: Request, want: Callable[[JobRegistry, str], Any]) -> Response:
        name = request.path_params["job"]

        def write() -> None:
            with JobRegistry(self._stack.registry) as registry:
                want(registry, name)

        await in_thread(write)
        return JSONResponse({"job": name, "asked": request.url.path.rpartition("/")[2]}, 202)

    def _stream(self, name: str, look: Callable[[], Any]) -> Response:
        self._room()
        return StreamingResponse(self._updates.watch(name, look), media_type="text/event-stream")

    def endpoints(self) -> list[Endpoint]:
        """Every route with its description."""
        last = query_parameter("last", "how many lines", kind="integer", default=100)
        step = Parameter("step", "the step's name, as in the plan")
        key = query_parameter("key", "NAME=VALUE for each key column, or the value of the only one",
                        many=True)  # fmt: skip
        events, unavailable = "text/event-stream", (503,)
        return [
            Endpoint("GET", "/api/jobs", self.jobs, "every job in short"),
            Endpoint("GET", "/api/jobs/{job}", self.job, "one job in full", [JOB]),
            Endpoint("DELETE", "/api/jobs/{job}", self.remove, "stop a job and remove it", [JOB],
                     status=202),
            Endpoint("POST", "/api/jobs/{job}/stop", self.stop,
                     "stop a job after the current batch", [JOB], status=202),
            Endpoint("POST", "/api/jobs/{job}/restart", self.restart, "restart a job", [JOB],
                     status=202),
            Endpoint("POST", "/api/jobs/{job}/rewind", self.rewind,
                     "go back to an earlier commit, by one of `into` and `again`", [JOB],
                     body=_REWIND, also=(408, 409, 410, 503)),
            Endpoint("GET", "/api/jobs/{job}/log", self.log, "the last lines of a job's log",
                     [JOB, last], gives="application/x-ndjson"),
            Endpoint("GET", "/api/jobs/{job}/state", self.state,
                     "the state of each step of a job", [JOB]),
            Endpoint("GET", "/api/jobs/{job}/state/{step:path}", self.state_of_key,
                     "the state of one key, and the batch it belongs to", [JOB, step, key]),
            Endpoint("GET", "/api/jobs/{job}/results", self.results,
                     "a job's charts and live tables", [JOB]),
            Endpoint("GET", "/api/stream", self.watch_jobs, "every job, once a second",
                     gives=events, also=unavailable),
            Endpoint("GET", "/api/jobs/{job}/stream", self.watch_job,
                     "one job and its results, once a second", [JOB], gives=events,
                     also=unavailable),
        ]  # fmt: skip


def _last_of(lines: list[str], most: int) -> str:
    """The last complete lines, within a total number of characters."""
    kept: list[str] = []
    for line in reversed(lines):
        most -= len(line) + 1
        if most < 0:
            break
        kept.append(f"{line}\n")
    return "".join(reversed(kept))

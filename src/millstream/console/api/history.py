"""Routes for a job's history: commits, watermarks, late and dead rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response

from millstream.console.api.paging import PARAMETERS, page_request
from millstream.console.api.request import in_thread, query_int, query_text
from millstream.console.api.routes import JOB, Endpoint, query_parameter
from millstream.jobs.reports.history import commits_of, watermarks_of
from millstream.jobs.reports.late_and_dead import STATES, dead_rows, late_rows
from millstream.jobs.reports.run_log import BATCHES_KEPT

if TYPE_CHECKING:
    from starlette.requests import Request

    from millstream.console.shared import Limiter
    from millstream.jobs.folders import StackFolder

_COMMITS, _MOST_COMMITS, _POINTS = 50, 200, 300
_MOST_BATCH = 10**10


class HistoryApi:
    """The history of jobs."""

    def __init__(self, stack: StackFolder, scans: Limiter) -> None:
        self._stack, self._scans = stack, scans

    async def commits(self, request: Request) -> Response:
        """The last commits of a job."""
        last = query_int(request, "last", _COMMITS, most=_MOST_COMMITS)
        before = query_int(request, "before", 0, most=_MOST_BATCH) or None
        job = request.path_params["job"]
        return JSONResponse(await in_thread(commits_of, self._stack, job, last, before))

    async def watermarks(self, request: Request) -> Response:
        """The watermarks of a job over time."""
        last = query_int(request, "last", _POINTS, most=BATCHES_KEPT)
        job = request.path_params["job"]
        return JSONResponse(await in_thread(watermarks_of, self._stack, job, last))

    async def late(self, request: Request) -> Response:
        """A page of late rows."""
        job, page = request.path_params["job"], page_request(request)
        topic, step = query_text(request, "topic"), query_text(request, "step")
        found = await self._scans.ask(late_rows, self._stack, job, page, topic=topic, step=step)
        return JSONResponse(found)

    async def dead(self, request: Request) -> Response:
        """A page of dead rows: those that could not be processed."""
        from millstream.engine.dead_letters.rows import Selection

        job, page = request.path_params["job"], page_request(request)
        chosen = Selection(
            query_text(request, "reason"),
            query_text(request, "step"),
            query_text(request, "source"),
        )
        state = query_text(request, "state")
        found = await self._scans.ask(
            dead_rows, self._stack, job, page, selection=chosen, state=state
        )
        return JSONResponse(found)

    def endpoints(self) -> list[Endpoint]:
        """Every route with its description."""
        last = query_parameter("last", f"how many, at most {_MOST_COMMITS}", kind="integer",
                         default=_COMMITS)  # fmt: skip
        before = query_parameter("before", "only commits before this batch", kind="integer")
        points = query_parameter("last", "for how many batches", kind="integer", default=_POINTS)
        step = query_parameter("step", "only rows of this step")
        late = [query_parameter("topic", "one of `topics`; by default the first"), step]
        dead = [query_parameter("reason", "only rows whose reason contains this"), step,
                query_parameter("source", "only rows from this source"),
                query_parameter("state", "only rows in this state",
                          words=STATES)]  # fmt: skip
        errors = (410, 503)
        return [
            Endpoint("GET", "/api/jobs/{job}/commits", self.commits, "the last commits of a job",
                     [JOB, last, before]),
            Endpoint("GET", "/api/jobs/{job}/watermarks", self.watermarks,
                     "each source's watermark after each batch", [JOB, points]),
            Endpoint("GET", "/api/jobs/{job}/late", self.late, "late rows",
                     [JOB, *late, *PARAMETERS], also=errors),
            Endpoint("GET", "/api/jobs/{job}/dead", self.dead,
                     "dead rows: those that could not be processed", [JOB, *dead, *PARAMETERS],
                     also=errors),
        ]  # fmt: skip

"""Routes for what a job has been through: commits, watermarks, late and dead rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response

from millstream.console.api.paging import PARAMETERS, page_of
from millstream.console.api.request import aside, number, word
from millstream.console.api.routes import JOB, Endpoint, asked_for
from millstream.jobs.reports.history import commits_of, watermarks_of
from millstream.jobs.reports.late_and_dead import STATES, dead_rows, late_rows
from millstream.jobs.reports.run_log import BATCHES_KEPT

if TYPE_CHECKING:
    from starlette.requests import Request

    from millstream.console.shared import Few
    from millstream.jobs.folders import StackFolder

_COMMITS, _MOST_COMMITS, _POINTS = 50, 200, 300
_MOST_BATCH = 10**10


class PastApi:
    """What jobs have been through."""

    def __init__(self, stack: StackFolder, scans: Few) -> None:
        self._stack, self._scans = stack, scans

    async def commits(self, request: Request) -> Response:
        """The last commits of a job."""
        last = number(request, "last", _COMMITS, most=_MOST_COMMITS)
        before = number(request, "before", 0, most=_MOST_BATCH) or None
        job = request.path_params["job"]
        return JSONResponse(await aside(commits_of, self._stack, job, last, before))

    async def watermarks(self, request: Request) -> Response:
        """How the watermarks of a job went."""
        last = number(request, "last", _POINTS, most=BATCHES_KEPT)
        job = request.path_params["job"]
        return JSONResponse(await aside(watermarks_of, self._stack, job, last))

    async def late(self, request: Request) -> Response:
        """A page of the rows that came too late."""
        job, page = request.path_params["job"], page_of(request)
        topic, step = word(request, "topic"), word(request, "step")
        found = await self._scans.ask(late_rows, self._stack, job, page, topic=topic, step=step)
        return JSONResponse(found)

    async def dead(self, request: Request) -> Response:
        """A page of the rows that no step could take."""
        from millstream.engine.dead_letters.rows import Selection

        job, page = request.path_params["job"], page_of(request)
        chosen = Selection(word(request, "reason"), word(request, "step"), word(request, "source"))
        state = word(request, "state")
        found = await self._scans.ask(
            dead_rows, self._stack, job, page, selection=chosen, state=state
        )
        return JSONResponse(found)

    def endpoints(self) -> list[Endpoint]:
        """Every route with its description."""
        last = asked_for("last", f"how many, at most {_MOST_COMMITS}", kind="integer",
                         default=_COMMITS)  # fmt: skip
        before = asked_for("before", "only those before this batch", kind="integer")
        points = asked_for("last", "of how many batches", kind="integer", default=_POINTS)
        step = asked_for("step", "only those of this step")
        late = [asked_for("topic", "one of `topics`; else the first of them"), step]
        dead = [asked_for("reason", "only where the reason has this"), step,
                asked_for("source", "only those from this source"),
                asked_for("state", "only those that wait, were retried, or dropped",
                          words=STATES)]  # fmt: skip
        away = (410, 503)
        return [
            Endpoint("GET", "/api/jobs/{job}/commits", self.commits, "the last commits of a job",
                     [JOB, last, before]),
            Endpoint("GET", "/api/jobs/{job}/watermarks", self.watermarks,
                     "where each source's watermark was after each batch", [JOB, points]),
            Endpoint("GET", "/api/jobs/{job}/late", self.late, "rows that came too late",
                     [JOB, *late, *PARAMETERS], also=away),
            Endpoint("GET", "/api/jobs/{job}/dead", self.dead, "rows that no step could take",
                     [JOB, *dead, *PARAMETERS], also=away),
        ]  # fmt: skip

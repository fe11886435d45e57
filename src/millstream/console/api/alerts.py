"""Routes for alerts: how they stand, what was told of them, and keeping them quiet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from millstream.console.api.request import aside, body, number, word
from millstream.console.api.routes import JOB, Endpoint, Parameter, asked_for
from millstream.duration import positive_micros
from millstream.errors import InvalidInput
from millstream.jobs.alerts.alerts import alerts, notifications, silence, unsilence
from millstream.jobs.registry import JobRegistry
from millstream.viewing.record_json import bounded

if TYPE_CHECKING:
    from starlette.requests import Request

    from millstream.console.guard.limits import Limits
    from millstream.jobs.folders import StackFolder

_TOLD, _MOST_TOLD = 50, 500
_ALERT = Parameter("alert", "the alert's name")
_SILENCE = {
    "type": "object",
    "required": ["for"],
    "additionalProperties": False,
    "properties": {
        "for": {"type": ["string", "null"], "description": "'1 hour'; null ends the silence"},
        "key": {"type": ["object", "null"], "description": "only this key of it"},
    },
}


class AlertsApi:
    """Alerts of the stack's jobs."""

    def __init__(self, stack: StackFolder, limits: Limits) -> None:
        self._stack, self._limits = stack, limits

    async def alerts(self, request: Request) -> Response:
        """Every alert as it stands."""
        found = await aside(alerts, self._stack, word(request, "job"), word(request, "alert"))
        return JSONResponse(bounded(found))

    async def notifications(self, request: Request) -> Response:
        """What was told of an alert."""
        path, last = request.path_params, number(request, "last", _TOLD, most=_MOST_TOLD)
        found = await aside(notifications, self._stack, path["job"], path["alert"], last)
        return JSONResponse(bounded(found))

    async def silence(self, request: Request) -> Response:
        """Keep an alert quiet for a while, or no longer."""
        path = request.path_params
        wish = await body(request, self._limits, **{"for": str | None, "key": dict | None})
        if "for" not in wish:
            raise InvalidInput("a silence needs `for`", got="none", do="give a duration, or null")
        done = await aside(self._silenced, path["job"], path["alert"], wish["for"], wish.get("key"))
        return JSONResponse(done)

    def _silenced(
        self, job: str, alert: str, length: str | None, key: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Do it, and write it into the job's history."""
        if length is None:
            done, word = unsilence(self._stack, job, alert, key=key), "no longer silent"
        else:
            seconds = positive_micros(length, what="for") / 1e6
            done = silence(self._stack, job, alert, seconds=seconds, key=key)
            word = f"silent until {done['silenced_until']}"
        with JobRegistry(self._stack.registry) as registry:
            registry.add_event("alert", f"{alert}: {word}", job)
        return done

    def endpoints(self) -> list[Endpoint]:
        """Every route with its description."""
        last = asked_for("last", f"how many, at most {_MOST_TOLD}", kind="integer", default=_TOLD)
        chosen = [asked_for("job", "only those of this job"),
                  asked_for("alert", "only the one of this name")]  # fmt: skip
        return [
            Endpoint("GET", "/api/alerts", self.alerts, "every alert as it stands, worst first",
                     chosen, also=(404,)),
            Endpoint("GET", "/api/alerts/{job}/{alert:path}/notifications", self.notifications,
                     "what was told of an alert, newest first", [JOB, _ALERT, last]),
            Endpoint("POST", "/api/alerts/{job}/{alert:path}/silence", self.silence,
                     "keep an alert quiet for a while, or no longer", [JOB, _ALERT],
                     body=_SILENCE, also=(408,)),
        ]  # fmt: skip

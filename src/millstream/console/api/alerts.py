"""Routes for alerts: their states, their notifications, and silencing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from millstream.console.api.request import in_thread, json_body, query_int, query_text
from millstream.console.api.routes import JOB, Endpoint, Parameter, query_parameter
from millstream.duration import positive_micros
from millstream.errors import InvalidInput
from millstream.jobs.alerts.alerts import alerts, notifications, silence, unsilence
from millstream.jobs.registry import JobRegistry
from millstream.viewing.record_json import bound_json

if TYPE_CHECKING:
    from starlette.requests import Request

    from millstream.console.guard.limits import Limits
    from millstream.jobs.folders import StackFolder

_DEFAULT, _MOST = 50, 500
_ALERT = Parameter("alert", "the alert's name")
_SILENCE = {
    "type": "object",
    "required": ["for"],
    "additionalProperties": False,
    "properties": {
        "for": {"type": ["string", "null"], "description": "'1 hour'; null ends the silence"},
        "key": {"type": ["object", "null"], "description": "only this key of the alert"},
    },
}


class AlertsApi:
    """Alerts of the stack's jobs."""

    def __init__(self, stack: StackFolder, limits: Limits) -> None:
        self._stack, self._limits = stack, limits

    async def alerts(self, request: Request) -> Response:
        """Every alert with its state."""
        found = await in_thread(
            alerts, self._stack, query_text(request, "job"), query_text(request, "alert")
        )
        return JSONResponse(bound_json(found))

    async def notifications(self, request: Request) -> Response:
        """The notifications of an alert."""
        path, last = request.path_params, query_int(request, "last", _DEFAULT, most=_MOST)
        found = await in_thread(notifications, self._stack, path["job"], path["alert"], last)
        return JSONResponse(bound_json(found))

    async def silence(self, request: Request) -> Response:
        """Silence an alert for a while, or end the silence."""
        path = request.path_params
        wish = await json_body(request, self._limits, **{"for": str | None, "key": dict | None})
        if "for" not in wish:
            raise InvalidInput("a silence needs `for`", got="none", do="give a duration, or null")
        done = await in_thread(
            self._silenced, path["job"], path["alert"], wish["for"], wish.get("key")
        )
        return JSONResponse(done)

    def _silenced(
        self, job: str, alert: str, length: str | None, key: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Change the silence, and add an event to the job's history."""
        if length is None:
            done, change = unsilence(self._stack, job, alert, key=key), "no longer silenced"
        else:
            seconds = positive_micros(length, what="for") / 1e6
            done = silence(self._stack, job, alert, seconds=seconds, key=key)
            change = f"silenced until {done['silenced_until']}"
        with JobRegistry(self._stack.registry) as registry:
            registry.add_event("alert", f"{alert}: {change}", job)
        return done

    def endpoints(self) -> list[Endpoint]:
        """Every route with its description."""
        last = query_parameter(
            "last", f"how many, at most {_MOST}", kind="integer", default=_DEFAULT
        )
        chosen = [query_parameter("job", "only alerts of this job"),
                  query_parameter("alert", "only the alert of this name")]  # fmt: skip
        return [
            Endpoint("GET", "/api/alerts", self.alerts, "every alert with its state, worst first",
                     chosen, also=(404,)),
            Endpoint("GET", "/api/alerts/{job}/{alert:path}/notifications", self.notifications,
                     "notifications of an alert, newest first", [JOB, _ALERT, last]),
            Endpoint("POST", "/api/alerts/{job}/{alert:path}/silence", self.silence,
                     "silence an alert for a while, or end the silence", [JOB, _ALERT],
                     body=_SILENCE, also=(408,)),
        ]  # fmt: skip

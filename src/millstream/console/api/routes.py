"""Endpoints with their descriptions: one list gives both the routes and the OpenAPI document."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from millstream.console.guard.guard import OPEN
from millstream.errors import (
    AlreadyRunning,
    Damaged,
    DataGone,
    InvalidInput,
    InvalidSpec,
    MillstreamError,
    NotFound,
    Unavailable,
)
from millstream.viewing.escape import shortened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

LOG = logging.getLogger(__name__)
_STATUS: tuple[tuple[type[MillstreamError], int], ...] = (
    (NotFound, 404),
    (InvalidInput, 400),
    (InvalidSpec, 400),
    (Unavailable, 503),
    (AlreadyRunning, 409),
    (DataGone, 410),
    (Damaged, 410),
)
_OTHER_ANSWERS = {
    400: "a wrong parameter or body",
    401: "the token is missing or wrong",
    404: "not found",
    408: "the body arrived too slowly",
    409: "another operation is running",
    410: "gone from the log, or damaged in it",
    413: "the body is too large",
    415: "the body is not application/json",
    429: "too many requests: retry after Retry-After seconds",
    503: "Kafka is unavailable, or too many streams are open",
}


class Refused(Exception):
    """A request that is refused: a status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        self.status, self.sentence = status, sentence
        super().__init__(sentence)


@dataclass(frozen=True)
class Parameter:
    """A parameter of the path or of the query."""

    name: str
    about: str
    location: str = "path"
    kind: str = "string"
    many: bool = False
    default: Any = None
    words: tuple[str, ...] = ()


JOB = Parameter("job", "the job's name")


def query_parameter(name: str, about: str, **more: Any) -> Parameter:
    """A parameter of the query."""
    return Parameter(name, about, "query", **more)


@dataclass(frozen=True)
class Endpoint:
    """One route with its documentation.

    `body` is the JSON schema of the request; `also` are error statuses besides those that follow
    from its parameters.
    """

    method: str
    path: str
    handler: Callable[[Request], Awaitable[Response]]
    summary: str
    parameters: Sequence[Parameter] = field(default=())
    gives: str = "application/json"
    status: int = 200
    body: dict[str, Any] | None = None
    also: tuple[int, ...] = ()

    def route(self) -> Route:
        """The route for Starlette."""
        return Route(self.path, self._handle, methods=[self.method])

    @property
    def documented_path(self) -> str:
        """The path as OpenAPI writes it."""
        return self.path.replace(":path}", "}")

    async def _handle(self, request: Request) -> Response:
        """Answer errors with one sentence and a status; log unexpected ones with a traceback."""
        try:
            self._check_query(request)
            return await self.handler(request)
        except Refused as refused:
            return JSONResponse({"error": refused.sentence}, refused.status)
        except MillstreamError as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
            return JSONResponse({"error": str(error)}, status)
        except Exception:
            LOG.exception("%s %s failed", request.method, request.url.path)
            sentence = "unexpected error; console.out in the stack's folder has the traceback"
            return JSONResponse({"error": sentence}, 500)

    def _check_query(self, request: Request) -> None:
        known = {one.name: one for one in self.parameters if one.location == "query"}
        for name in request.query_params:
            if name not in known:
                raise InvalidInput(f"this route has the parameters {', '.join(known) or 'none'}",
                                   got=shortened(name))  # fmt: skip
            if not known[name].many and len(request.query_params.getlist(name)) > 1:
                raise InvalidInput(f"{name} can be given once", got="it several times")


def openapi(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these routes."""
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.documented_path, {})[endpoint.method.lower()] = _operation(
            endpoint
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Millstream", "version": version,
                 "description": "Jobs, topics, groups and alerts of the local stack."},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": {"type": "object", "required": ["error"],
                                  "properties": {"error": {"type": "string"}}}},
        },
    }  # fmt: skip


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    token = endpoint.path not in OPEN
    words = endpoint.path.replace("{", "").replace("}", "").replace(":path", "").strip("/")
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()}_{words.replace('/', '_').replace('.', '_')}",
        "summary": endpoint.summary,
        "parameters": [_parameter(parameter) for parameter in endpoint.parameters],
        "security": [{"token": []}] if token else [],
        "responses": {
            str(endpoint.status): {"description": "the result",
                                   "content": {endpoint.gives: {"schema": {}}}},
            **{str(status): _refusal(status) for status in sorted(_refusals(endpoint))},
        },
    }  # fmt: skip
    if endpoint.body is not None:
        content = {"application/json": {"schema": endpoint.body}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _refusals(endpoint: Endpoint) -> set[int]:
    """The error statuses of a route."""
    locations = {parameter.location for parameter in endpoint.parameters}
    found = {400, 429, *endpoint.also}
    if endpoint.path not in OPEN:
        found.add(401)
    if "path" in locations:
        found.add(404)
    if endpoint.body is not None:
        found |= {413, 415}
    return found


def _refusal(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": _OTHER_ANSWERS[status],
            "content": {"application/json": {"schema": schema}}}  # fmt: skip


def _parameter(parameter: Parameter) -> dict[str, Any]:
    one: dict[str, Any] = {"type": parameter.kind}
    if parameter.words:
        one["enum"] = list(parameter.words)
    if parameter.default is not None:
        one["default"] = parameter.default
    schema = {"type": "array", "items": one} if parameter.many else one
    return {"name": parameter.name, "in": parameter.location, "description": parameter.about,
            "required": parameter.location == "path", "schema": schema}  # fmt: skip

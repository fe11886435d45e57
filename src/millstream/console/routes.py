"""The routes, each with its description: the application and the OpenAPI document come from one
list, so neither knows a route that the other lacks."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from millstream.console.guard import OPEN
from millstream.errors import InvalidInput, MillstreamError, NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

LOG = logging.getLogger(__name__)
_STATUS: tuple[tuple[type[MillstreamError], int], ...] = (
    (NotFound, 404),
    (InvalidInput, 400),
    (Unavailable, 503),
)


@dataclass(frozen=True)
class Parameter:
    """A part of the path, or of the query."""

    name: str
    about: str
    place: str = "path"
    kind: str = "string"
    many: bool = False
    default: Any = None


JOB = Parameter("job", "the job's name")


@dataclass(frozen=True)
class Endpoint:
    """One route: what it does, and what it says about itself."""

    method: str
    path: str
    handler: Callable[[Request], Awaitable[Response]]
    summary: str
    parameters: Sequence[Parameter] = field(default=())
    gives: str = "application/json"
    status: int = 200

    def route(self) -> Route:
        """For the application."""
        return Route(self.path, _told(self.handler), methods=[self.method])

    @property
    def documented_path(self) -> str:
        """The path as OpenAPI writes it."""
        return self.path.replace(":path}", "}")


def _told(
    handler: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Errors as one sentence with a status; what nobody foresaw is logged whole."""

    async def answering(request: Request) -> Response:
        try:
            return await handler(request)
        except MillstreamError as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
            return JSONResponse({"error": str(error)}, status)
        except Exception:
            LOG.exception("%s %s failed", request.method, request.url.path)
            sentence = "the console met something it did not foresee; see console.out in its folder"
            return JSONResponse({"error": sentence}, 500)

    return answering


def number(request: Request, name: str, otherwise: int, *, most: int) -> int:
    """A whole number of the query, from 1 to `most`.

    Raises:
        InvalidInput: it is none.
    """
    text = request.query_params.get(name)
    if text is None:
        return otherwise
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= most:
        raise InvalidInput(f"{name} needs a whole number from 1 to {most}", got=repr(text[:40]))
    return int(text)


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
                 "description": "Jobs of the local stack: looked at, stopped, started anew."},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": {"type": "object", "required": ["error"],
                                  "properties": {"error": {"type": "string"}}}},
        },
    }  # fmt: skip


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    token = endpoint.path not in OPEN
    words = endpoint.path.replace("{", "").replace("}", "").replace(":path", "").strip("/")
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()}_{words.replace('/', '_').replace('.', '_')}",
        "summary": endpoint.summary,
        "parameters": [_parameter(parameter) for parameter in endpoint.parameters],
        "security": [{"token": []}] if token else [],
        "responses": {
            str(endpoint.status): {"description": "the answer",
                                   "content": {endpoint.gives: {"schema": {}}}},
        },
    }  # fmt: skip
    if token:
        operation["responses"]["401"] = {"description": "no token, or a wrong one", **error}
    if any(parameter.place == "path" for parameter in endpoint.parameters):
        operation["responses"]["404"] = {"description": "no such thing", **error}
    if any(parameter.place == "query" for parameter in endpoint.parameters):
        operation["responses"]["400"] = {"description": "a wrong parameter", **error}
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    one: dict[str, Any] = {"type": parameter.kind}
    if parameter.default is not None:
        one["default"] = parameter.default
    schema = {"type": "array", "items": one} if parameter.many else one
    return {"name": parameter.name, "in": parameter.place, "description": parameter.about,
            "required": parameter.place == "path", "schema": schema}  # fmt: skip

"""Validated reading of requests: query parameters and JSON bodies."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from millstream.console.api.routes import Refused
from millstream.errors import InvalidInput
from millstream.viewing.escape import shortened

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import UnionType

    from starlette.requests import Request

    from millstream.console.guard.limits import Limits

_PARTITIONS = 1_000


async def in_thread(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Run a blocking function in another thread, so that the event loop stays free."""
    return await run_in_threadpool(function, *arguments, **named)


def query_text(request: Request, name: str) -> str | None:
    """A text parameter of the query; None if it is missing or empty."""
    return request.query_params.get(name) or None


def query_int(request: Request, name: str, otherwise: int, *, most: int) -> int:
    """A whole number of the query, from 1 to `most`.

    Raises:
        InvalidInput: it is not such a number.
    """
    text = query_text(request, name)
    if text is None:
        return otherwise
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or not 1 <= int(text) <= most:
        raise InvalidInput(f"{name} needs a whole number from 1 to {most}", got=shortened(text))
    return int(text)


def query_flag(request: Request, name: str) -> bool:
    """A boolean parameter of the query, by default false.

    Raises:
        InvalidInput: it is neither true nor false.
    """
    text = query_text(request, name)
    if text not in (None, "true", "false"):
        raise InvalidInput(f"{name} needs true or false", got=shortened(text or ""))
    return text == "true"


def query_partitions(request: Request) -> list[int]:
    """The partitions in the query, each once; none means all.

    Raises:
        InvalidInput: one is not a number, or there are too many.
    """
    texts = [text for text in request.query_params.getlist("partition") if text]
    for text in texts:
        if not text.isascii() or not text.isdecimal() or len(text) > 9:
            raise InvalidInput("partition needs a whole number", got=shortened(text))
    if len(texts) > _PARTITIONS:
        raise InvalidInput(f"at most {_PARTITIONS} partitions can be given", got=str(len(texts)))
    return list(dict.fromkeys(int(text) for text in texts))


async def json_body(request: Request, limits: Limits, **kinds: type | UnionType) -> dict[str, Any]:
    """The JSON object in a request; `kinds` are its possible members and their types.

    The content type must be JSON: another site's page can only send forms and plain text.

    Raises:
        Refused: it is too large, too slow, or has another content type.
        InvalidInput: it is not such an object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "the body must have the content type application/json")
    found = _object(await _received(request, limits))
    for name, value in found.items():
        if name not in kinds:
            raise InvalidInput(f"the body may only have the members {', '.join(kinds)}",
                               got=shortened(name))  # fmt: skip
        if not isinstance(value, kinds[name]):
            raise InvalidInput(f"{name} has the wrong type",
                               got=shortened(json.dumps(value)))  # fmt: skip
    return found


async def _received(request: Request, limits: Limits) -> bytes:
    received = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                received += chunk
                if len(received) > limits.body:
                    raise Refused(413, f"the body is larger than {limits.body} bytes")
    except TimeoutError:
        raise Refused(408, "the body arrived too slowly") from None
    except ClientDisconnect:
        raise Refused(400, "the body is incomplete") from None
    return bytes(received)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput("the body must be a JSON object", got=shortened(repr(raw[:60])))
    return found

"""What a request says: its words and numbers, its moment, its body; each checked in one way."""

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


async def aside(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Run what waits for disks or Kafka in another thread, so that nobody else waits."""
    return await run_in_threadpool(function, *arguments, **named)


def word(request: Request, name: str) -> str | None:
    """A word of the query; an empty one is as good as none."""
    return request.query_params.get(name) or None


def number(request: Request, name: str, otherwise: int, *, most: int) -> int:
    """A whole number of the query, from 1 to `most`.

    Raises:
        InvalidInput: it is none.
    """
    text = word(request, name)
    if text is None:
        return otherwise
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or not 1 <= int(text) <= most:
        raise InvalidInput(f"{name} needs a whole number from 1 to {most}", got=shortened(text))
    return int(text)


def yes(request: Request, name: str) -> bool:
    """Whether the query says `true` to something.

    Raises:
        InvalidInput: it says something else than true and false.
    """
    text = word(request, name)
    if text not in (None, "true", "false"):
        raise InvalidInput(f"{name} needs true or false", got=shortened(text or ""))
    return text == "true"


def partitions(request: Request) -> list[int]:
    """The partitions that are meant, each once; none means all.

    Raises:
        InvalidInput: one is no number, or there are too many.
    """
    texts = [text for text in request.query_params.getlist("partition") if text]
    for text in texts:
        if not text.isascii() or not text.isdecimal() or len(text) > 9:
            raise InvalidInput("partition needs a whole number", got=shortened(text))
    if len(texts) > _PARTITIONS:
        raise InvalidInput(f"partition needs at most {_PARTITIONS} of them", got=str(len(texts)))
    return list(dict.fromkeys(int(text) for text in texts))


async def body(request: Request, limits: Limits, **kinds: type | UnionType) -> dict[str, Any]:
    """The JSON object in a request; it has no other members than `kinds`, and these are of them.

    A page of another site can only send forms and plain text, so it has to be JSON by its name.

    Raises:
        Refused: it is too large, too slow, or called something else.
        InvalidInput: it is no such object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "this needs a body of type application/json")
    found = _object(await _received(request, limits))
    for name, value in found.items():
        if name not in kinds:
            raise InvalidInput(f"the body needs members from {', '.join(kinds)}",
                               got=shortened(name))  # fmt: skip
        if not isinstance(value, kinds[name]):
            raise InvalidInput(f"{name} needs to be of another type",
                               got=shortened(json.dumps(value)))  # fmt: skip
    return found


async def _received(request: Request, limits: Limits) -> bytes:
    received = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                received += chunk
                if len(received) > limits.body:
                    raise Refused(413, f"a request needs a body of at most {limits.body} bytes")
    except TimeoutError:
        raise Refused(408, "a request needs to arrive sooner") from None
    except ClientDisconnect:
        raise Refused(400, "a request needs to arrive whole") from None
    return bytes(received)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput("the body needs to be a JSON object", got=shortened(repr(raw[:60])))
    return found

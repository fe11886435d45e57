"""Routes for the log: topics, their records, followed or a page at a time, and groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response, StreamingResponse

from millstream.console.api.kafka import Kafka
from millstream.console.api.paging import PARAMETERS, around, page_of
from millstream.console.api.request import aside, partitions, word, yes
from millstream.console.api.routes import Endpoint, Parameter, asked_for
from millstream.console.live.topics import Reader
from millstream.console.shared import TURN
from millstream.errors import InvalidInput, NotFound
from millstream.viewing.pages import Pages
from millstream.viewing.record_json import ALONE, form_of, shown
from millstream.viewing.selection import Selection
from millstream.viewing.where.parser import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from millstream.console.api.paging import Asked
    from millstream.console.live.topics import Following
    from millstream.console.shared import Few, Shared
    from millstream.jobs.folders import StackFolder
    from millstream.viewing.record_json import Form

LONGEST_WHERE = 2_000
FILTER_SECONDS = 0.5  # for one record
JUDGE_SECONDS = 1.0  # for seeing which values of a page are JSON
_TOPIC = Parameter("topic", "the topic's name")
_GROUP = Parameter("group", "the group's name")
_CHOICE = [
    asked_for("partition", "only this one", kind="integer", many=True),
    asked_for("where", "only where this is true: a condition as of `millstream tail --where`"),
    asked_for("format", "how values are read", default="auto",
              words=("auto", "json", "text", "hex")),
]  # fmt: skip
_FORMAT = _CHOICE[-1]


class TopicsApi:
    """Topics and groups of the stack's Kafka."""

    def __init__(
        self, stack: StackFolder, shared: Shared, scans: Few, following: Following,
        room: Callable[[], None],
    ) -> None:  # fmt: skip
        self._kafka, self._shared, self._scans = Kafka(stack), shared, scans
        self._following, self._room = following, room

    async def topics(self, request: Request) -> Response:
        """Every topic in a few facts."""
        internal = yes(request, "internal")
        return JSONResponse(await self._shared.ask(self._kafka.topics, internal=internal))

    async def topic(self, request: Request) -> Response:
        """One topic in full."""
        name = request.path_params["topic"]
        return JSONResponse(await self._shared.ask(self._kafka.topic, name))

    async def records(self, request: Request) -> Response:
        """A page of a topic's records."""
        name, form, page = request.path_params["topic"], _form(request), page_of(request)
        parts, where = partitions(request), _where(request)
        return JSONResponse(await self._scans.ask(self._page, name, parts, page, where, form))

    async def record(self, request: Request) -> Response:
        """One record, nearly whole."""
        path = request.path_params
        position = [_whole(path[name], name) for name in ("partition", "offset")]
        found = await self._scans.ask(self._one, path["topic"], *position, _form(request))
        return JSONResponse(found)

    async def follow(self, request: Request) -> Response:
        """Records as they come."""
        reader = Reader(_where(request), frozenset(partitions(request)), _form(request))
        self._room()
        topic = request.path_params["topic"]
        cluster, wire = await aside(self._kafka.cluster), await aside(self._kafka.wire, topic)
        followed = await self._following.open(cluster, topic, wire)
        events = self._following.watch(followed, reader)
        return StreamingResponse(events, media_type="text/event-stream")

    async def groups(self, request: Request) -> Response:
        """Every group."""
        return JSONResponse(await self._shared.ask(self._kafka.groups))

    async def group(self, request: Request) -> Response:
        """One group in full."""
        name = request.path_params["group"]
        return JSONResponse(await self._shared.ask(self._kafka.group, name))

    def _page(
        self, topic: str, parts: list[int], page: Asked, selection: Selection, form: Form
    ) -> dict[str, Any]:
        selection.wire = self._kafka.wire(topic)
        found = page(Pages(self._kafka.cluster(), topic, parts), selection)
        written, until = [], time.monotonic() + JUDGE_SECONDS
        for record in found.records:
            with TURN:
                written.append(shown(record, form, wire=selection.wire, until=until))
        return {
            "topic": topic,
            "records": written,
            "scanned": selection.seen,
            "unknown": selection.unknown,
            "gone": found.gone,
            **around(found),
        }

    def _one(self, topic: str, partition: int, offset: int, form: Form) -> dict[str, Any]:
        pages = Pages(self._kafka.cluster(), topic, [partition])
        record = pages.one(partition, offset)
        if record is None:
            raise NotFound(
                f"this needs a record at offset {offset} of {topic}/{partition}",
                got=f"a log of {pages.first[partition]} to {pages.end[partition]} without it",
            )
        return shown(record, form, ALONE, self._kafka.wire(topic))

    def endpoints(self) -> list[Endpoint]:
        """Every route with its description."""
        internal = asked_for("internal", "Kafka's own topics too", kind="boolean", default=False)
        position = [Parameter("partition", "the record's partition", kind="integer"),
                 Parameter("offset", "the record's offset", kind="integer")]  # fmt: skip
        away = (503,)
        return [
            Endpoint("GET", "/api/topics", self.topics, "every topic in a few facts", [internal],
                     also=away),
            Endpoint("GET", "/api/topics/{topic}", self.topic, "one topic in full", [_TOPIC],
                     also=away),
            Endpoint("GET", "/api/topics/{topic}/records", self.records,
                     "a page of a topic's records", [_TOPIC, *PARAMETERS, *_CHOICE],
                     also=(410, 503)),
            Endpoint("GET", "/api/topics/{topic}/records/{partition}/{offset}", self.record,
                     "one record", [_TOPIC, *position, _FORMAT], also=(410, 503)),
            Endpoint("GET", "/api/topics/{topic}/follow", self.follow, "records as they come",
                     [_TOPIC, *_CHOICE], gives="text/event-stream", also=away),
            Endpoint("GET", "/api/groups", self.groups, "every consumer group", also=away),
            Endpoint("GET", "/api/groups/{group}", self.group, "one group in full", [_GROUP],
                     also=away),
        ]  # fmt: skip


def _where(request: Request) -> Selection:
    text = word(request, "where")
    if text is None:
        return Selection()
    if len(text) > LONGEST_WHERE:
        raise InvalidInput(f"where needs at most {LONGEST_WHERE} characters", got=str(len(text)))
    return Selection(where=parse(text, what="where"), seconds=FILTER_SECONDS)


def _form(request: Request) -> Form:
    return form_of(word(request, "format") or "auto")


def _whole(text: str, what: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InvalidInput(f"{what} needs a whole number", got=repr(text[:40]))
    return int(text)

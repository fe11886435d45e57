"""Routes for Kafka: topics, their records (live or a page at a time), and groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response, StreamingResponse

from millstream.console.api.kafka import Kafka
from millstream.console.api.paging import PARAMETERS, page_request, page_to_json
from millstream.console.api.request import in_thread, query_flag, query_partitions, query_text
from millstream.console.api.routes import Endpoint, Parameter, query_parameter
from millstream.console.live.topics import Reader
from millstream.console.shared import FILTER_LOCK
from millstream.errors import InvalidInput, NotFound
from millstream.viewing.pages import Pages
from millstream.viewing.record_json import ALONE, parse_form, record_to_json
from millstream.viewing.selection import Selection
from millstream.viewing.where.parser import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from millstream.console.api.paging import PageRequest
    from millstream.console.live.topics import LiveTopics
    from millstream.console.shared import Limiter, ResultCache
    from millstream.jobs.folders import StackFolder
    from millstream.viewing.record_json import Form

LONGEST_WHERE = 2_000
FILTER_SECONDS = 0.5  # for one record
DETECT_SECONDS = 1.0  # for detecting which values of a page are JSON
_TOPIC = Parameter("topic", "the topic's name")
_GROUP = Parameter("group", "the group's name")
_CHOICE = [
    query_parameter("partition", "only this partition", kind="integer", many=True),
    query_parameter("where", "only records that meet a condition, as `millstream tail --where`"),
    query_parameter("format", "how values are read", default="auto",
              words=("auto", "json", "text", "hex")),
]  # fmt: skip
_FORMAT = _CHOICE[-1]


class TopicsApi:
    """Topics and groups on the stack's Kafka."""

    def __init__(
        self, stack: StackFolder, shared: ResultCache, scans: Limiter, live_topics: LiveTopics,
        room: Callable[[], None],
    ) -> None:  # fmt: skip
        self._kafka, self._shared, self._scans = Kafka(stack), shared, scans
        self._live_topics, self._room = live_topics, room

    async def topics(self, request: Request) -> Response:
        """Every topic in short."""
        internal = query_flag(request, "internal")
        return JSONResponse(await self._shared.ask(self._kafka.topics, internal=internal))

    async def topic(self, request: Request) -> Response:
        """One topic in full."""
        name = request.path_params["topic"]
        return JSONResponse(await self._shared.ask(self._kafka.topic, name))

    async def records(self, request: Request) -> Response:
        """A page of a topic's records."""
        name, form, page = request.path_params["topic"], _form(request), page_request(request)
        parts, where = query_partitions(request), _where(request)
        return JSONResponse(await self._scans.ask(self._page, name, parts, page, where, form))

    async def record(self, request: Request) -> Response:
        """One record, cut only where it is very large."""
        path = request.path_params
        position = [_whole(path[name], name) for name in ("partition", "offset")]
        found = await self._scans.ask(self._one, path["topic"], *position, _form(request))
        return JSONResponse(found)

    async def follow(self, request: Request) -> Response:
        """New records as they arrive."""
        reader = Reader(_where(request), frozenset(query_partitions(request)), _form(request))
        self._room()
        topic = request.path_params["topic"]
        cluster, decoder = (
            await in_thread(self._kafka.cluster),
            await in_thread(self._kafka.decoder, topic),
        )
        live_topic = await self._live_topics.open(cluster, topic, decoder)
        events = self._live_topics.watch(live_topic, reader)
        return StreamingResponse(events, media_type="text/event-stream")

    async def groups(self, request: Request) -> Response:
        """Every group."""
        return JSONResponse(await self._shared.ask(self._kafka.groups))

    async def group(self, request: Request) -> Response:
        """One group in full."""
        name = request.path_params["group"]
        return JSONResponse(await self._shared.ask(self._kafka.group, name))

    def _page(
        self, topic: str, parts: list[int], page: PageRequest, selection: Selection, form: Form
    ) -> dict[str, Any]:
        selection.decoder = self._kafka.decoder(topic)
        found = page(Pages(self._kafka.cluster(), topic, parts), selection)
        written, until = [], time.monotonic() + DETECT_SECONDS
        for record in found.records:
            with FILTER_LOCK:
                written.append(record_to_json(record, form, decoder=selection.decoder, until=until))
        return {
            "topic": topic,
            "records": written,
            "scanned": selection.seen,
            "unknown": selection.unknown,
            "gone": found.gone,
            **page_to_json(found),
        }

    def _one(self, topic: str, partition: int, offset: int, form: Form) -> dict[str, Any]:
        pages = Pages(self._kafka.cluster(), topic, [partition])
        record = pages.one(partition, offset)
        if record is None:
            raise NotFound(
                f"there is no record at offset {offset} of {topic}/{partition}",
                got=f"offsets {pages.first[partition]} to {pages.end[partition]}",
            )
        return record_to_json(record, form, ALONE, self._kafka.decoder(topic))

    def endpoints(self) -> list[Endpoint]:
        """Every route with its description."""
        internal = query_parameter("internal", "internal topics too", kind="boolean", default=False)
        position = [Parameter("partition", "the record's partition", kind="integer"),
                 Parameter("offset", "the record's offset", kind="integer")]  # fmt: skip
        errors = (503,)
        return [
            Endpoint("GET", "/api/topics", self.topics, "every topic in short", [internal],
                     also=errors),
            Endpoint("GET", "/api/topics/{topic}", self.topic, "one topic in full", [_TOPIC],
                     also=errors),
            Endpoint("GET", "/api/topics/{topic}/records", self.records,
                     "a page of a topic's records", [_TOPIC, *PARAMETERS, *_CHOICE],
                     also=(410, 503)),
            Endpoint("GET", "/api/topics/{topic}/records/{partition}/{offset}", self.record,
                     "one record", [_TOPIC, *position, _FORMAT], also=(410, 503)),
            Endpoint("GET", "/api/topics/{topic}/follow", self.follow, "new records as they arrive",
                     [_TOPIC, *_CHOICE], gives="text/event-stream", also=errors),
            Endpoint("GET", "/api/groups", self.groups, "every consumer group", also=errors),
            Endpoint("GET", "/api/groups/{group}", self.group, "one group in full", [_GROUP],
                     also=errors),
        ]  # fmt: skip


def _where(request: Request) -> Selection:
    text = query_text(request, "where")
    if text is None:
        return Selection()
    if len(text) > LONGEST_WHERE:
        raise InvalidInput(f"where needs at most {LONGEST_WHERE} characters", got=str(len(text)))
    return Selection(where=parse(text, what="where"), seconds=FILTER_SECONDS)


def _form(request: Request) -> Form:
    return parse_form(query_text(request, "format") or "auto")


def _whole(text: str, what: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InvalidInput(f"{what} needs a whole number", got=repr(text[:40]))
    return int(text)

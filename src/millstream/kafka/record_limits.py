"""The largest record that a topic accepts: its `max.message.bytes`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ResourceType

from millstream.errors import InvalidInput, MillstreamError
from millstream.kafka.librdkafka import ANSWER_TIME, NOT_YET_EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from millstream.kafka.librdkafka import Link

SETTING = "max.message.bytes"
UNCHECKED_BYTES = 1_000_000
"""Bytes of a record up to which the limit is not checked: the default limit is 1,048,588."""

ANY_SIZE = {"message.max.bytes": "1000000000"}
"""For a librdkafka producer: the topic's limit decides, not the client's."""

READ_ANY_SIZE = {"receive.message.max.bytes": "1000000000"}
"""For a librdkafka consumer: it reads whatever a broker has accepted."""

_OVERHEAD = 70  # bytes of a batch with one record, apart from its key, value and headers
_CACHE_SECONDS = 60.0


def request_settings(admin: AdminClient, topics: Iterable[str]) -> dict[str, Future[Any]]:
    """Request the settings of these topics; `limit_in` reads the limit from them."""
    resources = {ConfigResource(ResourceType.TOPIC, name): name for name in topics}
    answers = admin.describe_configs([*resources], request_timeout=ANSWER_TIME)
    return {resources[resource]: answer for resource, answer in answers.items()}


def limit_in(settings: Mapping[str, ConfigEntry]) -> int | None:
    """The limit in a topic's settings."""
    entry = settings.get(SETTING)
    return int(entry.value) if entry is not None and entry.value is not None else None


class RecordLimits:
    """The limits of the topics a producer sends to, requested for large records only."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._cache: dict[str, tuple[int | None, float]] = {}

    def check(self, topic: str, content: int) -> None:
        """Check a record with `content` bytes of key, value and headers.

        Raises:
            InvalidInput: it exceeds the topic's limit.
        """
        size = _OVERHEAD + content
        limit, read_at = self._cache.get(topic, (None, 0.0))
        fresh = time.monotonic() - read_at < _CACHE_SECONDS
        if not fresh or (limit is not None and size > limit):
            limit = self._read(topic)
            self._cache[topic] = limit, time.monotonic()
        if limit is not None and size > limit:
            raise InvalidInput(
                f"a record for {topic} needs at most {limit:,} bytes",
                got=f"one too large, of {size:,}",
                do=f"send less, or `millstream topics alter {topic} --set {SETTING}={size}`",
            )

    def _read(self, topic: str) -> int | None:
        """The limit; None if it cannot be read, in which case the broker decides."""
        try:
            answers = self._link.call_all(
                "reading the settings of topics",
                lambda admin: request_settings(admin, [topic]),
                retry=NOT_YET_EVERYWHERE,
            )
        except MillstreamError:
            return None
        return limit_in(answers[topic])

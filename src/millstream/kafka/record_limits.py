"""How large a record a topic takes: what its `max.message.bytes` says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ResourceType

from millstream.errors import InvalidInput, MillstreamError
from millstream.kafka.librdkafka import ANSWER_TIME, NOT_EVERYWHERE_YET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from millstream.kafka.librdkafka import Link

SETTING = "max.message.bytes"
TAKEN_BY_MOST = 1_000_000
"""Bytes of a record up to which no limit is asked: the default one is 1,048,588."""

ANY = {"message.max.bytes": "1000000000"}
"""For a librdkafka producer: the topic's limit decides, not the client's."""

READ_ANY = {"receive.message.max.bytes": "1000000000"}
"""For a librdkafka consumer: it reads whatever a broker has taken."""

BESIDE = 70  # bytes of a batch that holds one record, apart from its key, value and headers
_LIMIT_HOLDS = 60.0


def ask(admin: AdminClient, topics: Iterable[str]) -> dict[str, Future[Any]]:
    """A question for the settings of these topics; `told` understands the answers."""
    resources = {ConfigResource(ResourceType.TOPIC, name): name for name in topics}
    answers = admin.describe_configs([*resources], request_timeout=ANSWER_TIME)
    return {resources[resource]: answer for resource, answer in answers.items()}


def told(settings: Mapping[str, ConfigEntry]) -> int | None:
    """The limit among the settings of a topic."""
    entry = settings.get(SETTING)
    return int(entry.value) if entry is not None and entry.value is not None else None


class RecordLimits:
    """The limits of the topics a producer sends to, asked when a large record comes."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._known: dict[str, tuple[int | None, float]] = {}

    def check(self, topic: str, filled: int) -> None:
        """Refuse a record whose key, value and headers, `filled` bytes, the topic cannot take.

        Raises:
            InvalidInput: they are over its limit.
        """
        size = BESIDE + filled
        limit, asked = self._known.get(topic, (None, 0.0))
        fresh = time.monotonic() - asked < _LIMIT_HOLDS
        if not fresh or (limit is not None and size > limit):
            limit = self._ask(topic)
            self._known[topic] = limit, time.monotonic()
        if limit is not None and size > limit:
            raise InvalidInput(
                f"a record for {topic} needs at most {limit:,} bytes",
                got=f"one too large, of {size:,}",
                do=f"send less, or `millstream topics alter {topic} --set {SETTING}={size}`",
            )

    def _ask(self, topic: str) -> int | None:
        """The limit; None where we may not know it, and the broker decides."""
        try:
            answers = self._link.call_all(
                "reading the settings of topics",
                lambda admin: ask(admin, [topic]),
                settling=NOT_EVERYWHERE_YET,
            )
        except MillstreamError:
            return None
        return told(answers[topic])

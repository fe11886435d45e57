"""The record size limits of topics, read from the cluster and cached for a few seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from millstream.kafka.librdkafka import LOG

if TYPE_CHECKING:
    from millstream.kafka.settings import Cluster

LARGE_RECORDS = {"max.message.bytes": "100000000"}
"""For topics of late and dead rows: nearly the largest request that a broker reads."""

_CACHE_SECONDS = 5.0
_RESPONSE_SECONDS = 10.0
_SETTING = "message.max.bytes"  # the broker setting for the default


class TopicLimits:
    """The limits of the topics of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._cache: dict[str, tuple[float, int | None]] = {}
        self._client: Any = None

    def admin(self) -> Any:
        """A new admin client."""
        from confluent_kafka.admin import AdminClient

        return AdminClient(dict(self._cluster.client()), logger=LOG)

    def of(self, topic: str) -> int | None:
        """The topic's limit, or the default if it does not exist yet; None if unknown."""
        read_at, limit = self._cache.get(topic, (0.0, None))
        if time.monotonic() - read_at > _CACHE_SECONDS:
            limit = self._read(topic)
            self._cache[topic] = time.monotonic(), limit
        return limit

    def _read(self, topic: str) -> int | None:
        from confluent_kafka import KafkaException

        admin, self._client = self._client or self.admin(), None
        try:
            limit = self._read_topic(admin, topic)
        except (KafkaException, TimeoutError):
            return self._cache.get(topic, (0.0, None))[1]
        self._client = admin
        return limit

    def _read_topic(self, admin: Any, topic: str) -> int | None:
        from confluent_kafka import KafkaError, KafkaException

        from millstream.kafka import record_limits

        try:
            [response] = record_limits.request_settings(admin, [topic]).values()
            return record_limits.limit_in(response.result(timeout=_RESPONSE_SECONDS))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        return self._default(admin)

    def _default(self, admin: Any) -> int | None:
        """The limit of a topic that does not exist yet."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        brokers = admin.list_topics(timeout=_RESPONSE_SECONDS).brokers
        resource = ConfigResource(ResourceType.BROKER, str(next(iter(brokers))))
        [response] = admin.describe_configs([resource]).values()
        return int(response.result(timeout=_RESPONSE_SECONDS)[_SETTING].value)

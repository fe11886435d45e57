"""How large the records may be that topics take, asked of the cluster now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from millstream.kafka.librdkafka import LOG

if TYPE_CHECKING:
    from millstream.kafka.settings import Cluster

ROOMY = {"max.message.bytes": "100000000"}
"""For topics of late and dead rows: nearly what a broker reads as one request."""

_HOLDS = 5.0
_ANSWER_SECONDS = 10.0
_SETTING = "message.max.bytes"  # what a broker calls the default


class TopicLimits:
    """The limits of the topics of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, tuple[float, int | None]] = {}
        self._client: Any = None

    def admin(self) -> Any:
        """A client for one question."""
        from confluent_kafka.admin import AdminClient

        return AdminClient(dict(self._cluster.client()), logger=LOG)

    def of(self, topic: str) -> int | None:
        """What the topic takes, or would take if it were made; None where nobody says."""
        asked, most = self._known.get(topic, (0.0, None))
        if time.monotonic() - asked > _HOLDS:
            most = self._ask(topic)
            self._known[topic] = time.monotonic(), most
        return most

    def _ask(self, topic: str) -> int | None:
        from confluent_kafka import KafkaException

        admin, self._client = self._client or self.admin(), None
        try:
            most = self._asked(admin, topic)
        except (KafkaException, TimeoutError):
            return self._known.get(topic, (0.0, None))[1]
        self._client = admin
        return most

    def _asked(self, admin: Any, topic: str) -> int | None:
        from confluent_kafka import KafkaError, KafkaException

        from millstream.kafka import record_limits

        try:
            [answer] = record_limits.ask(admin, [topic]).values()
            return record_limits.told(answer.result(timeout=_ANSWER_SECONDS))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        return self._default(admin)

    def _default(self, admin: Any) -> int | None:
        """What a topic takes that is not there yet."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        brokers = admin.list_topics(timeout=_ANSWER_SECONDS).brokers
        resource = ConfigResource(ResourceType.BROKER, str(next(iter(brokers))))
        [answer] = admin.describe_configs([resource]).values()
        return int(answer.result(timeout=_ANSWER_SECONDS)[_SETTING].value)

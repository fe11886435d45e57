"""librdkafka settings that a Producer or Consumer takes in addition to its arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millstream.errors import InvalidInput
from millstream.kafka import topic_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

ClientSetting = str | int | float | bool

_OWNED = {
    "bootstrap.servers": "kafka=",
    "metadata.broker.list": "kafka=",
    "group.id": "group=",
    "group.protocol": "Millstream, which uses the classic protocol",
    "partition.assignment.strategy": "assignor=",
    "auto.offset.reset": "start=",
    "check.crcs": "Millstream, which always checks them",
    "enable.auto.commit": "commit=",
    "enable.auto.offset.store": "commit=",
    "enable.partition.eof": "until_end=",
    "isolation.level": "isolation=",
    "acks": "acks=",
    "request.required.acks": "acks=",
    "enable.idempotence": "idempotent=",
    "partitioner": "partitioner=",
    "linger.ms": "linger=",
    "queue.buffering.max.ms": "linger=",
    "compression.type": "compression=",
    "compression.codec": "compression=",
    "transactional.id": "transactional_id=",
    "delivery.report.only.error": "on_delivery=",
    "dr_cb": "on_delivery=",
    "dr_msg_cb": "on_delivery=",
}
_OF_THE_CLUSTER = re.compile(r"(security|sasl|ssl)\.|enable\.(ssl|sasl)")
_NEVER = re.compile(r"plugin\.|interceptor|\.class$|jaas|_cb$|^opaque$")


def client_settings(settings: Mapping[str, ClientSetting] | None) -> dict[str, str]:
    """The settings as text.

    Raises:
        InvalidInput: one has its own argument, belongs to the cluster, or loads code; or its value
            is not text, a number or a boolean.
    """
    return {name: _text(name, value) for name, value in (settings or {}).items()}


def _text(name: object, value: object) -> str:
    if not isinstance(name, str):
        raise InvalidInput("a client setting needs a name that is text", got=repr(name))
    if name in _OWNED:
        raise InvalidInput(
            f"the client setting {name} needs to be set by {_OWNED[name]}",
            got="it in settings=",
            do="omit it there",
        )
    if _NEVER.search(name):
        raise InvalidInput("a client setting must not load code", got=repr(name), do="omit it")
    if _OF_THE_CLUSTER.match(name):
        raise InvalidInput(
            f"the client setting {name} needs to be set on the cluster",
            got="it in settings=",
            do="use Cluster(address, {...}) or a MILLSTREAM_KAFKA_ variable",
        )
    return topic_settings.text(name, value, kind="client")

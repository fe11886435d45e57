"""Messages sent by Kafka's protocol arrive unchanged in the right partition.

They are compared with librdkafka, which reads them and computes the partition of a key.
"""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, murmur2
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.verifier import Log
from tests.sinks.alerting import until

from millstream.kafka.admin.topics import Topics
from millstream.kafka.partitioning import partitions_of
from millstream.kafka.protocol.transactions import GroupOffset
from millstream.kafka.settings import Cluster
from millstream.sinks.kafka import record_batches as topic_batches
from millstream.sinks.kafka import writer as topic_writer
from millstream.sinks.kafka.client_sender import ClientSender
from millstream.sinks.kafka.messages import Outgoing
from millstream.sinks.kafka.wire_sender import WireSender
from millstream.sinks.spec import Opening, Staged
from millstream.sources.kafka.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.sinks.kafka.sender import Sender
    from millstream.testing.local_broker import ThrowAwayBroker

PARTITIONS = 3
Message = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_a_key_is_sent_to_the_same_partition_as_by_every_kafka_client(
    keys: list[bytes], count: int
) -> None:
    found = partitions_of(pa.array(keys, pa.binary()), count)

    assert found.tolist() == [murmur2(key, count) for key in keys]


def test_keys_of_a_sliced_array_are_used() -> None:
    keys = [b"a", b"bb", b"", b"dddd", b"eeeee"]

    found = partitions_of(pa.array(keys, pa.binary()).slice(1, 3), 7)

    assert found.tolist() == [murmur2(key, 7) for key in keys[1:4]]


@pytest.fixture(params=["own protocol", "librdkafka"])
def sender(request: pytest.FixtureRequest, broker: ThrowAwayBroker, topic: str) -> Iterator[Sender]:
    """A transactional sender of either kind, for a topic of three partitions."""
    Topics(broker.address).create(topic, partitions=PARTITIONS)
    kind: Any = WireSender if request.param == "own protocol" else ClientSender
    made: Sender = kind(Cluster(broker.address), f"sender of {topic}")
    made.open()
    yield made
    made.close()


def read_back(broker: ThrowAwayBroker, topic: str) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = defaultdict(list)
    log = Log(broker.address)
    until(lambda: log.ends(topic, PARTITIONS, committed=True)
          == log.ends(topic, PARTITIONS, committed=False))  # fmt: skip
    for record in log.records(topic, PARTITIONS):
        message = (record.key(), record.value(), record.timestamp()[1], record.headers() or [])
        found[record.partition()].append(message)
    return found


def made_up(rng: random.Random, count: int) -> list[Message]:
    """Keys and values of all sizes, or null; times in any order; some with headers."""

    def text(most: int) -> bytes | None:
        return None if rng.random() < 0.1 else rng.randbytes(rng.choice((0, 1, 60, 70, most)))

    return [
        (text(300), text(20_000), rng.randrange(10**12, 2 * 10**12),
         [(f"h{n}", text(200)) for n in range(rng.choice((0, 0, 1, 5)))])
        for _ in range(count)
    ]  # fmt: skip


def outgoing(some: list[Message]) -> Outgoing:
    keys, values, stamps, own = zip(*some, strict=True)
    return Outgoing(pa.array(values, pa.binary()), pa.array(keys, pa.binary()), np.array(stamps),
                    own=list(own))  # fmt: skip


def test_a_reader_gets_the_messages_that_were_sent(
    sender: Sender, broker: ThrowAwayBroker, topic: str
) -> None:
    rng = random.Random(11)
    sent = [made_up(rng, count) for count in (1, 700, 3)]

    sender.begin()
    for some in sent:
        sender.send(topic, outgoing(some))
    sender.commit()

    found = read_back(broker, topic)
    flat = [message for some in sent for message in some]
    keyed = [message for message in flat if message[0] is not None]
    by_key: dict[int, list[Message]] = defaultdict(list)
    for message in keyed:
        by_key[murmur2(message[0] or b"", PARTITIONS)].append(message)
    for partition, messages in found.items():
        assert [m for m in messages if m[0] is not None] == by_key[partition]
    unkeyed = [m for messages in found.values() for m in messages if m[0] is None]
    assert sorted(map(repr, unkeyed)) == sorted(repr(m) for m in flat if m[0] is None)
    assert len(keyed) + len(unkeyed) == len(flat) == 704


def test_large_chunks_are_divided_and_keep_their_order(
    broker: ThrowAwayBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_batches, "LARGEST", 3_000)
    Topics(broker.address).create(topic, partitions=PARTITIONS)
    sender = WireSender(Cluster(broker.address), None)
    sender.open()
    values = [f"{number:05}".encode() * (600 if number == 777 else 3) for number in range(5_000)]
    sender.begin()
    sender.send(topic, Outgoing(pa.array(values, pa.binary())))
    sender.commit()
    sender.close()

    found = read_back(broker, topic)

    assert all(len(messages) >= 1_000 for messages in found.values())
    for messages in found.values():
        assert [m[1] for m in messages] == sorted(m[1] or b"" for m in messages)
    assert sorted(m[1] or b"" for some in found.values() for m in some) == values


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2 * topic_batches.LARGEST))))
def test_each_batch_is_small_enough_and_for_one_partition(rows: list[tuple[int, int]]) -> None:
    rows.sort(key=lambda row: row[0])
    partitions, sizes = (np.array([row[n] for row in rows], np.int64) for n in (0, 1))

    bounds = topic_batches._bounds(partitions, sizes).tolist()

    assert [bounds[0], bounds[-1]] == [0, len(rows)]
    for first, end in pairwise(bounds):
        assert first < end
        assert len(set(partitions[first:end].tolist())) == 1
        assert end - first == 1 or sizes[first:end].sum() <= topic_batches.LARGEST


def test_messages_without_a_key_are_distributed_among_partitions(
    broker: ThrowAwayBroker, topic: str
) -> None:
    Topics(broker.address).create(topic, partitions=PARTITIONS)
    sender = WireSender(Cluster(broker.address), None)
    sender.open()
    for number in range(6):
        sender.begin()
        sender.send(topic, Outgoing(pa.array([str(number).encode()], pa.binary())))
        sender.commit()
    sender.close()

    found = read_back(broker, topic)

    assert {partition: len(messages) for partition, messages in found.items()} == {0: 2, 1: 2, 2: 2}


def test_uncommitted_messages_are_never_visible(
    sender: Sender, broker: ThrowAwayBroker, topic: str
) -> None:
    sender.begin()
    sender.send(topic, Outgoing(pa.array([b"lost"], pa.binary())))
    sender.commit_offset(GroupOffset(f"group of {topic}", topic, 1, "lost"))
    sender.open()
    sender.begin()
    sender.send(topic, Outgoing(pa.array([b"kept"], pa.binary())))
    sender.commit()

    found = [message[1] for messages in read_back(broker, topic).values() for message in messages]

    assert found == [b"kept"]


def test_a_fenced_sender_raises(broker: ThrowAwayBroker, topic: str) -> None:
    Topics(broker.address).create(topic, partitions=PARTITIONS)
    first, second = (WireSender(Cluster(broker.address), f"of {topic}") for _ in range(2))
    first.open()
    first.begin()
    first.send(topic, Outgoing(pa.array([b"late"], pa.binary())))
    second.open()

    with pytest.raises(KafkaException, match=r"(?i)epoch|fenced"):
        first.commit()
    first.close()
    second.close()


def test_connections_closed_by_a_broker_are_opened_again_before_a_batch(topic: str) -> None:
    """A broker closes connections that were idle for ten minutes; here for a second."""
    from millstream.testing import broker as started

    waits: list[str] = []
    with started(settings={"connections.max.idle.ms": 1_000}) as broker:
        cluster = Cluster(broker.address)
        writer = topic_writer.TopicWriter(
            cluster, Opening(topic, "job", 0, (), on_wait=waits.append)
        )
        writer.recover(None)
        writer.write("one", 1, rows(topic, 1))
        sender = writer._sender
        assert sender is not None
        until(sender.disconnected)
        waits.clear()
        writer.write("two", 2, rows(topic, 2))
        writer.close()
        size = Log(broker.address).topics()[topic]
        values = sorted(r.value() for r in Log(broker.address).records(topic, size))

    assert values == [b'{"n":1}', b'{"n":2}']
    assert waits == []


def test_when_a_run_ends_readers_can_see_all_its_rows(broker: ThrowAwayBroker, topic: str) -> None:
    """A broker acknowledges a commit before it has written it to all partitions."""
    Topics(broker.address).create(topic, partitions=PARTITIONS)
    log = Log(broker.address)
    for number in range(10):
        writer = topic_writer.TopicWriter(Cluster(broker.address), Opening(topic, "job", 0, ()))
        writer.recover(str(number - 1) if number else None)
        writer.write(str(number), number + 1, rows(topic, number))
        writer.close()

        ends = log.ends(topic, PARTITIONS, committed=True)
        assert ends == log.ends(topic, PARTITIONS, committed=False)


def rows(topic: str, number: int) -> list[Staged]:
    table = pa.table({"n": [number]})
    return [Staged("out", "result", Topic(topic), (), 1, lambda: iter([table]))]

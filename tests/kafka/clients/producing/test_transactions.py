from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from millstream.errors import Fenced, InvalidInput
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from tests.kafka.shortly import Log


def test_readers_see_committed_transactions_only(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=2)
    with Producer(log.address, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"kept 0", partition=0)
            producer.send(topic, b"kept 1", partition=1)
        with suppress(KeyError), producer.transaction():
            producer.send(topic, b"flushed and aborted", partition=0)
            producer.flush()
            raise KeyError
        with suppress(KeyError), producer.transaction():
            producer.send(topic, b"never flushed", partition=0)
            raise KeyError
        with producer.transaction():
            producer.send(topic, b"kept 2", partition=0)
        assert producer.failed == 0

    assert sorted(map(str, log.values(topic))) == ["b'kept 0'", "b'kept 1'", "b'kept 2'"]
    assert b"flushed and aborted" in log.values(topic, isolation="read_uncommitted")


def test_an_open_transaction_and_later_records_are_not_read(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"before"])
    with Producer(log.address, transactional_id=topic) as producer, producer.transaction():
        producer.send(topic, b"inside")
        producer.flush()
        log.fill(topic, [b"after"])
        during = log.values(topic)
        dirty = log.values(topic, isolation="read_uncommitted")

    assert during == [b"before"]
    assert dirty == [b"before", b"inside", b"after"]
    assert log.values(topic) == [b"before", b"inside", b"after"]


def test_offsets_and_records_are_committed_together_or_not_at_all(log: Log, topic: str) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    log.topics.create(source)
    log.topics.create(target)
    log.fill(source, [b"1", b"2", b"3", b"4"])

    with (
        log.consumer(source, group=topic, commit="manual") as consumer,
        Producer(log.address, transactional_id=topic) as producer,
    ):
        records = iter(consumer)
        with producer.transaction():
            for _ in range(2):
                producer.send(target, next(records).value)
            producer.send_offsets(consumer)
        with suppress(KeyError), producer.transaction():
            producer.send(target, next(records).value)
            producer.send_offsets(consumer)
            raise KeyError

    assert log.values(target) == [b"1", b"2"]
    assert log.topics.group(topic).partitions[0].committed == 2
    assert log.values(source, group=topic) == [b"3", b"4"]


def test_a_second_producer_with_the_same_id_fences_the_first(log: Log, topic: str) -> None:
    log.topics.create(topic)
    first = Producer(log.address, transactional_id=topic)
    with first.transaction():
        first.send(topic, b"first")
    with Producer(log.address, transactional_id=topic) as second, second.transaction():
        second.send(topic, b"second")

    with pytest.raises(Fenced), first.transaction():
        first.send(topic, b"zombie")
    with pytest.raises(Fenced), first.transaction():
        first.send(topic, b"zombie again")
    first.close()

    assert log.values(topic) == [b"first", b"second"]


def test_a_transactional_producer_sends_only_in_transactions_and_others_have_none(
    log: Log, topic: str
) -> None:
    log.topics.create(topic)
    with Producer(log.address) as plain:
        with pytest.raises(InvalidInput, match="transactional_id; got one without"):
            plain.transaction().__enter__()
        with pytest.raises(InvalidInput, match="send_offsets needs an open transaction"):
            plain.send_offsets(log.consumer(topic, group=topic))
    with Producer(log.address, transactional_id=topic) as producer:
        with pytest.raises(InvalidInput, match="needs to send in a transaction"):
            producer.send(topic, b"x")
        with pytest.raises(InvalidInput, match="needs to send in a transaction"):
            producer.send_many(topic, [b"x"])
        with producer.transaction():
            with pytest.raises(InvalidInput, match="nested"):
                producer.transaction().__enter__()
            with pytest.raises(InvalidInput, match="consumer in a group"):
                producer.send_offsets(log.consumer(topic))
            producer.send(topic, b"still open")

    assert log.values(topic) == [b"still open"]

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidInput, InvalidSpec, NotFound
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer
from millstream.kafka.names import check_topic

if TYPE_CHECKING:
    from tests.kafka.shortly import Log

BAD_NAMES = ["", " ", "a b", "a/b", "a\n", "ü", ".", "..", "x" * 250, "a*", None, 7]
NOWHERE = "127.0.0.1:1"


def test_a_topic_is_created_listed_described_altered_and_deleted(log: Log, topic: str) -> None:
    made = log.topics.create(
        topic, partitions=3, retention="1 day", settings={"preallocate": False, "segment.ms": 1000}
    )

    assert [part.partition for part in made.partitions] == [0, 1, 2]
    assert all(part.leader is not None and part.isr == part.replicas for part in made.partitions)
    assert made.replicas == 1
    assert dict(made.settings) == {
        "preallocate": "false",
        "retention.ms": "86400000",
        "segment.ms": "1000",
    }
    assert topic in [info.name for info in log.topics.list()]
    assert log.topics.describe(topic) == made

    changed = log.topics.alter(
        topic, settings={"segment.ms": None, "retention.ms": 7}, partitions=4
    )

    assert (len(changed.partitions), changed.id) == (4, made.id)
    assert dict(changed.settings) == {"preallocate": "false", "retention.ms": "7"}

    log.topics.delete(topic)

    assert topic not in [info.name for info in log.topics.list()]
    with pytest.raises(NotFound):
        log.topics.describe(topic)


def test_internal_topics_are_listed_only_on_request(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.read(topic, group="any")

    assert "__consumer_offsets" not in [info.name for info in log.topics.list()]
    assert "__consumer_offsets" in [info.name for info in log.topics.list(internal=True)]


def test_offsets_are_those_of_the_start_the_end_and_a_time(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=2)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with Producer(log.address) as producer:
        for minute in range(4):
            producer.send(topic, b"x", partition=0, timestamp=noon + timedelta(minutes=minute))

    assert log.topics.offsets(topic, "start") == {0: 0, 1: 0}
    assert log.topics.offsets(topic) == {0: 4, 1: 0}
    assert log.topics.offsets(topic, noon + timedelta(minutes=2)) == {0: 2, 1: 0}
    assert log.topics.offsets(topic, noon + timedelta(seconds=61)) == {0: 2, 1: 0}
    assert log.topics.offsets(topic, noon + timedelta(hours=1)) == {0: 4, 1: 0}
    assert [part.latest for part in log.topics.describe(topic).partitions] == [4, 0]


def test_records_before_an_offset_can_be_removed(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=2)
    log.fill(topic, [b"%d" % i for i in range(10)], partitioner=lambda _key, _count: 0)

    assert log.topics.truncate(topic, {0: 7}) == {0: 7}
    assert log.topics.truncate(topic, {0: 3}) == {0: 7}
    assert log.values(topic) == [b"7", b"8", b"9"]
    with pytest.raises(InvalidInput, match="up to its end, 10; got 11"):
        log.topics.truncate(topic, {0: 11})
    with pytest.raises(InvalidInput, match="partitions 0 to 1; got an offset for partition 2"):
        log.topics.truncate(topic, {0: 8, 2: 0})
    assert log.topics.offsets(topic, "start") == {0: 7, 1: 0}


def test_adding_partitions_to_a_topic_with_records_warns(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=1)
    log.topics.alter(topic, partitions=2)
    log.fill(topic, [b"x"])

    with pytest.warns(UserWarning, match="5 instead of 2 partitions, keys go to other partitions"):
        grown = log.topics.alter(topic, partitions=5)

    assert len(grown.partitions) == 5


def test_partitions_cannot_be_removed(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=3)

    with pytest.raises(InvalidInput, match="at least the 3 partitions it has; got 2"):
        log.topics.alter(topic, partitions=2)


def test_a_refused_change_changes_nothing(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=1)
    log.fill(topic, [b"x"])

    with pytest.raises(InvalidInput, match=r"cleanup\.policy"):
        log.topics.alter(topic, partitions=2, settings={"cleanup.policy": "shred"})
    with pytest.raises(InvalidInput, match="from 1 on; got 0"):
        log.topics.alter(topic, partitions=0, settings={"retention.ms": 5})

    after = log.topics.describe(topic)
    assert (len(after.partitions), dict(after.settings)) == (1, {})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"retentin.ms": 5}, "got 'retentin.ms'; did you mean retention.ms"),
        ({"retention.ms": "a week"}, "retention.ms needs another value; got 'a week'"),
        ({"min.cleanable.dirty.ratio": 7}, "min.cleanable.dirty.ratio needs another value"),
        ({"retention.ms": None}, "retention.ms needs text, a number or a boolean; got None"),
        ({"retention.ms": [1]}, "retention.ms needs text, a number or a boolean; got [1]"),
        ({"retention.ms": float("nan")}, "retention.ms needs text"),
        ({"": 1}, "a topic setting needs a name"),
    ],
)
def test_a_wrong_setting_is_named_and_no_topic_is_created(
    log: Log, topic: str, settings: Any, said: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        log.topics.create(topic, settings=settings)

    assert topic not in [info.name for info in log.topics.list()]


def test_a_setting_given_twice_is_refused(log: Log, topic: str) -> None:
    with pytest.raises(InvalidInput, match=r"retention\.ms needs to be given once"):
        log.topics.create(topic, retention="1 day", settings={"retention.ms": 1})


def test_an_invalid_retention_is_refused(log: Log, topic: str) -> None:
    with pytest.raises(InvalidSpec, match="retention needs a duration"):
        log.topics.create(topic, retention="soon")


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "3"])
def test_counts_need_positive_whole_numbers(log: Log, topic: str, count: Any) -> None:
    with pytest.raises(InvalidInput, match=f"partitions needs .* got {count!r}"):
        log.topics.create(topic, partitions=count)
    with pytest.raises(InvalidInput, match=f"replicas needs .* got {count!r}"):
        log.topics.create(topic, replicas=count)


def test_more_replicas_than_brokers_are_refused(log: Log, topic: str) -> None:
    with pytest.raises(InvalidInput, match="replication factor of 3"):
        log.topics.create(topic, replicas=3)


def test_an_existing_topic_is_refused(log: Log, topic: str) -> None:
    first = log.topics.create(topic, partitions=2)

    with pytest.raises(InvalidInput, match=f"{topic}, which exists"):
        log.topics.create(topic)
    assert log.topics.create(topic, partitions=5, exists_ok=True) == first


def test_a_missing_topic_is_reported_with_similar_names(log: Log, topic: str) -> None:
    log.topics.create(topic)

    for call in (log.topics.describe, log.topics.delete, log.topics.offsets):
        with pytest.raises(NotFound, match=f"{topic}s does not exist; did you mean {topic}"):
            call(f"{topic}s")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_invalid_name_is_refused_before_any_request(name: Any) -> None:
    for call in (
        Topics(NOWHERE).create,
        Topics(NOWHERE).describe,
        Topics(NOWHERE).delete,
        Topics(NOWHERE).offsets,
    ):
        with pytest.raises(InvalidInput, match="a topic name needs"):
            call(name)


@given(st.text(st.sampled_from("abzAZ09._-/ üé\n*"), max_size=6))
def test_names_are_valid_exactly_when_kafka_accepts_them(name: str) -> None:
    legal = name not in {"", ".", ".."} and all(c in "abzAZ09._-" for c in name)

    if legal:
        assert check_topic(name) == name
    else:
        with pytest.raises(InvalidInput):
            check_topic(name)


def test_an_invalid_position_is_refused(log: Log, topic: str) -> None:
    log.topics.create(topic)

    with pytest.raises(InvalidInput, match=r"got 'yesterday'"):
        log.topics.offsets(topic, "yesterday")  # type: ignore[arg-type]

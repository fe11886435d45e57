"""`millstream produce` on a real broker: all of its input or none of it."""

from __future__ import annotations

import signal
import time
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message
    from tests.cli.command import Command

    from millstream.testing.local_broker import ThrowAwayBroker


def stored(broker: ThrowAwayBroker, topic: str, partitions: int = 2) -> list[Message]:
    """The committed records, read by a plain Kafka client, by partition."""
    settings = {
        "bootstrap.servers": broker.address,
        "group.id": "oracle",
        "enable.partition.eof": True,
    }
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, part, 0) for part in range(partitions)])
    found, ends = [], 0
    while ends < partitions:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            ends += 1
    consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def test_each_line_becomes_a_record_as_it_was_written(
    millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    said = millstream.ok("produce", clicks, "-p", "1", stdin='{"n": 1.10}\n\n"x"\n[1, 2]')
    assert said.out == ""
    assert said.err == f"sent 3 records to {clicks}\nwarning: 1 blank line was skipped\n"
    assert [message.value() for message in stored(broker, clicks)] == [
        b'{"n": 1.10}',
        b'"x"',
        b"[1, 2]",
    ]


def test_a_record_carries_key_headers_partition_and_time(
    millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    words = [
        "--key",
        "ann",
        "-H",
        "a=1",
        "-H",
        "a=2=2",
        "-p",
        "1",
        "--timestamp",
        "2026-01-01T12:00",
    ]
    millstream.ok("produce", clicks, "--value", "1", *words)
    [message] = stored(broker, clicks)
    assert (message.key(), message.value(), message.partition()) == (b"ann", b"1", 1)
    assert message.headers() == [("a", b"1"), ("a", b"2=2")]
    assert message.timestamp()[1] == 1767268800000


def test_keys_precede_the_separator_and_decide_the_partition(
    millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    lines = "".join(f"user-{n % 5}|{n}\n" for n in range(50))
    millstream.ok("produce", clicks, "--key-separator", "|", stdin=lines)
    found = stored(broker, clicks)
    assert len(found) == 50
    homes = {message.key(): message.partition() for message in found}
    assert all(homes[message.key()] == message.partition() for message in found)
    for key in homes:
        numbers = [int(message.value() or b"") for message in found if message.key() == key]
        assert numbers == sorted(numbers)


def test_plain_text_hexadecimal_and_tombstones(
    millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    to = ["produce", clicks, "-p", "0"]
    millstream.ok(*to, "--format", "text", stdin=b"hello\n\xff\n")
    millstream.ok(*to, "--format", "hex", "--value", "00ff")
    millstream.ok(*to, "--key", "ann", "--value", "", "--empty-as-null")
    found = [message.value() for message in stored(broker, clicks)]
    assert found == [b"hello", b"\xff", b"\x00\xff", None]


@pytest.mark.parametrize("line", ['{"n": 1', "hello", "NaN"])
def test_malformed_json_is_named_and_nothing_of_the_input_is_sent(
    line: str, millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    said = millstream("produce", clicks, stdin=f'{{"n": 1}}\n{line}\n{{"n": 3}}\n')
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith(f"error: line 2 needs JSON; got '{line}' (")
    assert "--format text" in said.err
    assert stored(broker, clicks) == []
    ends = millstream.ok("topics", "describe", clicks, "-o", "json").json["partitions"]
    assert [part["latest"] for part in ends] == [0, 0]


def test_a_malformed_value_is_named_by_its_number(millstream: Command, clicks: str) -> None:
    said = millstream("produce", clicks, "--value", "1", "--value", "oops")
    assert said.code == 2
    assert said.err.startswith("error: --value 2 needs JSON; got 'oops'")


def test_with_partial_the_lines_before_a_bad_one_are_sent_and_counted(
    millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    said = millstream("produce", clicks, "--partial", "-p", "0", stdin="1\n2\noops\n4\n")
    assert said.code == 2
    assert said.err.startswith(f"sent 2 records to {clicks}\nerror: line 3 needs JSON; got 'oops'")
    assert [message.value() for message in stored(broker, clicks)] == [b"1", b"2"]


def test_a_refusal_by_the_broker_half_way_leaves_nothing(
    millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    millstream.ok("topics", "alter", clicks, "--set", "max.message.bytes=1000")
    said = millstream("produce", clicks, "-f", "text", stdin="a\n" * 50 + token_hex(2500) + "\n")
    assert said.code != 0
    assert said.err.startswith("error: ")
    assert stored(broker, clicks) == []


def test_produce_killed_while_reading_has_sent_nothing(
    millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    process = millstream.process("produce", clicks, stdin=-1)
    assert process.stdin is not None
    process.stdin.write(b'{"n": 1}\n' * 1000)
    process.stdin.flush()
    time.sleep(1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert stored(broker, clicks) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--value", "1", "-p", "7"], "--partition needs one that"),
        (["--value", "1", "--key", "a", "--key-separator", ":"], "a record has one key"),
        (["--value", "1", "--key-separator", ""], "--key-separator needs at least one character"),
        (["--value", "1", "-H", "oops"], "--header needs NAME=VALUE; got 'oops'"),
        (["--value", "1", "--timestamp", "soon"], "--timestamp needs a point in time; got 'soon'"),
        (["--value", "1", "--timestamp", "1960-01-01"], "1970"),
        (["--value", "1", "--format", "xml"], "'xml'"),
        (["--value", "1", "-f", "hex"], "--value needs pairs of hexadecimal digits; got '1'"),
    ],
)
def test_a_bad_option_is_one_sentence_and_sends_nothing(
    words: list[str], sentence: str, millstream: Command, broker: ThrowAwayBroker, clicks: str
) -> None:
    said = millstream("produce", clicks, *words)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), said
    assert sentence in said.err
    assert stored(broker, clicks) == []


def test_empty_input_is_reported_and_sends_nothing(millstream: Command, clicks: str) -> None:
    said = millstream.ok("produce", clicks)
    assert said.err == "warning: the input is empty; nothing was sent\n"


def test_large_records_are_sent_to_a_topic_that_allows_them(
    millstream: Command, broker: ThrowAwayBroker, topic: str
) -> None:
    millstream.ok("topics", "create", topic, "--set", "max.message.bytes=3000000")
    large = token_hex(1_250_000)
    millstream.ok("produce", topic, "--format", "text", stdin=f"{large}\nsmall\n{large}\n")
    values = [message.value() for message in stored(broker, topic, partitions=1)]
    assert values == [large.encode(), b"small", large.encode()]
    said = millstream("produce", topic, "--format", "text", stdin=large * 2)
    assert said.code == 2
    assert "at most 3,000,000 bytes" in said.err

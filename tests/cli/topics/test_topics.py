"""`millstream topics` on a real broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.cli.command import Command

from millstream.kafka.admin.topics import Topics

if TYPE_CHECKING:
    from millstream.testing.local_broker import ThrowAwayBroker


def test_a_topic_is_created_listed_described_changed_and_deleted(
    millstream: Command, topic: str
) -> None:
    made = millstream.ok(
        "topics", "create", topic, "-p", "3", "--retention", "2 days", "--set", "segment.ms=60000"
    )
    assert (made.out, topic in made.err) == ("", True)

    row = next(
        row for row in millstream.ok("topics", "list", "-o", "json").json if row["topic"] == topic
    )
    assert row == {"topic": topic, "partitions": 3, "replicas": 1, "offsets_held": 0}

    found = millstream.ok("topics", "describe", topic, "-o", "json").json
    assert found["settings"] == {"retention.ms": "172800000", "segment.ms": "60000"}
    assert [part["partition"] for part in found["partitions"]] == [0, 1, 2]

    millstream.ok("topics", "alter", topic, "--set", "segment.ms=70000", "--unset", "retention.ms")
    found = millstream.ok("topics", "describe", topic, "-o", "json").json
    assert found["settings"] == {"segment.ms": "70000"}

    millstream.ok("topics", "delete", topic, "--yes")
    assert millstream("topics", "describe", topic).code == 4


def test_a_table_has_a_row_per_topic_and_no_colour_in_a_pipe(
    millstream: Command, clicks: str
) -> None:
    said = millstream.ok("topics", "list")
    assert said.out.startswith("TOPIC ")
    assert "PARTITIONS  REPLICAS  OFFSETS HELD" in said.out.splitlines()[0]
    assert [clicks, "2", "1", "0"] in [line.split() for line in said.out.splitlines()]
    assert "\x1b" not in said.out
    described = millstream.ok("topics", "describe", clicks).out
    assert [line.split() for line in described.splitlines()[:2]] == [
        ["topic", clicks], ["partitions", "2"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [["topics", "describe"], ["topics", "alter", "-p", "3"], ["topics", "delete", "--yes"],
     ["tail"], ["produce", "--value", "1"], ["groups", "reset", "g", "--to", "end", "--topic"]],
)  # fmt: skip
def test_an_unknown_topic_is_named_and_exit_is_4(
    words: list[str], millstream: Command, topic: str
) -> None:
    said = millstream(*words, topic)
    assert (said.code, said.out) == (4, "")
    assert said.err.startswith("error: ")
    assert f"the topic {topic} does not exist" in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("name", ["no spaces", "ü", "a/b", "", "x" * 250, ".."])
def test_a_topic_name_with_bad_characters_is_refused_before_any_call(name: str) -> None:
    for words in (["topics", "create"], ["topics", "describe"], ["topics", "delete", "--yes"]):
        said = Command("127.0.0.1:1")(*words, "--", name)
        assert said.code == 2, said
        assert "a topic name needs" in said.err
        assert repr(name[:40])[:-1] in said.err


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("retention.ms=soon", "retention.ms needs another value; got 'soon'"),
        ("retention.msec=5", "got 'retention.msec'; did you mean retention.ms"),
        ("retention.ms", "--set needs NAME=VALUE; got 'retention.ms'"),
    ],
)
def test_a_wrong_setting_is_named_and_changes_nothing(
    setting: str, sentence: str, millstream: Command, clicks: str, topic: str
) -> None:
    said = millstream("topics", "create", f"{topic}-new", "--set", setting)
    assert (said.code, said.out) == (2, "")
    assert sentence in said.err
    assert millstream("topics", "describe", f"{topic}-new").code == 4

    said = millstream(
        "topics", "alter", clicks, "--set", setting, "--set", "segment.ms=60000", "-p", "5"
    )
    assert said.code == 2
    assert sentence in said.err
    found = millstream.ok("topics", "describe", clicks, "-o", "json").json
    assert (found["settings"], len(found["partitions"])) == ({}, 2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--partitions", "0"], "partitions needs a whole number from 1 on; got 0"),
        (["--partitions", "many"], "--partitions needs a valid integer; got 'many'"),
        (["--replicas", "9"], "replication factor"),
        (["--retention", "soon"], "--retention needs a duration above zero; got 'soon'"),
        (["--retention", "-1 day"], "--retention needs a duration above zero; got '-1 day'"),
        (["--nonsense"], "no such option: --nonsense"),
    ],
)
def test_a_bad_option_is_one_sentence_and_exit_2(
    words: list[str], sentence: str, millstream: Command, topic: str
) -> None:
    said = millstream("topics", "create", topic, *words)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), said
    assert sentence.lower() in said.err.lower()
    assert millstream("topics", "describe", topic).code == 4


def test_an_existing_topic_is_refused_or_accepted_as_requested(
    millstream: Command, clicks: str
) -> None:
    said = millstream("topics", "create", clicks)
    assert said.code == 2
    assert "add --if-not-exists" in said.err
    millstream.ok("topics", "create", clicks, "--if-not-exists")


def test_adding_partitions_to_a_topic_with_records_warns_that_keys_move(
    millstream: Command, clicks: str
) -> None:
    millstream.ok("produce", clicks, "--value", "1")
    said = millstream.ok("topics", "alter", clicks, "--partitions", "3")
    assert said.err.startswith(f"warning: {clicks} holds records")


def test_deleting_asks_and_without_a_terminal_does_nothing(
    millstream: Command, clicks: str
) -> None:
    said = millstream("topics", "delete", clicks)
    assert said.code == 2
    assert f"a yes is needed to delete {clicks}" in said.err
    assert "got no terminal to ask at; add --yes" in said.err
    assert (
        f"would delete {clicks} (up to 0 records)"
        in millstream.ok("topics", "delete", clicks, "--dry-run").err
    )
    millstream.ok("topics", "describe", clicks)


def test_one_unknown_name_among_several_deletes_none(millstream: Command, clicks: str) -> None:
    assert millstream("topics", "delete", "--yes", clicks, "not-there").code == 4
    millstream.ok("topics", "describe", clicks)


@pytest.mark.parametrize(
    "words",
    [["topics", "list"], ["topics", "create", "x"], ["groups", "list"], ["groups", "describe", "x"],
     ["produce", "x", "--value", "1"], ["tail", "x"], ["status"]],
)  # fmt: skip
def test_an_unreachable_broker_is_reported_within_seconds(words: list[str]) -> None:
    began = time.monotonic()
    said = Command("127.0.0.1:1")(*words)
    assert time.monotonic() - began < 15
    assert (said.code, said.out, said.err.count("\n")) == (5, "", 1), said
    assert "127.0.0.1:1" in said.err
    assert "millstream up" in said.err


def test_no_kafka_at_all_says_how_to_get_one(offline: Command) -> None:
    said = offline("topics", "list")
    assert said.code == 5
    assert "start one with `millstream up`, or name one with --kafka" in said.err


def test_an_invalid_address_is_invalid_input(offline: Command) -> None:
    said = offline("topics", "list", "--kafka", "localhost")
    assert said.code == 2
    assert "needs host:port" in said.err
    assert "'localhost'" in said.err


def test_the_option_wins_over_the_variable(broker: ThrowAwayBroker, clicks: str) -> None:
    said = Command("127.0.0.1:1").ok("topics", "list", "--kafka", broker.address, "-v")
    assert clicks in said.out
    assert f"kafka at {broker.address}" in said.err
    assert clicks in {info.name for info in Topics(broker.address).list()}


def test_quiet_prints_only_errors(millstream: Command, topic: str) -> None:
    assert millstream.ok("topics", "create", topic, "--quiet").err == ""
    assert millstream.ok("-q", "topics", "delete", topic, "-y").err == ""
    assert millstream("topics", "describe", topic, "--quiet").err.startswith("error: ")

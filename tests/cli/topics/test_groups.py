"""`millstream groups` on a real broker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from millstream.kafka.clients.consuming.consumer import Consumer

if TYPE_CHECKING:
    from tests.cli.command import Command

    from millstream.testing.local_broker import ThrowAwayBroker


@pytest.fixture
def group(millstream: Command, broker: ThrowAwayBroker, clicks: str) -> str:
    """A group that has read all six records of `clicks` and left."""
    millstream.ok("produce", clicks, "--partition", "0", stdin="1\n2\n3\n")
    millstream.ok("produce", clicks, "--partition", "1", stdin="1\n2\n3\n")
    name = f"{clicks}-readers"
    with Consumer(
        clicks, kafka=broker.address, group=name, start="start", until_end=True
    ) as reader:
        assert len(list(reader)) == 6
    return name


def positions(millstream: Command, group: str) -> list[int | None]:
    found = millstream.ok("groups", "describe", group, "-o", "json").json
    return [part["committed"] for part in found["partitions"]]


def test_a_group_is_listed_and_described(millstream: Command, clicks: str, group: str) -> None:
    rows = millstream.ok("groups", "list", "-o", "json").json
    assert {"group": group, "state": "empty"} in rows

    found = millstream.ok("groups", "describe", group, "-o", "json").json
    assert (found["group"], found["state"], found["members"]) == (group, "empty", [])
    assert [part["partition"] for part in found["partitions"]] == [0, 1]
    lag = sum(part["end"] - part["committed"] for part in found["partitions"])

    rows = millstream.ok("groups", "list", "--lag", "-o", "json").json
    more = {"members": 0, "topics": [clicks], "lag": lag}
    assert {"group": group, "state": "empty", **more} in rows

    said = millstream.ok("groups", "describe", group)
    assert "COMMITTED" in said.out
    assert said.err == "no members\n"


def test_a_reset_moves_the_group_and_shows_where_it_was(
    millstream: Command, clicks: str, group: str
) -> None:
    before = positions(millstream, group)
    to = ["groups", "reset", group, "--topic", clicks, "--to"]

    dry = millstream.ok(*to, "beginning", "--dry-run", "-o", "json")
    assert dry.json == [
        {"topic": clicks, "partition": part, "old": before[part], "new": 0} for part in (0, 1)
    ]
    assert "nothing was changed" in dry.err
    assert positions(millstream, group) == before

    assert millstream.ok(*to, "beginning", "-o", "json").json == dry.json
    assert positions(millstream, group) == [0, 0]
    millstream.ok(*to, "@2")
    assert positions(millstream, group) == [2, 2]
    millstream.ok(*to, "-1h")
    assert positions(millstream, group) == [0, 0]


def test_a_reset_is_refused_while_the_group_has_members(
    millstream: Command, broker: ThrowAwayBroker, clicks: str, group: str
) -> None:
    with Consumer(clicks, kafka=broker.address, group=group) as reader:
        reading = threading.Thread(target=lambda: list(reader))
        reading.start()
        try:
            while not reader.assignment():
                time.sleep(0.05)
            said = millstream("groups", "reset", group, "--topic", clicks, "--to", "end")
        finally:
            reader.stop()
            reading.join()
    assert (said.code, said.out) == (1, "")
    assert f"resetting the group {group} needs it to have no active members" in said.err


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["describe", "nobody"], 4, "the group nobody does not exist"),
        (
            ["reset", "GROUP", "--topic", "TOPIC", "--to", "soon"],
            2,
            "--to needs a point in time; got 'soon'",
        ),
        (["reset", "GROUP", "--topic", "TOPIC", "--to", "@99"], 2, "needs an offset up to its end"),
        (["reset", "GROUP", "--topic", "TOPIC"], 2, "missing option '--to'"),
        (["reset", "nobody", "--topic", "TOPIC", "--to", "end"], 4, "nobody does not exist"),
    ],
)
def test_invalid_input_is_one_sentence_and_changes_nothing(
    words: list[str], code: int, sentence: str, millstream: Command, clicks: str, group: str
) -> None:
    before = positions(millstream, group)
    names = {"GROUP": group, "TOPIC": clicks}
    said = millstream("groups", *(names.get(word, word) for word in words))
    assert (said.code, said.out, said.err.count("\n")) == (code, "", 1), said
    assert sentence in said.err
    assert positions(millstream, group) == before

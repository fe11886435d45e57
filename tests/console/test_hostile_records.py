"""Hostile records, read by every route that shows records: bounded, escaped, valid JSON."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.console.hostile import HOSTILE
from tests.console.streams import Stream

from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer
from millstream.viewing.record_json import ALONE, IN_A_LIST

if TYPE_CHECKING:
    from tests.console.serving import Served

    from millstream.testing.local_broker import ThrowAwayBroker

LARGEST = 20_000_000
STEERING = {"Cc", "Cs", "Zl", "Zp"}
DIRECTIONS = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")


@pytest.fixture(scope="module")
def hostile(broker: ThrowAwayBroker) -> str:
    """A topic with every hostile record as value, key and header."""
    name = "hostile-records"
    Topics(broker.address).create(name, settings={"max.message.bytes": LARGEST})
    with Producer(broker.address, settings={"message.max.bytes": LARGEST}) as producer:
        for number, (word, value) in enumerate(HOSTILE.items()):
            small = (value or b"")[:5_000]
            producer.send(name, value, key=word.encode() + small, timestamp=1_000_000 + number,
                          headers={"name": word, f"<b>{word}\u202e": small})  # fmt: skip
    return name


def steering(value: Any) -> set[str]:
    """Control characters and direction marks anywhere in a response."""
    if isinstance(value, str):
        return {one for one in value if one not in "\n\r\t"
                and (one in DIRECTIONS or unicodedata.category(one) in STEERING)}  # fmt: skip
    if isinstance(value, dict):
        return set().union(*map(steering, [*value.keys(), *value.values()]))
    return set().union(*map(steering, value)) if isinstance(value, list) else set()


def by_word(page: Any) -> dict[str, Any]:
    return {record["headers"][0]["value"]["text"]: record for record in page["records"]}


def whole(console: Served, hostile: str) -> dict[str, Any]:
    """All records, read page by page."""
    found: dict[str, Any] = {}
    folder = "at=beginning"
    while True:
        answer = console(f"/api/topics/{hostile}/records?{folder}&limit=200")
        assert answer.status == 200
        assert len(answer.body) < 2_000_000
        page = answer.json
        found |= by_word(page)
        if page["later"] is None:
            return found
        folder = f"from={quote(page['later'])}"


def test_every_hostile_record_is_shown_bounded_and_escaped(
    kafka_console: Served, hostile: str
) -> None:
    found = whole(kafka_console, hostile)
    assert set(found) == set(HOSTILE)
    assert steering(list(found.values())) == set()
    for word, record in found.items():
        body, value = record["value"], HOSTILE[word]
        assert len(body["text"]) <= IN_A_LIST.value
        assert body["size"] == len(value or b"")
        assert body["cut"] == (len(value or b"") > IN_A_LIST.value)
    kinds = {word: record["value"]["kind"] for word, record in found.items()}
    assert kinds == {
        "script": "json", "image": "text", "bidirectional": "json", "bidirectional text": "text",
        "line separators": "json", "broken utf-8": "bytes", "half a surrogate": "json",
        "nan": "text", "huge number": "json", "precise number": "json", "nested": "json",
        "nested beyond reason": "text", "unclosed": "text", "same name twice": "json",
        "empty": "text", "none": "none", "byte order mark": "text", "prototype": "json",
        "end of stream": "text", "large": "json",
    }  # fmt: skip


def test_json_that_is_shown_is_still_the_same_json(kafka_console: Served, hostile: str) -> None:
    for word, record in whole(kafka_console, hostile).items():
        body = record["value"]
        if body["kind"] == "json" and not body["cut"]:
            assert json.loads(body["text"]) == json.loads(HOSTILE[word] or b""), word


def test_numbers_are_not_rounded(kafka_console: Served, hostile: str) -> None:
    record = whole(kafka_console, hostile)["precise number"]
    assert "12345678901234567890.123456789" in record["value"]["text"]


def test_a_single_record_is_truncated_and_has_its_full_size(
    kafka_console: Served, hostile: str
) -> None:
    offset = list(HOSTILE).index("large")
    answer = kafka_console(f"/api/topics/{hostile}/records/0/{offset}")
    assert len(answer.json["value"]["text"]) == ALONE.value
    assert answer.json["value"]["cut"]
    assert answer.json["value"]["size"] > 10_000_000


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("name like '<script>%'", {"script"}),
        ("name like '%x%x%x%x%x%x%x%x%x%x%x%x%x%y'", set()),
        ("n > 1000000000000", {"huge number", "precise number"}),
        ("`0`.0.0.0.0.0 is not null", {"nested"}),
        ("__proto__.polluted", {"prototype"}),
        ("__class__ is not null or __dict__ is not null", set()),
        ("n = 2", {"bidirectional", "same name twice"}),
    ],
)
def test_a_condition_can_be_evaluated_on_hostile_records(
    kafka_console: Served, hostile: str, condition: str, words: set[str]
) -> None:
    path = f"/api/topics/{hostile}/records?at=beginning&where={quote(condition)}"
    found: set[str] = set()
    page = kafka_console(path).json
    found |= set(by_word(page))
    while page["later"] is not None:
        more = f"/api/topics/{hostile}/records?where={quote(condition)}&from={quote(page['later'])}"
        page = kafka_console(more).json
        found |= set(by_word(page))
    assert found == words


def test_hostile_records_cannot_forge_events_of_a_stream(
    kafka_console: Served, broker: ThrowAwayBroker, topic: str
) -> None:
    Topics(broker.address).create(topic)
    small = {word: value for word, value in HOSTILE.items() if len(value or b"") < 100_000}
    with Stream(kafka_console, f"/api/topics/{topic}/follow") as stream:
        stream.next()
        with Producer(broker.address) as producer:
            for word, value in small.items():
                producer.send(topic, value, headers={"name": word})
        update = stream.until(len(small))
    assert set(by_word(update)) == set(small)
    assert steering(update) == set()

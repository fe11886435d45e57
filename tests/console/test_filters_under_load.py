"""Deliberately slow filters do not delay other requests, and end in time."""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.jobs.stacks import Stack

from millstream.jobs.registry import JobRegistry
from millstream.jobs.stack import page_address
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.local_broker import ThrowAwayBroker

SIZE, RECORDS, AT_ONCE = 900_000, 60, 8
VALUES = {
    "text": json.dumps({"v": "a" * SIZE}).encode(),
    "numbers": b'{"a":1,"v":[' + b"1e-300," * (SIZE // 7) + b"1]}",
}
SLOW = {
    "alternating": "v like '%" + "_a" * 450 + "b%'",
    "wild at the end": "v like '%" + "a" * 400 + "_" * 400 + "b%'",
    "many pieces": "v like '" + "%a_" * 300 + "b%'",
    "keys that are no text": " or ".join(["_key = 'a'"] * 140),
    "numbers to read": "a = 2",
    "numbers to show": "a = 1",
    "many headers": " or ".join(["_headers.none = 'a'"] * 80),
}


@pytest.fixture(scope="module")
def console(broker: ThrowAwayBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """A console in a separate process, over a topic of large values."""
    stack = Stack(tmp_path_factory.mktemp("stack") / "home", broker.address)
    mark = uuid.uuid4().hex[:8]
    with Producer(kafka=broker.address) as producer:
        for topic, value in VALUES.items():
            Topics(broker.address).create(f"{topic}-{mark}", partitions=1)
            for _ in range(RECORDS):
                producer.send(f"{topic}-{mark}", value, key=b"\xff" * 40_000,
                              headers=[(f"h{number}", b"x") for number in range(200)])  # fmt: skip
    try:
        stack.up()
        yield Real(stack, mark)
    finally:
        stack.millstream("down")
        for process in stack.processes():
            process.kill()


class Real:
    """Sends requests to the console's process."""

    def __init__(self, stack: Stack, mark: str) -> None:
        with JobRegistry(stack.folder.registry, read_only=True) as registry:
            self.port = page_address(registry).port
        self.token, self.mark = stack.folder.token(), mark

    def ask(self, path: str) -> tuple[int, Any, float]:
        """The status, the body and the duration."""
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body, time.monotonic() - began

    def records(self, topic: str, where: str) -> tuple[int, Any, float]:
        path = (
            f"/api/topics/{topic}-{self.mark}/records?at=beginning&limit=200&where={quote(where)}"
        )
        status, body, seconds = self.ask(path)
        return status, json.loads(body), seconds


@pytest.mark.parametrize("name", SLOW)
def test_concurrent_slow_filters_keep_the_page_responsive_and_end_in_time(
    console: Real, name: str
) -> None:
    answers: list[tuple[int, Any, float]] = []
    topic = "numbers" if name.startswith("numbers") else "text"

    def run() -> None:
        answers.append(console.records(topic, SLOW[name]))

    threads = [threading.Thread(target=run) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    waits: list[float] = []
    while any(thread.is_alive() for thread in threads):
        status, _, seconds = console.ask("/healthz")
        assert status == 200
        waits.append(seconds)
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    slowest = max(seconds for _, _, seconds in answers)
    print(f"{name}: slowest {slowest:.2f} s, /healthz median {statistics.median(waits):.3f} s, "
          f"worst {max(waits):.3f} s")  # fmt: skip
    assert [status for status, _, _ in answers] == [200] * AT_ONCE
    assert all(body["scanned"] > 0 for _, body, _ in answers)
    assert all(body["complete"] or body["later"] for _, body, _ in answers)
    assert statistics.median(waits) < 0.2
    assert max(waits) < 1.5
    assert slowest < 10

"""A process exits although its clients were not closed: at once, or soon if Kafka is down."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer
from millstream.testing import broker as started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.local_broker import ThrowAwayBroker

AT_ONCE, LATEST = 3.0, 8.0

STOPPED = """
    consumer = ms.Consumer(topic, kafka=kafka, group="stopped-{down}")
    for count, record in enumerate(consumer, start=1):
        if count == 5_000:
            {pause}
            threading.Timer({more}, consumer.stop).start()
"""
SHARING = """
    queue = ms.ShareConsumer(topic, kafka=kafka, group="sharing-{down}")
    for count, record in enumerate(queue, start=1):
        if count == 50:
            {pause}
            queue.stop()
"""
SENDING = """
    producer = ms.Producer(kafka)
    producer.send(topic, b"first")
    producer.flush()
    {pause}
    for number in range(1_000):
        producer.send(topic, b"more")
"""
IN_TRANSACTION = """
    producer = ms.Producer(kafka, transactional_id="exits-{down}")
    transaction = producer.transaction()
    transaction.__enter__()
    producer.send(topic, b"first")
    producer.flush()
    {pause}
"""


@pytest.fixture(scope="module")
def apart() -> Iterator[ThrowAwayBroker]:
    """A broker that these tests may pause."""
    with started() as running:
        Topics(running.address).create("t")
        with Producer(running.address) as producer:
            producer.send_many("t", (b"%d" % number for number in range(300_000)))
        yield running


@pytest.mark.parametrize("down", [False, True], ids=["Kafka is up", "Kafka is down"])
@pytest.mark.parametrize("code", [STOPPED, SHARING, SENDING, IN_TRANSACTION])
def test_a_process_exits(apart: ThrowAwayBroker, code: str, down: bool) -> None:
    """A commit is in progress when Kafka goes down: the client waits for its response."""
    halt = f"os.kill({apart.pid}, signal.SIGSTOP)" if down else "pass"
    source = "import os, signal, threading\nimport millstream as ms\n"
    source += f"topic, kafka = 't', {apart.address!r}\n"
    body = dedent(code).format(down=down, pause=halt, more=3 if down else 0)
    source += body + "print('done', flush=True)\n"
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        watch = threading.Timer(30.0, process.kill)
        watch.start()
        try:
            assert process.stdout.readline() == "done\n"
            began = time.monotonic()
            assert process.wait() == 0
            assert time.monotonic() - began < (LATEST if down else AT_ONCE)
        finally:
            watch.cancel()
            process.kill()
            apart.resume()

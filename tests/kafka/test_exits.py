"""A process ends although its clients were not closed: at once, or after a moment without Kafka."""

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
    consumer = ms.Consumer(topic, kafka=kafka, group="stopped-{away}")
    for count, record in enumerate(consumer, start=1):
        if count == 5_000:
            {away_now}
            threading.Timer({more}, consumer.stop).start()
"""
SHARING = """
    queue = ms.ShareConsumer(topic, kafka=kafka, group="sharing-{away}")
    for count, record in enumerate(queue, start=1):
        if count == 50:
            {away_now}
            queue.stop()
"""
SENDING = """
    producer = ms.Producer(kafka)
    producer.send(topic, b"first")
    producer.flush()
    {away_now}
    for number in range(1_000):
        producer.send(topic, b"more")
"""
IN_TRANSACTION = """
    producer = ms.Producer(kafka, transactional_id="exits-{away}")
    transaction = producer.transaction()
    transaction.__enter__()
    producer.send(topic, b"first")
    producer.flush()
    {away_now}
"""


@pytest.fixture(scope="module")
def apart() -> Iterator[ThrowAwayBroker]:
    """A broker that can be halted."""
    with started() as running:
        Topics(running.address).create("t")
        with Producer(running.address) as producer:
            producer.send_many("t", (b"%d" % number for number in range(300_000)))
        yield running


@pytest.mark.parametrize("away", [False, True], ids=["Kafka is there", "Kafka is away"])
@pytest.mark.parametrize("code", [STOPPED, SHARING, SENDING, IN_TRANSACTION])
def test_a_process_ends(apart: ThrowAwayBroker, code: str, away: bool) -> None:
    """What is under way when Kafka goes away is a commit: a client waits for its answer."""
    halt = f"os.kill({apart.pid}, signal.SIGSTOP)" if away else "pass"
    source = "import os, signal, threading\nimport millstream as ms\n"
    source += f"topic, kafka = 't', {apart.address!r}\n"
    body = dedent(code).format(away=away, away_now=halt, more=3 if away else 0)
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
            assert time.monotonic() - began < (LATEST if away else AT_ONCE)
        finally:
            watch.cancel()
            process.kill()
            apart.resume()

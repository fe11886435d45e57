from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.kafka.shortly import Log, eventually

from millstream.errors import Unavailable
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.producing.producer import Producer
from millstream.kafka.settings import Cluster
from millstream.testing import broker as started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.kafka.clients.producing.delivery_reports import Delivery
    from millstream.testing.local_broker import ThrowAwayBroker

CALLS: dict[str, Callable[[str], object]] = {
    "ping": lambda at: Cluster(at).ping(),
    "list": lambda at: Topics(at).list(),
    "create": lambda at: Topics(at).create("t"),
    "describe": lambda at: Topics(at).describe("t"),
    "groups": lambda at: Topics(at).groups(),
    "group": lambda at: Topics(at).group("g"),
    "send": lambda at: Producer(at).send("t", b"v"),
    "send_many": lambda at: Producer(at).send_many("t", [b"v"]),
    "transaction": lambda at: Producer(at, transactional_id="x").transaction().__enter__(),
    "consumer": lambda at: Consumer("t", kafka=at),
    "member": lambda at: Consumer("t", kafka=at, group="g"),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_fails_at_once_if_no_broker_listens(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = time.monotonic()
    with pytest.raises(
        Unavailable, match=r"127\.0\.0\.1:1 to answer; got .*refused.*millstream up"
    ):
        CALLS[name]("127.0.0.1:1")

    assert time.monotonic() - begun < 5
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_every_call_fails_within_five_seconds_if_the_broker_does_not_answer(
    silent: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def error_of(name: str) -> str:
        with pytest.raises(Unavailable) as raised:
            CALLS[name](silent)
        return str(raised.value)

    begun = time.monotonic()
    with ThreadPoolExecutor(len(CALLS)) as pool:
        errors = list(pool.map(error_of, CALLS))

    assert time.monotonic() - begun < 6
    assert all(f"{silent} to answer" in error for error in errors)
    assert capfd.readouterr() == ("", "")


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(Unavailable, match=r"nowhere\.invalid:9092 .* resolve"):
        Topics("nowhere.invalid:9092").list()


def test_a_server_that_is_not_kafka_counts_as_unavailable() -> None:
    def answer(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1024)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        with pytest.raises(Unavailable, match="to answer"):
            Cluster(f"127.0.0.1:{server.getsockname()[1]}").ping()


def test_the_error_of_a_failed_login_does_not_contain_the_password(
    broker: ThrowAwayBroker, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    canary = "canary-51e0"
    cluster = Cluster(
        broker.address,
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ada",
            "sasl.password": canary,
        },
    )

    with pytest.raises(Unavailable) as refused:
        cluster.ping()

    output = f"{refused.value!r} {refused.value} {caplog.text} {capfd.readouterr()}"
    assert canary not in output


class Appender(threading.Thread):
    """Sends numbers until `ending` is set, and records which were acknowledged."""

    def __init__(self, log: Log, topic: str, *, idempotent: bool) -> None:
        super().__init__()
        self.acknowledged: list[bytes | None] = []
        self.sent = 0
        self.ending = threading.Event()
        self._topic, self._idempotent = topic, idempotent
        self._producer = Producer(
            log.address, idempotent=idempotent, on_delivery=self._on_delivery, linger="1 ms"
        )

    def _on_delivery(self, delivery: Delivery) -> None:
        if delivery.error is None:
            self.acknowledged.append(delivery.value)

    def run(self) -> None:
        with self._producer as producer:
            while not self.ending.is_set():
                producer.send(self._topic, str(self.sent), key=str(self.sent % 7))
                self.sent += 1
                time.sleep(0.001)
            producer.flush("60 seconds")


class Reader(threading.Thread):
    """Reads a topic through the outage."""

    def __init__(self, log: Log, topic: str) -> None:
        super().__init__()
        self.values: list[bytes | None] = []
        self.consumer = log.consumer(topic)

    def run(self) -> None:
        with self.consumer as consumer:
            self.values.extend(record.value for record in consumer)


def test_a_killed_broker_neither_loses_nor_duplicates_acknowledged_records() -> None:
    with started() as running:
        log = Log(running.address)
        for name in ("idempotent", "plain"):
            log.topics.create(name, partitions=2)
        appenders = {
            "idempotent": Appender(log, "idempotent", idempotent=True),
            "plain": Appender(log, "plain", idempotent=False),
        }
        reader = Reader(log, "idempotent")
        threads = [*appenders.values(), reader]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        running.kill()
        time.sleep(1)
        running.start()
        time.sleep(0.5)
        for appender in appenders.values():
            appender.ending.set()
            appender.join()
        sent = appenders["idempotent"].sent
        eventually(lambda: len(reader.values) >= sent)
        reader.consumer.stop()
        reader.join()
        records = {name: log.read(name) for name in appenders}

    for name, appender in appenders.items():
        numbers = [str(i).encode() for i in range(appender.sent)]
        assert sorted(map(str, appender.acknowledged)) == sorted(map(str, numbers))
        assert set(numbers) == {record.value for record in records[name]}, "acknowledged and lost"
    once = Counter(record.value for record in records["idempotent"])
    assert set(once.values()) == {1}, "sent twice"
    for key in range(7):
        own = [it.value for it in records["idempotent"] if it.key == str(key).encode()]
        assert own == [str(i).encode() for i in range(key, sent, 7)], "out of order"
    assert Counter(reader.values) == once, "the reader missed or repeated something"


def test_clients_raise_during_an_outage_and_continue_after_it() -> None:
    with started() as running:
        log = Log(running.address)
        log.topics.create("t")
        log.fill("t", [b"0", b"1"])
        lone = log.consumer("t", patience="500 ms")
        member = log.consumer("t", group="g", commit="manual")
        producer = Producer(log.address)
        producer.send("t", b"2")
        producer.flush()
        assert next(iter(member)).value == b"0"
        running.kill()

        begun = time.monotonic()
        producer.send("t", b"3")
        with pytest.raises(
            Unavailable, match=r"1 sent record needs an acknowledgement .* within 500 ms"
        ):
            producer.flush("500 ms")
        with pytest.raises(Unavailable, match="to answer"):
            member.commit()
        read = iter(lone)
        assert [next(read).value for _ in range(3)] == [b"0", b"1", b"2"]
        with pytest.raises(Unavailable, match="to answer"):
            next(read)
        assert time.monotonic() - begun < 20
        running.start()

        producer.close()
        assert next(iter(lone)).value == b"3"
        assert next(iter(member)).value == b"1"
        member.commit()
        for consumer in (lone, member):
            consumer.close()
        assert log.values("t") == [b"0", b"1", b"2", b"3"]
        assert log.values("t", group="g") == [b"2", b"3"]

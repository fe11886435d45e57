"""The local broker: real processes are started, refused, killed, restarted and cleaned up."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millstream import testing
from millstream.errors import (
    AlreadyRunning,
    Unavailable,
)
from millstream.kafka.local import broker as local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.testing.local_broker import ThrowAwayBroker

START = "import sys; from pathlib import Path; from millstream.kafka.local import broker\n"
QUIET = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}


@pytest.fixture(scope="module")
def hurt() -> Iterator[ThrowAwayBroker]:
    """A broker that these tests may kill and pause, unlike the shared one."""
    began = time.monotonic()
    with testing.broker(settings={"num.partitions": 3}) as broker:
        print(f"\nbroker ready in {time.monotonic() - began:.2f} s, folder and format included")
        yield broker
    assert not broker.folder.exists()


@pytest.fixture(scope="module")
def formatted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose broker has run before, and is down before and after each test."""
    folder = tmp_path_factory.mktemp("brokers") / "räder, und mühlen"
    local.start(folder, timeout=60)
    local.stop(folder)
    yield folder
    assert brokers_in(folder) == []


def python(
    code: str,
    *arguments: object,
    stderr: int | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment,
    )


def brokers_in(folder: Path) -> list[int]:
    """Processes whose working directory is the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def eventually(condition: Callable[[], bool], seconds: float = 20) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def all_values(address: str, topic: str) -> list[bytes | None]:
    """All values of the topic's partition 0, read to its end."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "oracle",
                         "enable.partition.eof": True, **QUIET})  # fmt: skip
    values: list[bytes | None] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            for message in consumer.consume(10_000, timeout=0.2):
                error = message.error()
                if error is None:
                    values.append(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    return values
                else:
                    pytest.fail(str(error))
    finally:
        consumer.close()


def test_of_two_concurrent_starts_one_succeeds_and_its_broker_outlives_it(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    code = START + (
        "from millstream.errors import AlreadyRunning\n"
        "try: print(broker.start(Path(sys.argv[1]), timeout=60).pid)\n"
        "except AlreadyRunning as error: print(error)"
    )
    began = time.monotonic()
    starters = [python(code, folder) for _ in range(2)]
    output = sorted(starter.communicate()[0].strip() for starter in starters)
    print(f"\nbroker ready in {time.monotonic() - began:.2f} s, two Python starts included")
    try:
        assert output[0].isdigit(), output
        assert output[1].startswith(f"the folder {folder} runs at most one broker; got one ")
        assert output[1].endswith("; use that one, or stop it with `millstream down`")

        status = local.status(folder)
        assert (status.running, status.answering, status.pid) == (True, True, int(output[0]))
        assert brokers_in(folder) == [status.pid]
        assert status.address == local.running_address(folder)
        assert status.started == pytest.approx(time.time(), abs=120)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        print(f"resident: {psutil.Process(status.pid).memory_info().rss >> 20} MB")
        listening = {
            connection.laddr[0]
            for connection in psutil.Process(status.pid).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
        client = AdminClient({"bootstrap.servers": str(status.address), **QUIET})
        assert eventually(
            lambda: (
                {"__consumer_offsets", "__transaction_state"} == set(client.list_topics().topics)
            )
        )
        with pytest.raises(AlreadyRunning, match=rf"\(pid {status.pid}, {status.address}\)"):
            local.start(folder)
    finally:
        stopped = local.stop(folder)
    assert stopped
    assert brokers_in(folder) == []
    status = local.status(folder)
    assert (status.running, status.answering, status.pid, status.started) == (
        False, False, None, None
    )  # fmt: skip
    assert local.running_address(folder) is None
    assert local.stop(folder) is False


def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(
    hurt: ThrowAwayBroker, topic: str
) -> None:
    acknowledged: list[bytes | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(message.value())

    producer = Producer({"bootstrap.servers": hurt.address, "enable.idempotence": True,
                         "batch.num.messages": 100, **QUIET})  # fmt: skip
    sent = [f"{number:06}".encode() for number in range(50_000)]
    for value in sent:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    while len(acknowledged) < 1_000:
        producer.poll(0.001)
    hurt.kill()
    producer.poll(0)
    assert hurt.status().running is False
    assert len(acknowledged) < len(sent)
    address, before = hurt.address, set(acknowledged)
    began = time.monotonic()
    hurt.start()
    print(f"\nback after kill -9 in {time.monotonic() - began:.2f} s")
    assert hurt.status().address == address
    survivors = all_values(address, topic)
    assert before <= set(survivors)
    assert producer.flush(60) == 0
    assert set(acknowledged) == set(sent)
    assert all_values(address, topic) == sent


def test_a_paused_broker_runs_without_answering(hurt: ThrowAwayBroker, topic: str) -> None:
    hurt.pause()
    try:
        assert eventually(lambda: not hurt.status().answering)  # its threads stop one by one
        status = hurt.status()
        assert (status.running, status.answering) == (True, False)
        assert status.pid is not None
    finally:
        hurt.resume()
    assert eventually(lambda: hurt.status().answering)
    producer = Producer({"bootstrap.servers": hurt.address, **QUIET})
    producer.produce(topic, b"after the pause", partition=0)
    assert producer.flush(30) == 0
    assert all_values(hurt.address, topic) == [b"after the pause"]


def test_records_with_old_or_future_timestamps_stay_unless_the_topic_has_a_retention(
    broker: ThrowAwayBroker, topic: str
) -> None:
    brief = NewTopic(f"{topic}-brief", 1, 1, config={"retention.ms": "1000"})
    client = AdminClient({"bootstrap.servers": broker.address, **QUIET})
    client.create_topics([NewTopic(topic, 1, 1), brief])[brief.topic].result()
    producer = Producer({"bootstrap.servers": broker.address, **QUIET})
    year_2000, year_2100 = 946_684_800_000, 4_102_444_800_000
    producer.produce(brief.topic, b"old", timestamp=year_2000)
    producer.produce(topic, b"old", timestamp=year_2000)
    producer.produce(topic, b"future", timestamp=year_2100)
    assert producer.flush(30) == 0
    assert eventually(lambda: all_values(broker.address, brief.topic) == [])
    assert all_values(broker.address, topic) == [b"old", b"future"]


def test_stop_kills_a_broker_that_does_not_exit_in_time_and_reports_it(formatted: Path) -> None:
    local.start(formatted, timeout=60)
    local.pause(formatted)
    reported: list[str] = []
    assert local.stop(formatted, timeout=0, say=reported.append)
    assert reported == [f"the broker in {formatted} did not exit within 0 s and was killed"]
    assert brokers_in(formatted) == []


def test_another_process_with_the_id_in_a_stale_lock_file_is_not_signalled(formatted: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            (formatted / "broker.lock").write_text(str(stranger.pid))
            assert local.status(formatted).running is False
            assert local.stop(formatted) is False
            assert local.kill(formatted) is False
            assert local.pause(formatted) is False
            assert stranger.poll() is None
            assert psutil.Process(stranger.pid).status() != psutil.STATUS_STOPPED
        finally:
            stranger.kill()


def test_the_error_of_a_broker_that_exits_while_starting_is_quoted(formatted: Path) -> None:
    (formatted / "data" / "meta.properties").rename(formatted / "meta.aside")
    try:
        with pytest.raises(Unavailable) as raised:
            local.start(formatted)
    finally:
        (formatted / "meta.aside").rename(formatted / "data" / "meta.properties")
    print(f"\n{raised.value}")
    assert "exited while starting: " in str(raised.value)
    assert "meta.properties" in str(raised.value)
    assert str(raised.value).endswith(f"; see {formatted / 'broker.log'}")
    assert brokers_in(formatted) == []


def test_a_broker_that_does_not_answer_in_time_is_killed(formatted: Path) -> None:
    with pytest.raises(Unavailable, match=r"one that did not answer within 0\.1 s: "):
        local.start(formatted, timeout=0.1)
    assert brokers_in(formatted) == []
    assert local.status(formatted).running is False


def test_a_full_disk_is_reported_and_leaves_no_process(formatted: Path) -> None:
    code = START + (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))\n"
        "from millstream.errors import MillstreamError\n"
        "try: broker.start(Path(sys.argv[1]))\n"
        "except MillstreamError as error: print(error)"
    )
    log = formatted / "broker.log"
    log.unlink()  # so that it stays far below the limit
    output = python(code, formatted).communicate()[0]
    print(f"\n{output}")
    assert "File too large" in output
    assert str(log) in output
    assert brokers_in(formatted) == []


def test_a_throw_away_broker_is_removed_if_its_owner_is_killed_while_starting_it(
    tmp_path: Path,
) -> None:
    with owner_of_a_broker(tmp_path, "") as owner:
        try:
            assert eventually(lambda: any(tmp_path.glob("*/broker.out")))
            (folder,) = tmp_path.glob("millstream-broker-*")
        finally:
            owner.kill()
    assert eventually(lambda: not folder.exists())
    assert brokers_in(folder) == []


def test_a_throw_away_broker_is_removed_with_its_owner_even_if_a_fork_survives(
    tmp_path: Path,
) -> None:
    with owner_of_a_broker(tmp_path, "os.fork() or time.sleep(600)") as owner:
        try:
            assert owner.stdout is not None
            folder = Path(owner.stdout.readline().strip())
            assert len(brokers_in(folder)) == 1
            (fork,) = [
                child
                for child in psutil.Process(owner.pid).children()
                if "watchdog" not in " ".join(child.cmdline())
            ]
        finally:
            owner.kill()
        try:
            assert eventually(lambda: not folder.exists())
            assert brokers_in(folder) == []
            assert fork.is_running()
        finally:
            fork.kill()


def owner_of_a_broker(temporary: Path, then: str) -> subprocess.Popen[str]:
    """A process that starts a throw-away broker, runs `then`, prints the folder and sleeps."""
    code = (
        "import os, time; from millstream.testing import broker\n"
        f"with broker() as b:\n {then or 'pass'}\n"
        " print(b.folder, flush=True); time.sleep(600)"
    )
    return python(code, environment={**os.environ, "TMPDIR": str(temporary)})


def test_the_error_of_a_failed_throw_away_broker_has_the_end_of_its_log() -> None:
    with (
        pytest.raises(Unavailable) as raised,
        testing.broker(timeout=0.01),
    ):
        pytest.fail("it cannot answer that quickly")
    assert raised.value.__notes__[0].startswith("the end of the broker's log:")


def test_a_start_that_is_interrupted_leaves_no_process(formatted: Path) -> None:
    code = START + "broker.start(Path(sys.argv[1]))"
    starter = python(code, formatted, stderr=subprocess.PIPE)
    assert eventually(lambda: len(brokers_in(formatted)) == 1)
    starter.send_signal(signal.SIGINT)
    _, complaint = starter.communicate()
    assert "KeyboardInterrupt" in complaint
    assert brokers_in(formatted) == []

"""Continuous mode on a real broker: the same rows, bad ones in the dead topic, none lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.command import COMMAND
from tests.kafka.shortly import Log, eventually

import millstream as ms
from millstream.errors import InvalidInput, MillstreamError, NotFound, UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from millstream.metrics.facts import Facts
    from millstream.testing.local_broker import ThrowAwayBroker

SCHEMA = "id long not null, price double, tags array<string>, at timestamp"
PATIENCE = 240.0


def continuous(name: str, *outputs: Any, **options: Any) -> ms.Pipeline:
    return ms.Pipeline(name, *outputs, mode="continuous", delivery="at_least_once", **options)


def rows(numbers: Iterable[int]) -> list[bytes]:
    return [
        b'{"id":%d,"price":%d.25,"tags":["a","b%d"],"at":%d}' % (n, n, n, 1_767_225_600_000 + n)
        for n in numbers
    ]


@pytest.fixture
def log(broker: ThrowAwayBroker) -> Log:
    return Log(broker.address)


def size(log: Log, topic: str) -> int:
    """How many records a topic has, polled slowly; none if it does not exist."""
    time.sleep(0.3)
    try:
        return sum(log.topics.offsets(topic).values())
    except NotFound:
        return 0


def ran(pipeline: ms.Pipeline, log: Log, folder: Path, **options: Any) -> list[Facts]:
    """Run to the current end of the topics; returns the facts it reported."""
    reported: list[Facts] = []
    pipeline.run(until="caught_up", kafka=log.address, checkpoint=folder,
                 on_batch=lambda facts, lag: reported.append(facts), **options)  # fmt: skip
    return reported


def assert_dead(log: Log, topic: str, bad: dict[bytes, str]) -> None:
    """The dead topic has these values, sent from record 60 on, raw and with their reasons."""
    dead = log.read(f"{topic}.dead")
    assert [(record.value, list(record.headers)) for record in dead] == [
        (value, [("h", b"1"), ("millstream.reason", reason.encode()),
                 ("millstream.step", topic.encode()), ("millstream.topic", topic.encode()),
                 ("millstream.partition", b"0"), ("millstream.offset", b"%d" % (60 + n))])
        for n, (value, reason) in enumerate(bad.items())
    ]  # fmt: skip
    assert [record.key for record in dead] == [b"k%d" % (60 + n) for n in range(len(bad))]


@pytest.mark.spark
def test_rows_equal_the_oracle_bad_ones_are_dead_and_a_restart_continues(
    log: Log, topic: str, tmp_path: Path, spark: object
) -> None:
    log.topics.create(topic)
    bad = {b"no JSON": "not JSON: expecting value at character 1",
           b'{"id":"5"}': "id: needs a long; got a string",
           b'{"price":1}': "id: needs a long; it is missing",
           b'{"id":1,"at":null}': "at: event time is null",
           b'{"id":1,"at":"2199-01-01"}': "future: at lies too far ahead"}  # fmt: skip
    with ms.Producer(log.address) as producer:
        for number, value in enumerate([*rows(range(60)), *bad, b'{"id":60,"at":0,"x":1}']):
            producer.send(topic, value, key=b"k%d" % number, headers=[("h", b"1")])
    stream = ms.read(ms.Topic(topic, schema=SCHEMA), time="at")
    opened = (
        stream.with_columns(place="_offset", key="string(_key)").where("id % 3 <> 1")
        .explode("tags").select("id", "tags as tag", "price * 2 as twice", "place", "key", "at")
    )  # fmt: skip
    pipeline = continuous(topic, opened.to(ms.Topic(f"{topic}.out", key="id")))

    reported = ran(pipeline, log, tmp_path / "job")

    def meant(numbers: Iterable[int]) -> list[dict[str, Any]]:
        return [
            {"id": n, "tag": tag, "twice": 2 * n + 0.5, "place": n, "key": f"k{n}",
             "at": f"2026-01-01T00:00:00.{n:03d}000Z"}
            for n in numbers if n % 3 != 1 for tag in ("a", f"b{n}")
        ]  # fmt: skip

    found = log.read(f"{topic}.out")
    assert [json.loads(record.value or b"") for record in found] == meant(range(60))
    assert [json.loads(record.key or b"") for record in found] == [
        {"id": row["id"]} for row in meant(range(60))
    ]
    assert_dead(log, topic, bad)
    assert sum(facts.rows for facts in reported) == 66
    assert sum(facts.dead for facts in reported) == 5
    assert sum(facts.extra for facts in reported) == 1
    assert sum(facts.outputs[f"{topic}.out"] for facts in reported) == len(found)
    assert {facts.lane for facts in reported} == {"continuous"}

    log.fill(topic, rows(range(66, 70)))
    job = pipeline.start(kafka=log.address, checkpoint=tmp_path / "job")
    try:
        eventually(lambda: size(log, f"{topic}.out") >= len(found) + 6, within=PATIENCE)
    finally:
        job.stop()
        job.wait(PATIENCE)
    after = [json.loads(record.value or b"") for record in log.read(f"{topic}.out")[len(found) :]]
    assert {row["id"] for row in after} == {66, 68, 69}
    assert len(log.read(f"{topic}.dead")) == len(bad)
    assert job.positions() == {topic: {0: 70}}


FILE = """import millstream as ms

rows = ms.read(ms.Topic({topic!r}, schema="id long, price double"))
made = rows.where("id % 10 <> 3").select("id", "{more} as more")
pipeline = ms.Pipeline(
    {topic!r}, made.to(ms.Topic({topic!r} + ".out")),
    mode="continuous", delivery="at_least_once", engine={engine!r},
)
"""


@pytest.mark.parametrize("engine", ["driver", pytest.param("spark", marks=pytest.mark.soak)])
def test_a_kill_and_restart_lose_nothing_and_a_second_run_is_refused(
    engine: str, log: Log, topic: str, tmp_path: Path
) -> None:
    log.topics.create(topic, partitions=2)
    file = tmp_path / "continuous.py"
    file.write_text(FILE.format(topic=topic, more="price + 1", engine=engine))
    words = [COMMAND, "run", str(file), "--kafka", log.address, "--checkpoint", str(tmp_path / "j")]

    log_file = tmp_path / "stderr"

    def start() -> subprocess.Popen[bytes]:
        with log_file.open("w") as stderr:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
                start_new_session=True,
            )  # fmt: skip

    def is_running(run: subprocess.Popen[bytes]) -> bool:
        assert run.poll() is None, log_file.read_text()
        return True

    def feed(first: int, last: int) -> set[int]:
        values = [b'{"id":%d,"price":1.5}' % n for n in range(first, last)]
        log.fill(topic, [*values, b"broken %d" % first])
        return {n for n in range(first, last) if n % 10 != 3}

    out, dead = f"{topic}.out", f"{topic}.dead"
    wanted = feed(0, 500)
    first = start()
    try:
        eventually(lambda: is_running(first) and size(log, out) >= 450, within=PATIENCE)
        second = subprocess.run(
            words, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert second.returncode == 1
        assert f"got process {first.pid} on" in second.stderr
        wanted |= feed(500, 900)
        eventually(lambda: is_running(first) and size(log, out) > 460, within=PATIENCE)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()

    wanted |= feed(900, 1000)
    again = start()
    try:
        eventually(
            lambda: is_running(again) and size(log, dead) >= 3 and ids(log, out) == wanted,
            within=PATIENCE,
        )
        again.send_signal(signal.SIGINT)
        again.wait(PATIENCE)
    finally:
        if again.poll() is None:
            os.killpg(again.pid, signal.SIGKILL)
            again.wait()
            print(log_file.read_text(), size(log, dead), sorted(wanted ^ ids(log, out))[:9])
    assert again.returncode == 0, log_file.read_text()
    assert "stopped: " in log_file.read_text()
    assert ids(log, out) == wanted
    assert size(log, out) <= 3 * len(wanted)
    assert set(log.values(dead)) == {b"broken 0", b"broken 500", b"broken 900"}


def ids(log: Log, topic: str) -> set[int]:
    return {json.loads(value or b"")["id"] for value in log.values(topic)}


@pytest.mark.spark
def test_a_bad_row_stops_a_job_with_on_bad_stop(
    log: Log, topic: str, tmp_path: Path, spark: object
) -> None:
    log.topics.create(topic)
    log.fill(topic, [*rows([1]), b'{"id":true}', *rows([2])])
    stream = ms.read(ms.Topic(topic, schema=SCHEMA))
    pipeline = continuous(topic, stream.to(ms.Topic(f"{topic}.out")), on_bad="stop")
    with pytest.raises(InvalidInput, match="offset 1: id: needs a long; got a boolean"):
        ran(pipeline, log, tmp_path / "job")


@pytest.mark.spark
def test_a_row_on_which_sql_raises_stops_the_job_with_its_reason(
    log: Log, topic: str, tmp_path: Path, spark: object
) -> None:
    log.topics.create(topic)
    log.fill(topic, rows([1, 0]))
    stream = ms.read(ms.Topic(topic, schema=SCHEMA)).with_columns(share="1 / id")
    pipeline = continuous(topic, stream.to(ms.Topic(f"{topic}.out")))
    with pytest.raises(UserCodeFailed, match=r"raised \[DIVIDE_BY_ZERO\] .*; use a function"):
        ran(pipeline, log, tmp_path / "job")


@pytest.mark.spark
def test_a_checkpoint_of_the_other_mode_is_refused(
    log: Log, topic: str, tmp_path: Path, spark: object
) -> None:
    log.topics.create(topic)
    log.fill(topic, rows([1]))
    stream = ms.read(ms.Topic(topic, schema=SCHEMA))
    batches = ms.Pipeline(topic, stream.to(ms.Topic(f"{topic}.out")))
    batches.run(until="caught_up", kafka=log.address, checkpoint=tmp_path / "batches")
    pipeline = continuous(topic, stream.to(ms.Topic(f"{topic}.out")))
    with pytest.raises(MillstreamError, match='got mode="continuous"; it was "micro_batch"'):
        ran(pipeline, log, tmp_path / "batches")
    (tmp_path / "continuous" / "continuous").mkdir(parents=True)
    with pytest.raises(MillstreamError, match='got mode="micro_batch"; it was "continuous"'):
        batches.run(until="caught_up", kafka=log.address, checkpoint=tmp_path / "continuous")


def test_the_plan_shows_the_mode(tmp_path: Path) -> None:
    from tests.cli.command import Command

    file = tmp_path / "continuous.py"
    file.write_text(FILE.format(topic="rows", more="price + 1", engine="driver"))
    nowhere = Command(None)
    text = nowhere.ok("plan", str(file)).out
    assert text.startswith(
        "pipeline rows\nmode continuous: rows are processed one by one, at least once;"
    )
    assert "stored every 5 seconds" in text
    assert "transaction" not in text
    assert "the driver alone: no Java" in text
    assert "real-time mode" not in text
    for engine, more in (("spark", "price + 1"), ("driver", "greatest(price, 0)")):
        file.write_text(FILE.format(topic="rows", more=more, engine=engine))
        assert "real-time mode per output" in nowhere.ok("plan", str(file)).out
    assert nowhere.ok("plan", str(file), "-o", "json").json["mode"] == "continuous"


@pytest.mark.spark
def test_the_check_shows_the_mode(tmp_path: Path, spark: object) -> None:
    from tests.cli.command import Command

    file = tmp_path / "continuous.py"
    file.write_text(FILE.format(topic="rows", more="price + 1", engine="spark"))
    [found] = Command(None).ok("check", str(file), "-o", "json").json
    assert found["mode"] == "continuous"
    assert found["outputs"][0]["columns"] == "id long, more double"

"""The Kafka writer alone, against a real broker: the fault that each of its guards prevents.

Each fault is played twice: with the guard, and with the guard switched off here in the
test, where it must do harm.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.faults.marks import mark
from tests.faults.writer_stage import Stage, reopen

from millstream.errors import AlreadyRunning, DataGone, Fenced, MillstreamError
from millstream.sinks.kafka import client_sender as topic_sender
from millstream.sinks.kafka import writer as topic_writer
from millstream.sinks.kafka.client_sender import ClientSender
from millstream.sinks.kafka.writer import TopicWriter
from millstream.sinks.spec import Staged
from millstream.sources.kafka.topic import Topic
from millstream.timeouts import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.testing.local_broker import ThrowAwayBroker


@pytest.fixture(params=["own protocol", "librdkafka"])
def stage(
    request: pytest.FixtureRequest,
    broker: ThrowAwayBroker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    """Both senders must give the same guarantees."""
    if request.param == "librdkafka":
        monkeypatch.setattr(topic_writer, "open_sender", ClientSender)
    made = Stage(broker.address, topic)
    yield made
    made.close()


class Dead(BaseException):
    """The process has crashed in the middle of a call."""


def crash_at(point: str) -> Callable[[str], None]:
    def on_step(reached: str) -> None:
        if reached == point:
            raise Dead

    return on_step


def after_a_crash(stage: Stage, point: str) -> TopicWriter:
    """A second run, after a first one that wrote batch 1 and crashed in batch 2."""
    first = stage.writer()
    first.recover(None)
    first.write("one", 1, stage.rows(1))
    reopen(first, on_step=crash_at(point))
    with pytest.raises(Dead):
        first.write("two", 2, stage.rows(2))
    return stage.writer()


@pytest.mark.parametrize(
    ("point", "last"), [("before a sink's commit", "one"), ("after a sink's commit", "two")]
)
def test_after_a_crash_the_ledger_names_the_last_batch(stage: Stage, point: str, last: str) -> None:
    second = after_a_crash(stage, point)

    found = second.recover("one")
    if found != "two":
        second.write("two", 2, stage.rows(2))

    assert found == last
    assert stage.seen() == {1: 1, 2: 1}
    assert not stage.open_transactions()


def test_without_a_ledger_entry_in_the_transaction_a_batch_is_written_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stage.writer()
    first.recover(None)
    first.write("one", 1, stage.rows(1))
    monkeypatch.setattr(first._sender, "commit_offset", lambda mark: None)
    first.write("two", 2, stage.rows(2))

    second = stage.writer()
    if second.recover("one") != "two":
        second.write("two", 2, stage.rows(2))

    assert stage.seen() == {1: 1, 2: 2}


def zombie(stage: Stage) -> tuple[TopicWriter, Callable[[], None]]:
    """A run suspended before the commit of batch 1, and the function that resumes it."""
    first = stage.writer()
    first.recover(None)
    successor: list[TopicWriter] = []

    def meanwhile(point: str) -> None:
        if point == "before a sink's commit" and not successor:
            successor.append(stage.writer())
            successor[0].recover(None)
            successor[0].write("one", 1, stage.rows(1))

    reopen(first, on_step=meanwhile)
    return first, lambda: first.write("one", 1, stage.rows(1))


def test_a_zombie_that_wakes_before_its_commit_is_fenced(stage: Stage) -> None:
    _, wake = zombie(stage)

    with pytest.raises(Fenced):
        wake()

    assert stage.seen() == {1: 1}
    assert not stage.open_transactions()


def test_without_fencing_a_zombie_that_wakes_before_its_commit_writes_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are fenced because they share a transactional id. Reading the ledger would wait for the
    zombie's open transaction, so that is switched off too."""
    made, count = TopicWriter._open_sender, iter(range(100))
    monkeypatch.setattr(
        TopicWriter, "_open_sender", lambda self, job: made(self, f"{job}{next(count)}")
    )
    opened = TopicWriter._open_reader
    monkeypatch.setattr(
        TopicWriter, "_open_reader", lambda self, _: opened(self, "read_uncommitted")
    )
    _, wake = zombie(stage)

    wake()

    assert stage.seen() == {1: 2}


class Unanswered:
    """A sender whose commit gets no response, whether or not it succeeded."""

    def __init__(self, sender: Any, before: Callable[[], None]) -> None:
        self._sender, self._before = sender, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sender, name)

    def commit(self) -> None:
        self._before()
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", False, True, False))


@pytest.mark.parametrize("went_through", [True, False])
def test_the_ledger_resolves_a_commit_without_response(stage: Stage, *, went_through: bool) -> None:
    writer = stage.writer()
    writer.recover(None)
    real = writer._current_sender()
    writer._sender = Unanswered(real, real.commit if went_through else lambda: None)

    writer.write("one", 1, stage.rows(1))

    assert stage.seen() == {1: 1}
    assert not stage.open_transactions()


def unanswered_while_taken_over(stage: Stage, owned: Callable[[], None]) -> TopicWriter:
    """A run whose commit gets no response while a successor writes that batch and the next."""
    first = stage.writer()
    first.recover(None)
    reopen(first, check_owned=owned)

    def meanwhile() -> None:
        second = stage.writer()
        second.recover(None)
        second.write("one", 1, stage.rows(1))
        second.write("two", 2, stage.rows(2))

    first._sender = Unanswered(first._sender, meanwhile)
    return first


def test_a_run_that_lost_its_job_does_not_read_the_ledger(stage: Stage) -> None:
    def owned() -> None:
        raise Fenced("no longer")

    first = unanswered_while_taken_over(stage, owned)

    with pytest.raises(Fenced, match="no longer"):
        first.write("one", 1, stage.rows(1))
    assert stage.seen() == {1: 1, 2: 1}


def test_a_ledger_with_a_later_batch_fences_the_run(stage: Stage) -> None:
    first = unanswered_while_taken_over(stage, lambda: None)

    with pytest.raises(Fenced):
        first.write("one", 1, stage.rows(1))
    assert stage.seen() == {1: 1, 2: 1}


def test_without_comparing_the_previous_ledger_entry_a_zombie_writes_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = unanswered_while_taken_over(stage, lambda: None)

    class Anything:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    monkeypatch.setattr(first, "_last", Anything())
    first.write("one", 1, stage.rows(1))

    assert stage.seen() == {1: 2, 2: 1}


def test_a_second_job_of_the_same_name_is_refused_before_it_fences_anything(stage: Stage) -> None:
    first = stage.writer("first")
    first.recover(None)

    with pytest.raises(AlreadyRunning, match=r"job first .*, with another checkpoint"):
        stage.writer("second").recover(None)
    first.write("one", 1, stage.rows(1))

    assert stage.seen() == {1: 1}


def test_a_job_that_takes_over_fences_the_other(stage: Stage) -> None:
    first = stage.writer("first")
    first.recover(None)
    first.write("one", 1, stage.rows(1))

    second = stage.writer("second", take_over=True)
    assert second.recover(None) is None
    with pytest.raises(Fenced):
        first.write("two", 2, stage.rows(2))
    second.write("uno", 1, stage.rows(3))

    assert stage.seen() == {1: 1, 3: 1}
    with pytest.raises(AlreadyRunning):
        stage.writer("first").recover("one")
    with pytest.raises(DataGone, match="job second, which has taken over"):
        stage.writer("first", take_over=True).recover("one")


def test_a_job_overtaken_during_its_start_is_fenced_before_it_writes(
    stage: Stage,
) -> None:
    first = stage.writer("first")
    first.recover(None)
    second = stage.writer("second")
    second._last_owner = lambda: None  # type: ignore[method-assign]
    second.recover(None)

    with pytest.raises(Fenced):
        first.write("one", 1, stage.rows(1))
    second.write("uno", 1, stage.rows(3))

    assert stage.seen() == {3: 1}


def test_a_ledger_that_was_deleted_stops_the_job(stage: Stage) -> None:
    first = stage.writer()
    first.recover(None)
    first.write("one", 1, stage.rows(1))
    first.close()
    admin = AdminClient({"bootstrap.servers": stage.address})
    for future in admin.delete_consumer_groups([f"millstream.ledger.{stage.topic}"]).values():
        future.result()

    with pytest.raises(DataGone, match="ledger entry"):
        stage.writer().recover("one")


def test_an_aborted_transaction_is_retried(stage: Stage) -> None:
    writer = stage.writer()
    writer.recover(None)
    tried: list[str] = []

    def on_step(point: str) -> None:
        tried.append(point)
        if len(tried) == 1:
            raise KafkaException(KafkaError(KafkaError._STATE, "lost", False, False, True))

    reopen(writer, on_step=on_step)
    writer.write("one", 1, stage.rows(1))

    assert tried == ["before a sink's commit", "before a sink's commit", "after a sink's commit"]
    assert stage.seen() == {1: 1}


def test_a_row_larger_than_the_record_limit_stops_at_once(stage: Stage) -> None:
    writer = stage.writer()
    writer.recover(None)
    table = pa.table({"n": [random.Random(7).randbytes(1_000_000).hex()]})
    staged = Staged("out", "result", Topic(stage.topic), (), 1, lambda: iter([table]))

    with pytest.raises(MillstreamError, match="needs to fit into one Kafka record"):
        writer.write("one", 1, [staged])


def test_the_ledger_holds_the_batch_and_the_job_that_wrote_it(stage: Stage) -> None:
    writer = stage.writer()
    writer.recover(None)
    writer.write("one", 7, stage.rows(1))

    assert mark(stage.address, stage.topic) == (7, "job", "one")


class Littered:
    """A reader that returns bytes after the text, as librdkafka sometimes does."""

    offset = 7

    def committed(self, _asked: object, timeout: float) -> list[Littered]:
        assert timeout > 0
        return [self]

    def close(self) -> None: ...

    @property
    def metadata(self) -> str:
        return b"job one .\xff\xfe".decode()


def test_an_entry_followed_by_stray_bytes_is_read(stage: Stage) -> None:
    writer = stage.writer()
    writer._readers["read_committed"] = Littered()

    assert writer._ledger_entry() == ("job", "one")


def test_an_open_transaction_of_another_producer_does_not_block_the_job(
    stage: Stage,
) -> None:
    writer = stage.writer()
    writer.recover(None)
    writer.write("one", 1, stage.rows(1))
    stranger = Producer({"bootstrap.servers": stage.address, "transactional.id": stage.topic})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(stage.topic, b'{"n": 9}')
    stranger.flush(30)

    writer.write("two", 2, stage.rows(2))
    stranger.abort_transaction(30)

    assert stage.seen() == {1: 1, 2: 1}


def test_a_call_that_does_not_return_times_out() -> None:
    with pytest.raises(TimeoutError, match="no answer in 0 s"):
        bounded(threading.Event().wait, 0.05)
    with pytest.raises(KeyError):
        bounded({}.popitem, 5)
    assert bounded(lambda: 7, 5) == 7


def test_a_producer_that_hangs_while_sending_its_entry_is_recreated(
    broker: ThrowAwayBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As librdkafka does after its group coordinator was unavailable (issues 5456 and 5511)."""
    monkeypatch.setattr(topic_sender, "CALL_SECONDS", 0.5)
    monkeypatch.setattr(topic_writer, "open_sender", ClientSender)
    stage = Stage(broker.address, topic)
    writer = stage.writer()
    writer.recover(None)
    sender: Any = writer._sender
    sender._producer = Hanging(sender._producer)

    writer.write("one", 1, stage.rows(1))

    assert stage.seen() == {1: 1}
    assert not stage.open_transactions()


class Hanging:
    """A producer that gets no response to its ledger entry."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def send_offsets_to_transaction(self, *_: object) -> None:
        threading.Event().wait()

"""The Kafka writer alone, against a real broker: what each of its guards keeps away.

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
    """Each way to send has to keep the same promises."""
    if request.param == "librdkafka":
        monkeypatch.setattr(topic_writer, "open_sender", ClientSender)
    made = Stage(broker.address, topic)
    yield made
    made.close()


class Dead(BaseException):
    """The process is gone in the middle of a call."""


def dying(point: str) -> Callable[[str], None]:
    def told(reached: str) -> None:
        if reached == point:
            raise Dead

    return told


def after_a_crash(stage: Stage, point: str) -> TopicWriter:
    """A first run wrote batch 1, died in batch 2; here is the second run, recovered."""
    first = stage.writer()
    first.recover(None)
    first.write("one", 1, stage.rows(1))
    reopen(first, on_step=dying(point))
    with pytest.raises(Dead):
        first.write("two", 2, stage.rows(2))
    return stage.writer()


@pytest.mark.parametrize(
    ("point", "last"), [("before a sink's commit", "one"), ("after a sink's commit", "two")]
)
def test_after_a_crash_the_ledger_says_which_batch_is_in(
    stage: Stage, point: str, last: str
) -> None:
    second = after_a_crash(stage, point)

    found = second.recover("one")
    if found != "two":
        second.write("two", 2, stage.rows(2))

    assert found == last
    assert stage.seen() == {1: 1, 2: 1}
    assert not stage.open_transactions()


def test_without_the_mark_in_the_transaction_a_batch_is_written_twice(
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
    """A run that stands just before the commit of batch 1, and what wakes it."""
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
    """One transactional id for all runs of a job is what fences; a ledger read while the
    zombie's mark is still open would wait for it, so that is switched off too."""
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
    """A sender whose commit gets no answer: it went through, or it did not."""

    def __init__(self, sender: Any, before: Callable[[], None]) -> None:
        self._sender, self._before = sender, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sender, name)

    def commit(self) -> None:
        self._before()
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", False, True, False))


@pytest.mark.parametrize("went_through", [True, False])
def test_a_commit_without_an_answer_is_settled_by_the_ledger(
    stage: Stage, *, went_through: bool
) -> None:
    writer = stage.writer()
    writer.recover(None)
    real = writer._current_sender()
    writer._sender = Unanswered(real, real.commit if went_through else lambda: None)

    writer.write("one", 1, stage.rows(1))

    assert stage.seen() == {1: 1}
    assert not stage.open_transactions()


def unanswered_while_taken_over(stage: Stage, owned: Callable[[], None]) -> TopicWriter:
    """A run whose commit gets no answer while a successor writes that batch and the next."""
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


def test_a_run_that_is_no_longer_the_owner_does_not_ask_the_ledger(stage: Stage) -> None:
    def owned() -> None:
        raise Fenced("no longer")

    first = unanswered_while_taken_over(stage, owned)

    with pytest.raises(Fenced, match="no longer"):
        first.write("one", 1, stage.rows(1))
    assert stage.seen() == {1: 1, 2: 1}


def test_a_ledger_that_has_moved_on_without_us_is_another_runs(stage: Stage) -> None:
    first = unanswered_while_taken_over(stage, lambda: None)

    with pytest.raises(Fenced):
        first.write("one", 1, stage.rows(1))
    assert stage.seen() == {1: 1, 2: 1}


def test_without_asking_what_the_ledger_held_before_a_zombie_writes_again(
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


def test_a_second_job_of_the_same_name_is_refused_before_anything_is_fenced(stage: Stage) -> None:
    first = stage.writer("first")
    first.recover(None)

    with pytest.raises(AlreadyRunning, match=r"job first .*, with another checkpoint"):
        stage.writer("second").recover(None)
    first.write("one", 1, stage.rows(1))

    assert stage.seen() == {1: 1}


def test_a_job_that_takes_over_ends_the_others_writing(stage: Stage) -> None:
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


def test_a_job_overtaken_while_both_were_starting_finds_out_before_it_writes(
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


def test_an_aborted_transaction_is_begun_again(stage: Stage) -> None:
    writer = stage.writer()
    writer.recover(None)
    tried: list[str] = []

    def told(point: str) -> None:
        tried.append(point)
        if len(tried) == 1:
            raise KafkaException(KafkaError(KafkaError._STATE, "lost", False, False, True))

    reopen(writer, on_step=told)
    writer.write("one", 1, stage.rows(1))

    assert tried == ["before a sink's commit", "before a sink's commit", "after a sink's commit"]
    assert stage.seen() == {1: 1}


def test_a_row_larger_than_a_record_may_be_stops_at_once(stage: Stage) -> None:
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
    """A reader as librdkafka is now and then: what lies behind the text in memory is no text."""

    offset = 7

    def committed(self, _asked: object, timeout: float) -> list[Littered]:
        assert timeout > 0
        return [self]

    def close(self) -> None: ...

    @property
    def metadata(self) -> str:
        return b"job one .\xff\xfe".decode()


def test_a_mark_with_litter_behind_it_is_read(stage: Stage) -> None:
    writer = stage.writer()
    writer._readers["read_committed"] = Littered()

    assert writer._ledger_entry() == ("job", "one")


def test_a_stranger_with_an_open_transaction_in_the_output_does_not_hold_the_job(
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


def test_a_call_that_does_not_come_back_is_given_up() -> None:
    with pytest.raises(TimeoutError, match="no answer in 0 s"):
        bounded(threading.Event().wait, 0.05)
    with pytest.raises(KeyError):
        bounded({}.popitem, 5)
    assert bounded(lambda: 7, 5) == 7


def test_a_producer_that_hangs_over_its_mark_is_made_anew(
    broker: ThrowAwayBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As librdkafka does when its group coordinator was away (its issues 5456 and 5511)."""
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
    """A producer whose mark is never answered."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def send_offsets_to_transaction(self, *_: object) -> None:
        threading.Event().wait()

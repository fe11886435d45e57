"""A Spark that starts beside the work; the session here is only something that is or is not."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from millstream.engine.spark.session import Spark
from millstream.errors import SetupFailed

HERE = cast("Any", "a session")


def is_there(spark: Spark) -> bool:
    return spark.ready


class Slow:
    """A start that takes until it is let go."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go = threading.Event()
        self.threads: list[threading.Thread] = []
        self._error = error

    def __call__(self) -> Any:
        self.threads.append(threading.current_thread())
        assert self.go.wait(10)
        if self._error is not None:
            raise self._error
        return HERE


def test_a_session_that_is_there_is_there() -> None:
    spark = Spark.of(HERE)
    spark.start()

    assert spark.ready
    assert spark.get() is HERE


def test_nothing_starts_before_it_is_wanted() -> None:
    start = Slow()
    spark = Spark(start)

    assert not spark.ready
    assert start.threads == []


def test_it_starts_once_beside_the_work() -> None:
    start = Slow()
    spark = Spark(start)
    spark.start()
    spark.start()
    assert not is_there(spark)
    start.go.set()

    assert spark.get() is HERE
    assert is_there(spark)
    assert len(start.threads) == 1
    assert start.threads[0] is not threading.current_thread()


def test_who_cannot_wait_starts_it_where_he_is() -> None:
    start = Slow()
    start.go.set()

    assert Spark(start).get() is HERE
    assert start.threads == [threading.current_thread()]


def test_waiting_is_told_and_can_be_ended() -> None:
    start = Slow()
    said: list[str] = []

    def waiting(why: str) -> None:
        said.append(why)
        if len(said) == 2:
            raise KeyboardInterrupt

    spark = Spark(start, waiting)
    spark.start()
    with pytest.raises(KeyboardInterrupt):
        spark.get()
    start.go.set()

    assert said == ["starting Spark"] * 2


def test_a_start_that_failed_is_told_to_whoever_asks_next() -> None:
    start = Slow(SetupFailed("Spark needs memory", got="none"))
    spark = Spark(start)
    spark.start()
    start.go.set()
    start.threads[0].join()

    with pytest.raises(SetupFailed, match="Spark needs memory"):
        assert spark.ready
    with pytest.raises(SetupFailed, match="Spark needs memory"):
        spark.get()

"""Starting Spark in the background, with a placeholder for the session."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from millstream.engine.spark.session import Spark, check_startable
from millstream.errors import InvalidSpec, SetupFailed

SESSION = cast("Any", "a session")


def is_ready(spark: Spark) -> bool:
    return spark.ready


class Slow:
    """A start that blocks until `go` is set."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go = threading.Event()
        self.threads: list[threading.Thread] = []
        self._error = error

    def __call__(self) -> Any:
        self.threads.append(threading.current_thread())
        assert self.go.wait(10)
        if self._error is not None:
            raise self._error
        return SESSION


def test_an_existing_session_is_ready() -> None:
    spark = Spark.of(SESSION)
    spark.start()

    assert spark.ready
    assert spark.get() is SESSION


def test_nothing_starts_before_it_is_needed() -> None:
    start = Slow()
    spark = Spark(start)

    assert not spark.ready
    assert start.threads == []


def test_it_starts_once_in_the_background() -> None:
    start = Slow()
    spark = Spark(start)
    spark.start()
    spark.start()
    assert not is_ready(spark)
    start.go.set()

    assert spark.get() is SESSION
    assert is_ready(spark)
    assert len(start.threads) == 1
    assert start.threads[0] is not threading.current_thread()


def test_get_starts_it_in_the_calling_thread() -> None:
    start = Slow()
    start.go.set()

    assert Spark(start).get() is SESSION
    assert start.threads == [threading.current_thread()]


def test_the_wait_is_reported_and_can_be_ended() -> None:
    start = Slow()
    reasons: list[str] = []

    def waiting(why: str) -> None:
        reasons.append(why)
        if len(reasons) == 2:
            raise KeyboardInterrupt

    spark = Spark(start, waiting)
    spark.start()
    with pytest.raises(KeyboardInterrupt):
        spark.get()
    start.go.set()

    assert reasons == ["starting Spark"] * 2


def test_a_failed_start_raises_on_the_next_use() -> None:
    start = Slow(SetupFailed("Spark needs memory", got="none"))
    spark = Spark(start)
    spark.start()
    start.go.set()
    start.threads[0].join()

    with pytest.raises(SetupFailed, match="Spark needs memory"):
        assert spark.ready
    with pytest.raises(SetupFailed, match="Spark needs memory"):
        spark.get()


def test_settings_are_checked_before_the_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the thread that starts Spark the check would come beside the first batches."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.sql.legacy.x=1 pyspark-shell")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)

    with pytest.raises(InvalidSpec, match=r"got spark\.sql\.legacy\.x=1; leave it out"):
        check_startable()

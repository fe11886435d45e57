"""What a run waits for, as its work and its pings report it."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from millstream.engine.health import pings as module
from millstream.engine.health.health import RUNNING, Health
from millstream.engine.health.pings import Lost, Pings
from millstream.outages import PING, Outages, Ping, impaired, waiting_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KAFKA = "Kafka at k:9092"


def seen(outages: Outages) -> list[tuple[str, str, str]]:
    return [(one.system, one.kind, one.why) for one in outages.now()]


def until(true: Callable[[], bool], patience: float = 30.0) -> None:
    deadline = time.monotonic() + patience
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_outage_is_over_when_neither_the_work_nor_a_ping_reports_it() -> None:
    changes: list[int] = []
    outages = Outages(lambda: changes.append(1))
    outages.hear(waiting_for(KAFKA, "reset"))
    first = outages.now()[0].since
    outages.hear(waiting_for(KAFKA, "refused"), PING)
    outages.hear(waiting_for(KAFKA, "still refused"))
    assert (len(outages.now()), outages.now()[0].since) == (1, first)
    assert len(changes) == 1
    outages.over(KAFKA)
    assert seen(outages) == [(KAFKA, "waiting", "refused")]
    outages.over(KAFKA, PING)
    assert (seen(outages), len(changes)) == ([], 2)
    outages.over(KAFKA)
    assert len(changes) == 2


def test_completed_work_ends_what_the_work_waited_for_and_nothing_else() -> None:
    outages = Outages()
    outages.hear(waiting_for("the database d", "refused"))
    outages.hear(waiting_for(KAFKA, "refused"), PING)
    outages.hear(impaired("notifications", "no server"))
    outages.progressed()
    assert seen(outages) == [(KAFKA, "waiting", "refused"),
                             ("notifications", "degraded", "no server")]  # fmt: skip


def test_a_run_shows_an_outage_once_and_then_what_it_did_before() -> None:
    phases: list[str] = []
    health = Health(phases.append, lambda: None)
    health.phase("opening the checkpoint")
    health.phase(RUNNING)
    for why in ("reset", "refused", "refused"):
        health.hear(waiting_for(KAFKA, why))
    health.hear("reading a table with Spark")
    health.progressed()
    assert phases == ["opening the checkpoint", RUNNING, f"waiting for {KAFKA}: reset",
                      "reading a table with Spark", RUNNING]  # fmt: skip


@contextmanager
def silent_server() -> Iterator[Callable[[], None]]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def ask() -> None:
            with socket.create_connection(server.getsockname()[:2]) as connection:
                connection.sendall(b"are you there?")
                connection.recv(1)

        yield ask


def test_no_answer_counts_as_down_unless_work_was_completed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SILENCE", 1.0)
    monkeypatch.setattr(module, "EVERY", 0.1)
    for working in (False, True):
        outages = Outages()
        pings = Pings(outages)
        with silent_server() as ask:
            pings.add(Ping("a silent server", ask))
            began = time.monotonic()
            while time.monotonic() - began < 2.5:
                if working:
                    outages.progressed()
                time.sleep(0.05)
            found = seen(outages)
        expected = [] if working else [("a silent server", "waiting", "no answer for 1 s")]
        assert found == expected
        pings.close()


def test_what_cannot_come_back_within_a_run_ends_it() -> None:
    outages = Outages()
    pings = Pings(outages)

    def ask() -> None:
        raise Lost("the run needs its Spark session", got="Spark's Java process has ended")

    pings.check()
    pings.add(Ping("Spark", ask))
    until(lambda: pings.lost is not None)
    assert outages.now()[0].why == "Spark's Java process has ended"
    with pytest.raises(Lost) as ended:
        pings.check()
    assert ended.value.exit_code == 5
    pings.close()

"""What a run waits for: the systems that are down, since when, and when it tries them again."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Kind = Literal["waiting", "degraded"]
WORK, PING = "work", "ping"


class Notice(str):
    """What a source or sink reports about a system, as one sentence with its parts.

    `waiting`: the run cannot go on without the system. `degraded`: it goes on, but something does
    not work.
    """

    kind: Kind
    system: str
    why: str
    next_try: float | None

    @classmethod
    def of(
        cls, text: str, kind: Kind, system: str, why: str, next_try: float | None = None
    ) -> Notice:
        made = cls(text)
        made.kind, made.system, made.why, made.next_try = kind, system, why, next_try
        return made


def waiting_for(system: str, why: str, *, retry_in: float = 0.0) -> Notice:
    """The run waits for a system, and tries it again in so many seconds.

    >>> waiting_for("Kafka at localhost:9092", "Connection refused")
    'waiting for Kafka at localhost:9092: Connection refused'
    """
    text = f"waiting for {system}: {why}"
    return Notice.of(text, "waiting", system, why, time.time() + retry_in)


def impaired(system: str, why: str) -> Notice:
    """Something beside the results does not work, and the run goes on.

    >>> impaired("notifications", "the store is locked")
    'notifications: the store is locked'
    """
    return Notice.of(f"{system}: {why}", "degraded", system, why)


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A system that is down. Times are seconds since the epoch."""

    system: str
    why: str
    since: float
    next_try: float | None = None
    kind: Kind = "waiting"

    def sentence(self) -> str:
        """What is wrong, as the reason of a job's state."""
        return f"{self.system}: {self.why}"


def phase_of(outage: Outage) -> str:
    """What a run does during an outage, as a phase.

    >>> phase_of(Outage(system="Kafka", why="no answer", since=0.0))
    'waiting for Kafka: no answer'
    """
    text = outage.sentence()
    return f"waiting for {text}" if outage.kind == "waiting" else text


class Outages:
    """The outages of one run, as its threads report them.

    The work reports what it meets, pings what they find: an outage is over when neither reports
    it. `changed` is called, from the thread that reports, when an outage begins or is over.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed, self._lock = changed, threading.Lock()
        self._known: dict[tuple[str, str], Outage] = {}
        self._progressed = 0.0

    def hear(self, notice: Notice, by: str = WORK) -> None:
        """A system is down."""
        with self._changing():
            known = self._known.get((notice.system, by))
            since = time.time() if known is None else known.since
            self._known[notice.system, by] = Outage(
                system=notice.system, why=notice.why, since=since, next_try=notice.next_try,
                kind=notice.kind,
            )  # fmt: skip

    def over(self, system: str, by: str = WORK) -> None:
        """It answers again."""
        with self._changing():
            self._known.pop((system, by), None)

    def progressed(self) -> None:
        """The run has completed work: nothing that it met before is in its way any more."""
        self._progressed = time.monotonic()
        if self._known:
            with self._changing():
                self._known = {place: outage for place, outage in self._known.items()
                               if place[1] != WORK or outage.kind == "degraded"}  # fmt: skip

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            before = self._systems()
            yield
            differs = before != self._systems()
        if differs:
            self._changed()

    def progressed_since(self, moment: float) -> bool:
        """Whether work was completed after this moment of the monotonic clock."""
        return self._progressed > moment

    def now(self) -> tuple[Outage, ...]:
        """The current outages, the oldest first; one for each system."""
        found: dict[str, Outage] = {}
        with self._lock:
            for outage in sorted(self._known.values(), key=lambda one: one.since):
                first = found.get(outage.system, outage)
                worst = first if first.kind == "waiting" else outage
                found[outage.system] = replace(worst, since=first.since)
        return tuple(found.values())

    def _systems(self) -> set[tuple[str, str]]:
        return {(outage.system, outage.kind) for outage in self._known.values()}


def _ignored(_: Any) -> None:
    """The default for callbacks: do nothing."""


@dataclass(frozen=True)
class Ping:
    """How to find out whether a system is there, also while there is nothing to do.

    `ask` returns if the system answers, and raises what is wrong if not; `close` gives up its
    connection. Both are called from one thread.
    """

    system: str
    ask: Callable[[], Any]
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Listener:
    """Whom the sources and sinks of a run tell that a system is down, and for how long they wait.

    `on_wait` gets the reason, a `Notice` if it names the system; `on_answer` the name of a system
    that is back; `watch` what is to be asked from time to time. Without `patience` (in seconds)
    each waits as long as it thinks right.
    """

    on_wait: Callable[[str], None] = _ignored
    on_answer: Callable[[str], None] = _ignored
    watch: Callable[[Ping], None] = _ignored
    patience: float | None = None


@runtime_checkable
class Watched(Protocol):
    """A reader or writer of a system that may be down while there is nothing to read or write."""

    def pings(self) -> Sequence[Ping]:
        """How to find out. Called once, before the system is used."""

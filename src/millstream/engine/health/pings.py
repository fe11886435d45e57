"""Asks every second whether the systems of a run are there.

A run without work touches none of them, and one whose work is in Spark's tasks hears of an outage
late. Each system has a thread; another one notices those that do not answer at all.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError, Unavailable
from millstream.outages import PING, waiting_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.outages import Outages, Ping

EVERY = 1.0
SILENCE = 2.0
_LOOK = 0.5
_LATE = 0.5  # seconds by which a thread of this process may be late before it proves nothing
_END_SECONDS = 0.5


class Lost(Unavailable):
    """A ping raises this if its system cannot come back within this run."""


class Pings:
    """The pings of one run."""

    def __init__(self, outages: Outages) -> None:
        self._outages, self._over = outages, threading.Event()
        self._pinged: dict[str, _Pinged] = {}
        self._monitor: threading.Thread | None = None
        self.lost: Lost | None = None

    def add(self, ping: Ping) -> None:
        """Ask this too, from now on; a system that is asked already is not asked twice."""
        if ping.system in self._pinged or self._over.is_set():
            return
        self._pinged[ping.system] = _Pinged(ping, self._over, self._answered)
        if self._monitor is None:
            self._monitor = threading.Thread(target=self._look, name="watch", daemon=True)
            self._monitor.start()

    def check(self) -> None:
        """Raise what cannot heal within this run."""
        if self.lost is not None:
            raise self.lost

    def close(self) -> None:
        """Ask no more. A thread that waits for an answer ends with it."""
        self._over.set()
        for pinged in self._pinged.values():
            pinged.thread.join(_END_SECONDS)

    def _look(self) -> None:
        while True:
            began = time.monotonic()
            if self._over.wait(_LOOK):
                return
            if time.monotonic() - began > _LOOK + _LATE:
                continue  # this process itself was held up, so the answers may only be unread
            for pinged in tuple(self._pinged.values()):
                asked = pinged.asked
                silent = 0.0 if asked is None else time.monotonic() - asked
                if asked and silent > SILENCE and not self._outages.progressed_since(asked):
                    self._report(pinged.ping.system, f"no answer for {SILENCE:.0f} s")

    def _answered(self, system: str, error: Exception | None) -> None:
        if self._over.is_set():
            return
        if isinstance(error, Lost):
            self.lost = error
        self._report(system, None if error is None else reason(error))

    def _report(self, system: str, why: str | None) -> None:
        if why is None:
            self._outages.over(system, PING)
        else:
            self._outages.hear(waiting_for(system, why, retry_in=EVERY), PING)


class _Pinged:
    """One system and the thread that asks it; `asked` is when it was asked what it has not answered
    yet."""

    def __init__(
        self, ping: Ping, over: threading.Event, answered: Callable[[str, Exception | None], None]
    ) -> None:
        self.ping, self._over, self._answered = ping, over, answered
        self.asked: float | None = None
        self.thread = threading.Thread(target=self._run, name=f"ping {ping.system}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self._over.wait(EVERY):
            failure: Exception | None = None
            self.asked = time.monotonic()
            try:
                self.ping.ask()
            except Exception as error:
                failure = error
            self.asked = None
            self._answered(self.ping.system, failure)
        self.ping.close()


def reason(error: Exception) -> str:
    """What is wrong, in a few words.

    >>> reason(ConnectionRefusedError(111, "Connection refused"))
    'Connection refused'
    """
    if isinstance(error, MillstreamError):
        return error.got or str(error)
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return str(text).splitlines()[0]

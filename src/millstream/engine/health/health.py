"""What a run does and what it waits for, as it shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.health.pings import Lost, Pings
from millstream.outages import Listener, Notice, Outages, Ping, phase_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from millstream.outages import Outage

RUNNING = "running"


class Health:
    """Collects what the threads of one run report.

    `on_phase` is called with what the run does or waits for, `on_outage` when a system goes away or
    is back; both from the thread that notices it.
    """

    def __init__(self, on_phase: Callable[[str], None], on_outage: Callable[[], None]) -> None:
        self._on_phase, self._on_outage = on_phase, on_outage
        self._outages = Outages(self._changed)
        self._pings = Pings(self._outages)
        self._runs = False

    @property
    def outages(self) -> tuple[Outage, ...]:
        """The systems that are down now, the oldest outage first."""
        return self._outages.now()

    def listener(self, on_wait: Callable[[str], None], patience: float | None) -> Listener:
        """What the sources and sinks of the run report to."""
        return Listener(on_wait, self._outages.over, self._pings.add, patience)

    def watch_spark(self, session: Callable[[], SparkSession | None]) -> None:
        """Watch the Spark of this session, once there is one."""
        from millstream.engine.spark.ping import SYSTEM, SparkPing

        self._pings.add(Ping(SYSTEM, SparkPing(session, Lost).ask))

    def phase(self, phase: str) -> None:
        """The run enters a phase."""
        self._runs = phase == RUNNING
        self._on_phase(phase)

    def hear(self, why: str) -> None:
        """A source or sink reports a system that is down, or what takes long."""
        if isinstance(why, Notice):
            self._outages.hear(why)
        else:
            self._on_phase(why)

    def progressed(self) -> None:
        """The run has completed work, so what it waited for is there."""
        self._outages.progressed()

    def check(self) -> None:
        """Raise what cannot heal within this run."""
        self._pings.check()

    def close(self) -> None:
        """Watch no longer."""
        self._pings.close()

    def _changed(self) -> None:
        outages = self.outages
        if outages:
            self._on_phase(phase_of(outages[0]))
        elif self._runs:
            self._on_phase(RUNNING)
        self._on_outage()

"""A real broker for the length of a `with` block."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError
from millstream.kafka.local import broker as local
from millstream.kafka.local.broker_folder import free_port
from millstream.kafka.local.broker_settings import Seat
from millstream.testing.watchdog import watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Short intervals, so that tests of retention and compaction do not wait for minutes.
QUICK: Mapping[str, str | int] = {
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.cleaner.backoff.ms": 200,
    "log.segment.delete.delay.ms": 1000,
}


class ThrowAwayBroker:
    """A broker that can be killed, paused and started again on the same folder and port."""

    def __init__(
        self,
        status: local.BrokerStatus,
        settings: Mapping[str, str | int],
        seat: Seat | None = None,
    ) -> None:
        assert status.address is not None
        self.folder = status.folder
        self.address: str = status.address
        self.log_file = status.log_file
        self._settings, self._seat = settings, seat

    @property
    def pid(self) -> int | None:
        """The process id, None while it is down."""
        return self.status().pid

    def status(self) -> local.BrokerStatus:
        return local.status(self.folder)

    def kill(self) -> None:
        """SIGKILL, like a crash: nothing is flushed."""
        local.kill(self.folder)

    def stop(self) -> None:
        """SIGTERM, and wait for the clean shutdown."""
        local.stop(self.folder)

    def start(self) -> None:
        """Start it after `kill` or `stop`, with the same records and address."""
        local.start(self.folder, settings=self._settings, seat=self._seat)

    def pause(self) -> None:
        """SIGSTOP: connections stay open, but get no answers."""
        local.pause(self.folder)

    def resume(self) -> None:
        """SIGCONT: continue after `pause`."""
        local.resume(self.folder)


@contextmanager
def broker(
    *,
    port: int | None = None,
    settings: Mapping[str, str | int] | None = None,
    relayed: tuple[int, int] | None = None,
    timeout: float = 60,
) -> Iterator[ThrowAwayBroker]:
    """A real Kafka broker on a free port and in a temporary folder, removed afterwards.

        with broker() as b:
            producer = Producer(b.address)

    It ends with the block or with this process, even if that is killed. Retention and compaction
    run several times a second.

    Args:
        port: of 127.0.0.1, instead of a free one.
        settings: Kafka broker settings, such as `{"num.partitions": 4}`.
        relayed: a second port to listen on, and the port that the broker advertises for it:
            that of your relay between clients and broker.
        timeout: seconds until it has to answer.
    """
    seat = None if relayed is None else Seat({1: free_port()}, relayed=relayed)
    merged = {**QUICK, **(settings or {})}
    folder = Path(tempfile.mkdtemp(prefix="millstream-broker-"))
    with watched(folder, "broker"):
        try:
            status = local.start(folder, port=port, settings=merged, seat=seat, timeout=timeout)
        except MillstreamError as error:
            error.add_note(_end_of_log(folder))  # the file is removed with the folder
            raise
        yield ThrowAwayBroker(status, merged, seat)


def _end_of_log(folder: Path) -> str:
    log = local.status(folder).log_file
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(["the end of the broker's log:", *lines[-30:]])

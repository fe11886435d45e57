"""A real Kafka broker on this machine: started in the background, one per folder.

    status = start()          # returns when the broker answers; it outlives this process
    status.address            # "127.0.0.1:23456", for any Kafka client
    stop()

The process is both broker and controller (KRaft), unless it is a node of a cluster (`cluster.py`).
It listens on the loopback only and keeps its address across restarts. Acknowledged records survive
`kill -9` of the broker.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from millstream.errors import AlreadyRunning, MillstreamError, SetupFailed, Unavailable
from millstream.kafka.local.broker_failure import cause, last_error
from millstream.kafka.local.broker_folder import (
    FORMAT,
    BrokerFolder,
    Note,
    free_port,
    refuse_newer,
    refuse_taken,
)
from millstream.kafka.local.broker_identity import create_coordinator_topics, identify
from millstream.kafka.local.broker_settings import Seat
from millstream.toolchain.folders import written_in
from millstream.toolchain.jars import jars
from millstream.toolchain.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

_POLL = 0.05
_KILL_SECONDS = 10.0  # in which a process has to exit after SIGKILL
_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
    "-XX:ErrorFile=java-crash.log",
    "-Djava.awt.headless=true",
    "-Dlog4j2.configurationFile=log4j2.properties",
)
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class BrokerStatus:
    """The status of a folder's broker.

    `running` means that its process exists, `answering` that it also replied within a second: a
    broker that is starting, paused or stuck runs without answering. `pid` and `started` (seconds
    since the epoch) are None unless it runs, `address` is None before the first start.
    """

    folder: Path
    running: bool
    pid: int | None
    address: str | None
    log_file: Path
    started: float | None
    answering: bool = False


def start(
    folder: Path | None = None,
    *,
    port: int | None = None,
    timeout: float = 30,
    settings: Mapping[str, str | int] | None = None,
    seat: Seat | None = None,
    say: Callable[[str], None] | None = None,
    on_lock: Callable[[], None] | None = None,
) -> BrokerStatus:
    """Start the folder's broker and return when it answers; it outlives this process.

    Args:
        folder: its data, log and settings, by default `~/.millstream/broker`; created if missing.
        port: where it listens on 127.0.0.1; by default its previous port, at the first start a
            free one.
        timeout: seconds until a broker that does not answer is killed.
        settings: Kafka broker settings for this start, in addition to Millstream's.
        seat: its role in a cluster of several brokers; without it, the broker is its own cluster.
        say: called with progress messages.
        on_lock: called once this start has locked the folder.

    Raises:
        AlreadyRunning: the folder's broker runs, or is being started.
        Unavailable: the port is in use, or the broker exited or did not answer in time; it is not
            left running.
        SetupFailed: Java or jars are missing, or the folder is not writable or of a later version.
    """
    place = BrokerFolder.at(folder)
    command = _command(find_java().executable, jars("broker", say=say), seat)
    with _writing(place):
        place.make()
        descriptor = place.life.take()
    if descriptor is None:
        raise _already(place)
    if on_lock is not None:
        on_lock()
    try:
        port = _prepare(place, command, port=port, seat=seat, settings=settings or {})
    except BaseException:
        os.close(descriptor)
        raise
    logged = _size(place.log)
    try:
        _launch(place, command, descriptor)
        _await_answer(place, port, timeout=timeout, logged=logged)
        if seat is None:
            create_coordinator_topics(port)
    except BaseException:
        kill(place.path)
        raise
    return status(place.path)


def stop(
    folder: Path | None = None,
    *,
    timeout: float = 20,
    say: Callable[[str], None] | None = None,
) -> bool:
    """Shut the folder's broker down and return when it has exited; False if none was running.

    After `timeout` seconds it is killed, with a message to `say` or to the log; acknowledged
    records survive that too.
    """
    place = BrokerFolder.at(folder)
    if not place.life.send(signal.SIGTERM, wait=timeout):
        if place.life.held():
            raise Unavailable(
                f"the broker in {place.path} must have started before it can be stopped",
                got=f"a start that is still in progress after {timeout:g} s",
                do="stop it again when the start is complete",
            )
        return False
    place.life.send(signal.SIGCONT)  # a paused process cannot exit
    if not place.life.ended(timeout):
        report = say or logging.getLogger(__name__).warning
        report(f"the broker in {place.path} did not exit within {timeout:g} s and was killed")
        kill(place.path)
    return True


def kill(folder: Path | None = None) -> bool:
    """Kill the folder's broker with SIGKILL; False if none was running."""
    place = BrokerFolder.at(folder)
    if not place.life.send(signal.SIGKILL):
        return False
    if not place.life.ended(_KILL_SECONDS):
        raise Unavailable(
            f"the broker in {place.path} needs to exit after SIGKILL",
            got=f"a process that still runs after {_KILL_SECONDS:g} s",
            do="check for a disk or file system that hangs",
        )
    return True


def pause(folder: Path | None = None) -> bool:
    """Pause the folder's broker (SIGSTOP): its process exists and does not answer."""
    return BrokerFolder.at(folder).life.send(signal.SIGSTOP)


def resume(folder: Path | None = None) -> bool:
    """Resume a paused broker (SIGCONT)."""
    return BrokerFolder.at(folder).life.send(signal.SIGCONT)


def status(folder: Path | None = None) -> BrokerStatus:
    """The current status of the folder's broker; in an unused folder none is running."""
    place = BrokerFolder.at(folder)
    note = place.note()
    port = note.port if note else None
    process = place.life.holder()
    running = process is not None or place.life.held()
    return BrokerStatus(
        folder=place.path,
        running=running,
        pid=process.pid if process else None,
        address=None if port is None else f"127.0.0.1:{port}",
        log_file=place.log,
        started=_started(process),
        answering=running and port is not None and _answers(place, port),
    )


def running_address(folder: Path | None = None) -> str | None:
    """Where the folder's broker listens, or None if it is not running."""
    return BrokerFolder.at(folder).running_address()


def _writing(place: BrokerFolder) -> AbstractContextManager[None]:
    return written_in(place.path, "MILLSTREAM_HOME")


def _command(java: Path, class_path: Sequence[Path], seat: Seat | None) -> list[str]:
    heap = Seat.heap if seat is None else seat.heap
    return [
        str(java),
        f"-Xmx{heap}m",
        *_OPTIONS,
        "-cp",
        os.pathsep.join(str(jar) for jar in class_path),
    ]


def _prepare(
    place: BrokerFolder,
    command: Sequence[str],
    *,
    port: int | None,
    seat: Seat | None,
    settings: Mapping[str, str | int],
) -> int:
    """Prepare the folder for launching the broker; returns its port."""
    kafka = _kafka_version(command[-1])
    note = place.note() or Note(FORMAT, kafka)
    refuse_newer(place, note, kafka)
    port = port if port is not None else note.port
    if port is None:
        port = free_port()
    refuse_taken(port)
    seat = seat or Seat({1: free_port(besides=port)})
    with _writing(place):
        place.configure(seat.settings(port, settings))
        place.write_note(Note(FORMAT, kafka, port))
        if not place.data.exists():
            _format(place, command, seat.cluster)
    return port


def _launch(place: BrokerFolder, command: Sequence[str], descriptor: int) -> None:
    with _writing(place):
        place.life.launch(
            [*command, "kafka.Kafka", place.settings.name],
            descriptor=descriptor,
            folder=place.path,
            output=place.output,
            environment=_environment(),
        )


def _kafka_version(class_path: str) -> str:
    found = re.search(r"kafka_2\.13-([\d.]+?)\.jar", class_path)
    assert found, "the broker's class path holds Kafka"
    return found[1]


def _format(place: BrokerFolder, command: Sequence[str], cluster: str) -> None:
    """Format the data folder with the cluster's id, in one step even if this process is killed."""
    shutil.rmtree(place.unfinished, ignore_errors=True)
    done = subprocess.run(
        [*command, "kafka.tools.StorageTool", "format",
         f"--cluster-id={cluster}", "--config", "format.properties"],
        cwd=place.path,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SetupFailed(
            f"the broker's folder {place.path} needs to be formatted",
            got=cause(done.stdout) or f"exit code {done.returncode} from Kafka's StorageTool",
            do="fix that and start again",
        )
    place.unfinished.rename(place.data)


def _environment() -> dict[str, str]:
    """Few variables: no secrets and no Java options reach the broker; file names are UTF-8."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed, "LC_ALL": "C.UTF-8"}


def _await_answer(place: BrokerFolder, port: int, *, timeout: float, logged: int) -> None:
    until = time.monotonic() + timeout
    while not _answers(place, port):
        if not place.life.held():
            raise _failed(place, "exited while starting", logged)
        if time.monotonic() > until:
            raise _failed(place, f"did not answer within {timeout:g} s", logged)
        time.sleep(_POLL)


def _answers(place: BrokerFolder, port: int) -> bool:
    identity = identify(port)
    return identity is not None and bool(identity.nodes) and identity.cluster == place.cluster


def _failed(place: BrokerFolder, what: str, logged: int) -> MillstreamError:
    return Unavailable(
        f"the broker in {place.path} needs to start",
        got=f"one that {what}: {last_error(place.log, place.output, since=logged)}",
        do=f"see {place.log}",
    )


def _already(place: BrokerFolder) -> AlreadyRunning:
    process, address = place.life.holder(), place.running_address()
    known = f"one running (pid {process.pid}, {address})" if process else "one being started"
    return AlreadyRunning(
        f"the folder {place.path} runs at most one broker",
        got=known,
        do="use that one, or stop it with `millstream down`",
    )


def _started(process: psutil.Process | None) -> float | None:
    try:
        return process.create_time() if process else None
    except psutil.Error:
        return None


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0

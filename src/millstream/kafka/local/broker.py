"""A real Kafka broker on this machine: started in the background, one per folder.

    status = start()          # returns when the broker answers; it outlives this process
    status.address            # "127.0.0.1:23456", for any Kafka client
    stop()

One process is broker and controller (KRaft), unless it is given a seat among others
(`cluster.py`). It listens on the loopback only and keeps its address over restarts. What it has
acknowledged survives `kill -9` of the broker.
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
from millstream.kafka.local.broker_failure import cause, last_words
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
_LAST_RESORT = 10.0  # seconds the system gets to end a process after SIGKILL
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
    """What is known about the broker of a folder.

    `running` says that its process lives, `answering` that it also replied within a second:
    a broker that is starting, paused or stuck runs without answering. `pid`, `started` (seconds
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
    taken: Callable[[], None] | None = None,
) -> BrokerStatus:
    """Start the folder's broker and return when it answers; it goes on without this process.

    Args:
        folder: its data, log and settings; `~/.millstream/broker` unless said. Made when missing.
        port: where it listens on 127.0.0.1. Unless said, the one it had before; at the first
            start a free one.
        timeout: seconds it gets to answer before it is killed again.
        settings: Kafka broker settings beside Millstream's own, for this start.
        seat: its place in a cluster of several; without one it is a cluster by itself.
        say: told what takes time.
        taken: called when the folder is this start's: no other has it.

    Raises:
        AlreadyRunning: the folder has a living broker, or another start is under way.
        Unavailable: the port is taken, or the broker ended or did not answer in time; nothing
            of it is left running.
        SetupFailed: no Java, no jars, a folder that cannot be written or is from a later version.
    """
    place = BrokerFolder.at(folder)
    command = _command(find_java().executable, jars("broker", say=say), seat)
    with _writing(place):
        place.make()
        descriptor = place.life.take()
    if descriptor is None:
        raise _already(place)
    if taken is not None:
        taken()
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
    """End the folder's broker cleanly and return when it is gone; False when none was running.

    One that has not ended after `timeout` seconds is killed, and `say` (or the log) is told so;
    what it had acknowledged is kept even then.
    """
    place = BrokerFolder.at(folder)
    if not place.life.send(signal.SIGTERM, wait=timeout):
        if place.life.held():
            raise Unavailable(
                f"the broker in {place.path} must be launched before it can be stopped",
                got=f"a start that is still under way after {timeout:g} s",
                do="stop it again when that has ended",
            )
        return False
    place.life.send(signal.SIGCONT)  # a paused one must wake up to end
    if not place.life.ended(timeout):
        tell = say or logging.getLogger(__name__).warning
        tell(f"the broker in {place.path} did not end within {timeout:g} s and was killed")
        kill(place.path)
    return True


def kill(folder: Path | None = None) -> bool:
    """End the folder's broker at once, by SIGKILL; False when none was running."""
    place = BrokerFolder.at(folder)
    if not place.life.send(signal.SIGKILL):
        return False
    if not place.life.ended(_LAST_RESORT):
        raise Unavailable(
            f"the broker in {place.path} must end when killed",
            got=f"a process the system has not ended for {_LAST_RESORT:g} s",
            do="look for a disk or a file system that hangs",
        )
    return True


def pause(folder: Path | None = None) -> bool:
    """Hold the folder's broker still (SIGSTOP): it lives and answers nobody."""
    return BrokerFolder.at(folder).life.send(signal.SIGSTOP)


def resume(folder: Path | None = None) -> bool:
    """Let a paused broker go on (SIGCONT)."""
    return BrokerFolder.at(folder).life.send(signal.SIGCONT)


def status(folder: Path | None = None) -> BrokerStatus:
    """What the folder's broker is doing now; a folder never used has none running."""
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
    """Bring the folder to where the broker can be launched, and say on which port it will be."""
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
        place.remember(Note(FORMAT, kafka, port))
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
    """Give the folder the cluster's id; a start killed half-way leaves nothing that looks done."""
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
            f"the broker needs its folder {place.path} formatted",
            got=cause(done.stdout) or f"exit code {done.returncode} from Kafka's StorageTool",
            do="correct that and start again",
        )
    place.unfinished.rename(place.data)


def _environment() -> dict[str, str]:
    """Little of ours: nothing secret and no Java options reach the broker; names are UTF-8."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed, "LC_ALL": "C.UTF-8"}


def _await_answer(place: BrokerFolder, port: int, *, timeout: float, logged: int) -> None:
    until = time.monotonic() + timeout
    while not _answers(place, port):
        if not place.life.held():
            raise _failed(place, "ended while starting", logged)
        if time.monotonic() > until:
            raise _failed(place, f"did not answer within {timeout:g} s", logged)
        time.sleep(_POLL)


def _answers(place: BrokerFolder, port: int) -> bool:
    identity = identify(port)
    return identity is not None and bool(identity.nodes) and identity.cluster == place.cluster


def _failed(place: BrokerFolder, what: str, logged: int) -> MillstreamError:
    return Unavailable(
        f"the broker in {place.path} must come up",
        got=f"one that {what}, saying: {last_words(place.log, place.output, since=logged)}",
        do=f"see {place.log}",
    )


def _already(place: BrokerFolder) -> AlreadyRunning:
    process, address = place.life.holder(), place.running_address()
    known = f"one running (pid {process.pid}, {address})" if process else "one being started"
    return AlreadyRunning(
        f"the folder {place.path} holds one broker",
        got=known,
        do="use that or end it with `millstream down`",
    )


def _started(process: psutil.Process | None) -> float | None:
    try:
        return process.create_time() if process else None
    except psutil.Error:
        return None


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0

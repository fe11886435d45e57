"""Several real Kafka brokers on this machine, as one cluster.

    status = start(brokers=3)   # returns when all of them answer; they outlive this process
    status.address              # "127.0.0.1:23456,127.0.0.1:…", for any Kafka client
    stop()

The first three nodes are controllers too (KRaft) and elect one among themselves; a topic is kept
on three brokers, and a record is acknowledged (`acks="all"`) when at least two have it. Each node
is a process of its own in a folder of its own, with all that `kafka/local/broker.py` promises.
"""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.errors import (
    AlreadyRunning,
    InvalidInput,
    MillstreamError,
    NotFound,
    Unavailable,
)
from millstream.kafka.local import broker
from millstream.kafka.local.broker_folder import free_port
from millstream.kafka.local.broker_identity import create_coordinator_topics, identify
from millstream.kafka.local.cluster_folder import ClusterFolder, NodePlace, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from millstream.kafka.local.broker import BrokerStatus
    from millstream.kafka.local.cluster_folder import ClusterNote

MOST = 9
_ENDING = 12.0
_LOOK = 0.1
_KNOWN = 5.0  # seconds in which every broker hears of a change


@dataclass(frozen=True)
class ClusterStatus:
    """What is known about the nodes of a folder's cluster; none, when there never was one."""

    folder: Path
    address: str | None
    copies: int
    nodes: Mapping[int, BrokerStatus]
    controllers: tuple[int, ...]

    @property
    def running(self) -> tuple[int, ...]:
        """The nodes whose process lives."""
        return tuple(node for node, status in self.nodes.items() if status.running)

    @property
    def answering(self) -> tuple[int, ...]:
        """The nodes that replied."""
        return tuple(node for node, status in self.nodes.items() if status.answering)

    @property
    def down(self) -> tuple[int, ...]:
        """The nodes that do not run."""
        return tuple(node for node, status in self.nodes.items() if not status.running)


def start(
    folder: Path | None = None,
    *,
    brokers: int | None = None,
    port: int | None = None,
    timeout: float = 60,
    settings: Mapping[str, str | int] | None = None,
    say: Callable[[str], None] | None = None,
) -> ClusterStatus:
    """Start those of the folder's nodes that do not run, and return when all answer.

    Args:
        folder: where the nodes keep their data; `~/.millstream/brokers` unless said.
        brokers: how many there are to be, 3 at the first start unless said. A cluster that is
            there already keeps its number: `add` and `remove` change it.
        port: of the first node, at the first start; the others follow. Free ones unless said.
        timeout: seconds the nodes get to answer before all that were started are killed again.
        settings: Kafka broker settings beside Millstream's own, for this start.
        say: told what takes time.

    Raises:
        AlreadyRunning: all of them run.
        InvalidInput: the number is none, or another than the cluster has.
        Unavailable: a port is taken, or a node ended or did not answer in time.
    """
    place = ClusterFolder.at(folder)
    note = place.note()
    if note is None:
        note = place.begin(planned(_checked(3 if brokers is None else brokers), first_port=port))
    _refuse_another_number(place, note, brokers)
    asleep = status(place.path).down
    if not asleep:
        raise AlreadyRunning(
            f"the folder {place.path} holds one cluster",
            got=f"one running at {note.address}",
            do="use that or end it with `millstream down`",
        )
    _together(place, note, asleep, timeout=timeout, settings=settings, say=say)
    if len(asleep) == len(note.nodes):
        create_coordinator_topics(note.nodes[1].port)
    return status(place.path)


def _together(
    place: ClusterFolder,
    note: ClusterNote,
    nodes: tuple[int, ...],
    *,
    timeout: float,
    settings: Mapping[str, str | int] | None,
    say: Callable[[str], None] | None,
) -> None:
    """Start nodes side by side: none answers before most controllers are there.

    When one fails none of those started here goes on, and none that another has started ends.
    """
    ours: set[int] = set()

    def one(node: int) -> None:
        try:
            broker.start(place.node(node), port=note.nodes[node].port, timeout=timeout,
                         settings=settings, seat=note.seat(node), say=say,
                         taken=lambda: ours.add(node))  # fmt: skip
        except BaseException:
            ours.discard(node)
            raise

    def end() -> None:
        for node in sorted(ours):
            broker.kill(place.node(node))

    with ThreadPoolExecutor(len(nodes)) as pool:
        starts = [pool.submit(one, node) for node in nodes]
        try:
            for started in starts:
                started.result()
        except BaseException:
            for started in starts:
                started.cancel()
            end()
            pool.shutdown()
            end()  # those that were not yet launched at the first failure
            raise


def start_node(
    node: int,
    folder: Path | None = None,
    *,
    timeout: float = 60,
    settings: Mapping[str, str | int] | None = None,
) -> BrokerStatus:
    """Start one node again."""
    place = ClusterFolder.at(folder)
    note = place.known()
    check_node(note, node)
    return broker.start(place.node(node), port=note.nodes[node].port, timeout=timeout,
                        settings=settings, seat=note.seat(node))  # fmt: skip


def add(
    folder: Path | None = None,
    *,
    timeout: float = 60,
    settings: Mapping[str, str | int] | None = None,
) -> int:
    """Add a broker to the running cluster, and give its number; it holds nothing yet.

    The others that run know it when this returns. It does not vote: the controllers are those
    the cluster began with.
    """
    place = ClusterFolder.at(folder)
    note = place.known()
    if len(note.nodes) >= MOST:
        raise InvalidInput(f"a local cluster has at most {MOST} brokers", got="one more")
    node = max(note.nodes) + 1
    note = replace(note, nodes={**note.nodes, node: NodePlace(free_port())})
    place.remember(note)
    try:
        start_node(node, place.path, timeout=timeout, settings=settings)
    except MillstreamError:
        _forget(place, node)
        raise
    _await_known(place, note, node, timeout=timeout)
    return node


def _await_known(place: ClusterFolder, note: ClusterNote, node: int, *, timeout: float) -> None:
    """Return when every other node that answers lists this one."""
    until = time.monotonic() + timeout
    others = [at.port for other, at in note.nodes.items() if other != node]
    while any(found is not None and node not in found.nodes for found in map(identify, others)):
        if time.monotonic() > until:
            raise Unavailable(
                f"the brokers in {place.path} must come to know the new broker {node}",
                got=f"some that do not after {timeout:g} s",
                do="wait: it runs, and `millstream brokers list` shows it when they do",
            )
        time.sleep(_LOOK)


def remove(
    node: int,
    folder: Path | None = None,
    *,
    settings: Mapping[str, str | int] | None = None,
) -> None:
    """End a broker that holds nothing any more, and forget it with all that is in its folder.

    One that does hold something is started again, with these `settings`, and stays.

    Raises:
        InvalidInput: it holds something, or it votes.
    """
    place = ClusterFolder.at(folder)
    note = place.known()
    check_removable(note, node)
    ran = broker.stop(place.node(node))
    try:
        _refuse_to_lose(note, node)
    except MillstreamError:
        if ran:
            start_node(node, place.path, settings=settings)
        raise
    _forget(place, node)


def _refuse_to_lose(note: ClusterNote, node: int) -> None:
    """Return when the others say that a node that has ended keeps nothing."""
    from millstream.kafka.admin.brokers import Brokers

    others = replace(note, nodes={n: at for n, at in note.nodes.items() if n != node})
    brokers = Brokers(others.address)
    until = time.monotonic() + _KNOWN
    while held := brokers.partitions_on(node):
        if time.monotonic() > until:
            raise InvalidInput(
                "a broker that is taken out needs to hold nothing",
                got=f"broker {node}, which holds {held[0][0]}/{held[0][1]}"
                + (f" and {len(held) - 1} more" if len(held) > 1 else ""),
                do="remove it again: what it holds is moved first",
            )
        time.sleep(_LOOK)


def check_node(note: ClusterNote, node: int) -> None:
    """Refuse a number that no node has."""
    if node not in note.nodes:
        raise NotFound(
            f"there is no broker {node}", do=f"there are {', '.join(map(str, sorted(note.nodes)))}"
        )


def check_removable(note: ClusterNote, node: int) -> None:
    """Refuse to take out a node that votes: the controllers must stay those they are."""
    check_node(note, node)
    if note.nodes[node].controller is not None:
        raise InvalidInput(
            "a broker that is taken out needs to be one that was added",
            got=f"broker {node}, which is one of the controllers "
            f"{', '.join(map(str, sorted(note.controllers)))}",
            do="move its partitions elsewhere with `millstream brokers move`, and leave it",
        )


def stop(folder: Path | None = None, *, say: Callable[[str], None] | None = None) -> bool:
    """End all nodes cleanly and return when they are gone; False when none was running.

    They go at the same time, for a node hands its partitions over before it ends and needs the
    controllers for that. One that finds nobody to hand over to is killed; what it had
    acknowledged is kept even then.
    """
    place = ClusterFolder.at(folder)
    note = place.note()
    if note is None:
        return False
    folders = [place.node(node) for node in sorted(note.nodes)]
    with ThreadPoolExecutor(len(folders)) as pool:
        ended = list(pool.map(lambda one: broker.stop(one, timeout=_ENDING, say=say), folders))
    return any(ended)


def stop_all(*, say: Callable[[str], None] | None = None) -> int:
    """Stop the local cluster and the single local broker; return how many brokers were running."""
    count = len(status().running)
    stop(say=say)
    return count + broker.stop(say=say)


def kill(folder: Path | None = None) -> bool:
    """End all nodes at once, by SIGKILL; False when none was running."""
    place = ClusterFolder.at(folder)
    note = place.note()
    nodes = [] if note is None else sorted(note.nodes)
    killed = [broker.kill(place.node(node)) for node in nodes]
    return any(killed)


def status(folder: Path | None = None) -> ClusterStatus:
    """What the nodes are doing now."""
    place = ClusterFolder.at(folder)
    note = place.note()
    if note is None:
        return ClusterStatus(place.path, None, 0, {}, ())
    folders = {node: place.node(node) for node in sorted(note.nodes)}
    with ThreadPoolExecutor(len(folders)) as pool:
        told = dict(zip(folders, pool.map(broker.status, folders.values()), strict=True))
    return ClusterStatus(place.path, note.address, note.copies, told, tuple(note.controllers))


def running_address(folder: Path | None = None) -> str | None:
    """Where the folder's cluster listens, or None if none of its nodes runs."""
    return ClusterFolder.at(folder).running_address()


def is_chosen(folder: Path | None = None) -> bool:
    """Whether it was a cluster, and not the one broker, that was started last."""
    note = ClusterFolder.at(folder).note()
    return note is not None and note.chosen


def choose(*, chosen: bool, folder: Path | None = None) -> None:
    """Have `up` start this cluster by itself from now on, or no longer."""
    place = ClusterFolder.at(folder)
    note = place.note()
    if note is not None and note.chosen is not chosen:
        place.remember(replace(note, chosen=chosen))


def _forget(place: ClusterFolder, node: int) -> None:
    note = place.known()
    place.remember(replace(note, nodes={n: at for n, at in note.nodes.items() if n != node}))
    shutil.rmtree(place.node(node), ignore_errors=True)


def _checked(brokers: int) -> int:
    if isinstance(brokers, bool) or not isinstance(brokers, int) or not 1 <= brokers <= MOST:
        raise InvalidInput(f"a local cluster has 1 to {MOST} brokers", got=repr(brokers))
    return brokers


def _refuse_another_number(place: ClusterFolder, note: ClusterNote, brokers: int | None) -> None:
    if brokers is not None and _checked(brokers) != len(note.nodes):
        raise InvalidInput(
            f"the cluster in {place.path} has {len(note.nodes)} brokers",
            got=f"{brokers}",
            do="change that with `millstream brokers add` and `remove` while it is up",
        )

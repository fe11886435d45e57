"""Several real Kafka brokers on this machine, as one cluster.

    status = start(brokers=3)   # returns when all of them answer; they outlive this process
    status.address              # "127.0.0.1:23456,127.0.0.1:…", for any Kafka client
    stop()

The first three nodes are also controllers (KRaft). A topic has three replicas, and a record is
acknowledged (`acks="all"`) when at least two brokers have it. Each node is a separate process with
its own folder; what `kafka/local/broker.py` promises holds for each.
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
from millstream.kafka.local.cluster_folder import ClusterFolder, NodePorts, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from millstream.kafka.local.broker import BrokerStatus
    from millstream.kafka.local.cluster_folder import ClusterNote

MAX_BROKERS = 9
_STOP_SECONDS = 12.0
_POLL = 0.1
_PROPAGATION_SECONDS = 5.0  # in which a change is known to every broker


@dataclass(frozen=True)
class ClusterStatus:
    """The status of the nodes of a folder's cluster; without a cluster there are none."""

    folder: Path
    address: str | None
    copies: int
    nodes: Mapping[int, BrokerStatus]
    controllers: tuple[int, ...]

    @property
    def running(self) -> tuple[int, ...]:
        """The nodes whose process is running."""
        return tuple(node for node, status in self.nodes.items() if status.running)

    @property
    def answering(self) -> tuple[int, ...]:
        """The nodes that replied within a second."""
        return tuple(node for node, status in self.nodes.items() if status.answering)

    @property
    def down(self) -> tuple[int, ...]:
        """The nodes whose process is not running."""
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
    """Start the folder's nodes that are not running, and return when all answer.

    Args:
        folder: the data of the nodes, by default `~/.millstream/brokers`.
        brokers: their number at the first start, by default 3. `add` and `remove` change the
            number of an existing cluster.
        port: of the first node at the first start, the others follow; by default free ports.
        timeout: seconds until all nodes started here are killed if one does not answer.
        settings: Kafka broker settings for this start, in addition to Millstream's.
        say: called with progress messages.

    Raises:
        AlreadyRunning: all of them are running.
        InvalidInput: the number is invalid, or differs from the existing cluster's.
        Unavailable: a port is in use, or a node exited or did not answer in time.
    """
    place = ClusterFolder.at(folder)
    note = place.note()
    if note is None:
        note = place.create(planned(_checked(3 if brokers is None else brokers), first_port=port))
    _check_number(place, note, brokers)
    down = status(place.path).down
    if not down:
        raise AlreadyRunning(
            f"the folder {place.path} runs at most one cluster",
            got=f"one running at {note.address}",
            do="use that one, or stop it with `millstream down`",
        )
    _start_nodes(place, note, down, timeout=timeout, settings=settings, say=say)
    if len(down) == len(note.nodes):
        create_coordinator_topics(note.nodes[1].port)
    return status(place.path)


def _start_nodes(
    place: ClusterFolder,
    note: ClusterNote,
    nodes: tuple[int, ...],
    *,
    timeout: float,
    settings: Mapping[str, str | int] | None,
    say: Callable[[str], None] | None,
) -> None:
    """Start nodes in parallel: none answers before a majority of the controllers does.

    If one fails, those started here are killed, and those started by another process are not.
    """
    ours: set[int] = set()

    def start_one(node: int) -> None:
        try:
            broker.start(place.node(node), port=note.nodes[node].port, timeout=timeout,
                         settings=settings, seat=note.seat(node), say=say,
                         on_lock=lambda: ours.add(node))  # fmt: skip
        except BaseException:
            ours.discard(node)
            raise

    def kill_ours() -> None:
        for node in sorted(ours):
            broker.kill(place.node(node))

    with ThreadPoolExecutor(len(nodes)) as pool:
        starts = [pool.submit(start_one, node) for node in nodes]
        try:
            for started in starts:
                started.result()
        except BaseException:
            for started in starts:
                started.cancel()
            kill_ours()
            pool.shutdown()
            kill_ours()  # those that were launched after the first failure
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
    note = place.existing()
    check_node(note, node)
    return broker.start(place.node(node), port=note.nodes[node].port, timeout=timeout,
                        settings=settings, seat=note.seat(node))  # fmt: skip


def add(
    folder: Path | None = None,
    *,
    timeout: float = 60,
    settings: Mapping[str, str | int] | None = None,
) -> int:
    """Add a broker to the running cluster, and return its number; it has no partitions yet.

    When this returns, all running brokers know it. It is not a controller: those are fixed at the
    first start.
    """
    place = ClusterFolder.at(folder)
    note = place.existing()
    if len(note.nodes) >= MAX_BROKERS:
        raise InvalidInput(f"a local cluster has at most {MAX_BROKERS} brokers", got="one more")
    node = max(note.nodes) + 1
    note = replace(note, nodes={**note.nodes, node: NodePorts(free_port())})
    place.replace(note)
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
                f"the brokers in {place.path} need to discover the new broker {node}",
                got=f"some that have not after {timeout:g} s",
                do="wait: it is running, and `millstream brokers list` shows it when they have",
            )
        time.sleep(_POLL)


def remove(
    node: int,
    folder: Path | None = None,
    *,
    settings: Mapping[str, str | int] | None = None,
) -> None:
    """Stop a broker that has no replicas, and delete its folder.

    If it does have replicas, it is started again with these `settings`.

    Raises:
        InvalidInput: it has replicas, or it is a controller.
    """
    place = ClusterFolder.at(folder)
    note = place.existing()
    check_removable(note, node)
    was_running = broker.stop(place.node(node))
    try:
        _check_empty(note, node)
    except MillstreamError:
        if was_running:
            start_node(node, place.path, settings=settings)
        raise
    _forget(place, node)


def _check_empty(note: ClusterNote, node: int) -> None:
    """Return when the other brokers list no replica on a stopped node."""
    from millstream.kafka.admin.brokers import Brokers

    others = replace(note, nodes={n: at for n, at in note.nodes.items() if n != node})
    brokers = Brokers(others.address)
    until = time.monotonic() + _PROPAGATION_SECONDS
    while held := brokers.partitions_on(node):
        if time.monotonic() > until:
            raise InvalidInput(
                "a broker can be removed only without replicas",
                got=f"broker {node}, which has {held[0][0]}/{held[0][1]}"
                + (f" and {len(held) - 1} more" if len(held) > 1 else ""),
                do="move them with `millstream brokers move`, and remove it again",
            )
        time.sleep(_POLL)


def check_node(note: ClusterNote, node: int) -> None:
    """Refuse a node that does not exist."""
    if node not in note.nodes:
        raise NotFound(
            f"there is no broker {node}",
            do=f"choose one of {', '.join(map(str, sorted(note.nodes)))}",
        )


def check_removable(note: ClusterNote, node: int) -> None:
    """Refuse to remove a controller: the controllers are fixed."""
    check_node(note, node)
    if note.nodes[node].controller is not None:
        raise InvalidInput(
            "a broker can be removed only if it was added",
            got=f"broker {node}, which is one of the controllers "
            f"{', '.join(map(str, sorted(note.controllers)))}",
            do="move its partitions to other brokers with `millstream brokers move`, and keep it",
        )


def stop(folder: Path | None = None, *, say: Callable[[str], None] | None = None) -> bool:
    """Shut all nodes down and return when they have exited; False if none was running.

    They stop in parallel, because a controlled shutdown moves leadership and needs a controller.
    A node that cannot complete it is killed; acknowledged records survive that too.
    """
    place = ClusterFolder.at(folder)
    note = place.note()
    if note is None:
        return False
    folders = [place.node(node) for node in sorted(note.nodes)]
    with ThreadPoolExecutor(len(folders)) as pool:
        stopped = pool.map(lambda one: broker.stop(one, timeout=_STOP_SECONDS, say=say), folders)
        return any(list(stopped))


def stop_all(*, say: Callable[[str], None] | None = None) -> int:
    """Stop the local cluster and the single local broker; return how many brokers were running."""
    count = len(status().running)
    stop(say=say)
    return count + broker.stop(say=say)


def kill(folder: Path | None = None) -> bool:
    """Kill all nodes with SIGKILL; False if none was running."""
    place = ClusterFolder.at(folder)
    note = place.note()
    nodes = [] if note is None else sorted(note.nodes)
    killed = [broker.kill(place.node(node)) for node in nodes]
    return any(killed)


def status(folder: Path | None = None) -> ClusterStatus:
    """The current status of the nodes."""
    place = ClusterFolder.at(folder)
    note = place.note()
    if note is None:
        return ClusterStatus(place.path, None, 0, {}, ())
    folders = {node: place.node(node) for node in sorted(note.nodes)}
    with ThreadPoolExecutor(len(folders)) as pool:
        nodes = dict(zip(folders, pool.map(broker.status, folders.values()), strict=True))
    return ClusterStatus(place.path, note.address, note.copies, nodes, tuple(note.controllers))


def running_address(folder: Path | None = None) -> str | None:
    """Where the folder's cluster listens, or None if none of its nodes runs."""
    return ClusterFolder.at(folder).running_address()


def is_chosen(folder: Path | None = None) -> bool:
    """Whether a cluster, and not the single broker, was started last."""
    note = ClusterFolder.at(folder).note()
    return note is not None and note.chosen


def choose(*, chosen: bool, folder: Path | None = None) -> None:
    """Set whether `up` starts this cluster by default."""
    place = ClusterFolder.at(folder)
    note = place.note()
    if note is not None and note.chosen is not chosen:
        place.replace(replace(note, chosen=chosen))


def _forget(place: ClusterFolder, node: int) -> None:
    note = place.existing()
    place.replace(replace(note, nodes={n: at for n, at in note.nodes.items() if n != node}))
    shutil.rmtree(place.node(node), ignore_errors=True)


def _checked(brokers: int) -> int:
    if isinstance(brokers, bool) or not isinstance(brokers, int) or not 1 <= brokers <= MAX_BROKERS:
        raise InvalidInput(f"a local cluster has 1 to {MAX_BROKERS} brokers", got=repr(brokers))
    return brokers


def _check_number(place: ClusterFolder, note: ClusterNote, brokers: int | None) -> None:
    if brokers is not None and _checked(brokers) != len(note.nodes):
        raise InvalidInput(
            f"the cluster in {place.path} has {len(note.nodes)} brokers",
            got=f"{brokers}",
            do="change that with `millstream brokers add` and `remove` while it is running",
        )

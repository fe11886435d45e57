"""Bytewax on the same topic, with its own Kafka connector and orjson.

Batches of records are decoded and encoded in one call. What needs no state runs in two processes,
of which the second measures both; with state there is one, which is as fast for a CPU-second and
reads the partitions evenly: of two, one runs ahead, and the rows of the other are late. Its clock
lets the watermark go on with the machine's time, by which the rows of a backlog would be late, so
it gets a constant time: the watermark is then the largest time of a key less the
delay. There is no recovery store, and one epoch for the whole run: at the end of each it copies the
state of all keys, also without such a store. Windows that are still open at the end of the topic
are closed by it. Its sink is at least once. This module runs without Millstream: it may import
nothing of it.
"""

from __future__ import annotations

import multiprocessing
import operator
import socket
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import bytewax.operators as op  # type: ignore[import-not-found]
import orjson
from bytewax.connectors.kafka import (  # type: ignore[import-not-found]
    KafkaSink,
    KafkaSinkMessage,
    KafkaSource,
)
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.operators import windowing  # type: ignore[import-not-found]
from bytewax.testing import cluster_main, run_main  # type: ignore[import-not-found]

from benchmarks.engines.librdkafka import (
    FETCHING,
    PRODUCING,
    drained,
    milliseconds,
    moment,
    topics_of,
)
from benchmarks.measure import measured
from benchmarks.processes import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from benchmarks.measure import Cost

BATCH = 2_000
EPOCH = datetime.fromtimestamp(0, UTC)
ONE_EPOCH = timedelta(days=1)
AHEAD = "60 seconds"  # one topic of a join is read ahead of the other by less
LISTENING = 1.0  # seconds after which the first process surely waits for the second

Row = dict[str, Any]


def _rows(batch: list[Any]) -> Iterator[Row]:
    return (orjson.loads(message.value) for message in batch)


def _answers(rows: Iterable[Row]) -> list[Any]:
    return [KafkaSinkMessage(None, orjson.dumps(row)) for row in rows]


def q1(read: Any, _spec: Row) -> Any:
    """Every bid in another currency."""
    return op.flat_map_batch("q1", read, lambda batch: _answers(
        {"auction": row["auction"], "bidder": row["bidder"], "price": row["price"] * 0.908,
         "ts": moment(row["ts"])} for row in _rows(batch)))  # fmt: skip


def q2(read: Any, _spec: Row) -> Any:
    """The bids of a few auctions."""
    return op.flat_map_batch("q2", read, lambda batch: _answers(
        {"auction": row["auction"], "price": row["price"]}
        for row in _rows(batch) if row["auction"] % 123 == 0))  # fmt: skip


def tumbling(read: Any, spec: Row) -> Any:
    """Count and sum per auction and window."""
    size = milliseconds(spec["window"])
    windower = windowing.TumblingWindower(length=_time(size), align_to=EPOCH)
    folded = windowing.fold_window(
        "fold", _keyed(read, "auction", "price"), _clock(spec), windower,
        lambda: (0, 0.0), lambda state, value: (state[0] + 1, state[1] + value[1]),
        lambda one, other: (one[0] + other[0], one[1] + other[1]), ordered=False,
    )  # fmt: skip
    return op.flat_map_batch("answer", folded.down, lambda batch: _answers(
        {"auction": int(key), **_bounds(place * size, (place + 1) * size), "n": n, "total": total}
        for key, (place, (n, total)) in batch))  # fmt: skip


def hopping(read: Any, spec: Row) -> Any:
    """Count per auction and hopping window."""
    size, every = milliseconds(spec["window"]), milliseconds(spec["every"])
    windower = windowing.SlidingWindower(length=_time(size), offset=_time(every), align_to=EPOCH)
    folded = windowing.fold_window(
        "fold", _keyed(read, "auction"), _clock(spec), windower, lambda: 0,
        lambda count, _: count + 1, lambda one, other: one + other, ordered=False,
    )  # fmt: skip
    return op.flat_map_batch("answer", folded.down, lambda batch: _answers(
        {"auction": int(key), **_bounds(place * every, place * every + size), "n": n}
        for key, (place, n) in batch))  # fmt: skip


def session(read: Any, spec: Row) -> Any:
    """Count per bidder and session; its bounds are those of the records in it."""
    gap = milliseconds(spec["gap"])
    folded = windowing.fold_window(
        "fold", _keyed(read, "bidder"), _clock(spec), windowing.SessionWindower(gap=_time(gap)),
        list, _with, lambda one, other: [one[0] + other[0], min(one[1], other[1]),
                                         max(one[2], other[2])], ordered=False,
    )  # fmt: skip
    return op.flat_map_batch("answer", folded.down, lambda batch: _answers(
        {"bidder": int(key), **_bounds(first, last + gap), "n": n}
        for key, (_, (n, first, last)) in batch))  # fmt: skip


def _with(state: list[int], value: tuple[int, ...]) -> list[int]:
    if not state:
        return [1, value[0], value[0]]
    return [state[0] + 1, min(state[1], value[0]), max(state[2], value[0])]


def q5(read: Any, spec: Row) -> Any:
    """The most bids an auction has per window of 10 s every 2 s: a window counts all auctions."""
    size, every = 10_000, 2_000
    windower = windowing.SlidingWindower(length=_time(size), offset=_time(every), align_to=EPOCH)
    counted = windowing.fold_window("fold", _together(read, "auction"), _clock(spec), windower,
                                    Counter, _one_more, operator.add, ordered=False)  # fmt: skip
    return op.flat_map_batch("answer", counted.down, lambda batch: _answers(
        {"window_start": moment(place * every), "n": max(counts.values())}
        for _, (place, counts) in batch))  # fmt: skip


def _one_more(counts: Counter[int], value: tuple[int, int]) -> Counter[int]:
    counts[value[1]] += 1
    return counts


def q7(read: Any, spec: Row) -> Any:
    """The bids with the highest price of their window of 10 s."""
    windower = windowing.TumblingWindower(length=_time(10_000), align_to=EPOCH)
    highest = windowing.fold_window(
        "fold", _together(read, "price", "auction", "bidder"), _clock(spec), windower, list,
        lambda best, value: _highest(best, [value]), _highest, ordered=False,
    )  # fmt: skip
    return op.flat_map_batch("answer", highest.down, lambda batch: _answers(
        {"auction": auction, "bidder": bidder, "price": price, "ts": moment(at)}
        for _, (_, best) in batch for at, price, auction, bidder in best))  # fmt: skip


def _highest(best: list[Any], others: list[Any]) -> list[Any]:
    if not best or others[0][1] > best[0][1]:
        return others
    return best if others[0][1] < best[0][1] else best + others


def q8(persons: Any, auctions: Any, _spec: Row) -> Any:
    """Persons that opened an auction in the window in which they came.

    The fewer persons are read ahead of the auctions: windows wait for longer than the delay.
    """
    size = 10_000
    windower = windowing.TumblingWindower(length=_time(size), align_to=EPOCH)
    joined = windowing.join_window(
        "join", _clock({"delay": AHEAD}), windower, _keyed(persons, "id", "name"),
        _keyed(auctions, "seller"), insert_mode="first", emit_mode="final", ordered=False,
    )  # fmt: skip
    return op.flat_map_batch("answer", joined.down, lambda batch: _answers(
        {"window_start": moment(place * size), "id": int(key), "name": person[1]}
        for key, (place, (person, auction)) in batch if person and auction))  # fmt: skip


def distinct(read: Any, _spec: Row) -> Any:
    """The first record of each auction, as it came."""
    keyed = op.flat_map_batch("key", read, lambda batch: [
        (str(orjson.loads(message.value)["auction"]), message.value) for message in batch
    ])  # fmt: skip
    first = op.stateful_flat_map("first", keyed,
                                 lambda seen, value: (True, () if seen else (value,)))  # fmt: skip
    return op.map("answer", first, lambda pair: KafkaSinkMessage(None, pair[1]))


WORKS: dict[str, Callable[..., Any]] = {
    "q1": q1, "q2": q2, "tumbling": tumbling, "hopping": hopping, "session": session,
    "distinct": distinct, "q5": q5, "q7": q7, "q8": q8,
}  # fmt: skip
IN_TWO = ("q1", "q2")


def _keyed(read: Any, key: str, *columns: str) -> Any:
    """Pairs of a key, which has to be text, and the time with the columns."""
    return op.flat_map_batch(f"key-{key}", read, lambda batch: [
        (str(row[key]), (row["ts"], *(row[name] for name in columns))) for row in _rows(batch)
    ])  # fmt: skip


def _together(read: Any, *columns: str) -> Any:
    """The same with one key for all, whose window is then the window of everything."""
    return op.flat_map_batch("together", read, lambda batch: [
        ("", (row["ts"], *(row[name] for name in columns))) for row in _rows(batch)
    ])  # fmt: skip


def _clock(spec: Row) -> Any:
    return windowing.EventClock(
        ts_getter=lambda value: datetime.fromtimestamp(value[0] / 1000, UTC),
        wait_for_system_duration=_time(milliseconds(spec["delay"])),
        now_getter=lambda: EPOCH,
        to_system_utc=lambda _: None,
    )


def _time(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def _bounds(first: int, last: int) -> dict[str, str]:
    return {"window_start": moment(first), "window_end": moment(last)}


def flow(address: str, spec: Row) -> Any:
    """The work that is spec, from topic to topic; it ends with the topic."""
    made = Dataflow("drain")
    sides = [
        op.input(f"read-{topic}", made, KafkaSource([address], [topic], tail=False,
                                                    add_config=FETCHING, batch_size=BATCH))
        for topic in topics_of(spec)
    ]  # fmt: skip
    answers = WORKS[spec.get("work", "tumbling")](*sides, spec)
    op.output("write", answers, KafkaSink([address], spec["out"], add_config=PRODUCING))
    return made


class Member:
    """One of the two processes; the second, which calls the first, measures both."""

    def __init__(self, number: int, addresses: list[str]) -> None:
        self._number, self._addresses = number, addresses

    def __call__(self, address: str, spec: Row) -> Cost:
        """Run a work together with the other process."""
        made = flow(address, spec)
        time.sleep(self._number * LISTENING)
        with measured() as cost:
            cluster_main(made, self._addresses, self._number, epoch_interval=ONE_EPOCH)
        return cost


def _alone(address: str, spec: Row) -> Cost:
    made = flow(address, spec)
    with measured() as cost:
        run_main(made, epoch_interval=ONE_EPOCH)
    return cost


def drain(address: str, spec: Row) -> dict[str, float]:
    """Drain a topic through the given workload into a topic, at least once."""
    if spec.get("work", "tumbling") not in IN_TWO:
        return drained(address, spec, _alone)
    addresses = _addresses()
    first = multiprocessing.get_context("spawn").Process(
        target=drained, args=(address, spec, Member(0, addresses)), daemon=True
    )
    first.start()
    figures = drained(address, spec, Member(1, addresses))
    first.join()
    return figures


def _addresses() -> list[str]:
    """Two that are free."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


if __name__ == "__main__":
    main({"drain": drain})

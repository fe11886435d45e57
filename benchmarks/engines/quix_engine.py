"""Quix Streams on the same topic: one process, JSON by orjson, no changelog topics.

Its state is RocksDB, by partition; for windows and keys the records go through a topic of its
own, keyed and with the columns that are needed. Windows are closed by the time of their partition:
if each key closed its own, the last ones of a key would stay. It does not wait for the slowest
partition of the topic: where a few fetches span more event time than the delay, as with few events
over the same span, rows are late and its windows wrong. At least once. It is measured from the
first record to the end of the last commit, without joining its group. This module runs without
Millstream: it may import nothing of it.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from quixstreams import Application  # type: ignore[import-not-found]
from quixstreams.dataframe.windows import Count, Sum  # type: ignore[import-not-found]

from benchmarks.engines.librdkafka import FETCHING, PRODUCING, drained, milliseconds, moment
from benchmarks.measure import measured
from benchmarks.processes import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measure import Cost

Row = dict[str, Any]


def q1(bids: Any, _spec: Row) -> Any:
    """Every bid in another currency."""
    return bids.apply(lambda bid: {"auction": bid["auction"], "bidder": bid["bidder"],
                                   "price": bid["price"] * 0.908,
                                   "ts": moment(bid["ts"])})  # fmt: skip


def q2(bids: Any, _spec: Row) -> Any:
    """The bids of a few auctions."""
    few = bids.filter(lambda bid: bid["auction"] % 123 == 0)
    return few.apply(lambda bid: {"auction": bid["auction"], "price": bid["price"]})


def tumbling(bids: Any, spec: Row) -> Any:
    """Count and sum per auction and window."""
    keyed = bids[["auction", "price"]].group_by("auction")
    windows = keyed.tumbling_window(milliseconds(spec["window"]), milliseconds(spec["delay"]))
    return _closed(windows.agg(n=Count(), total=Sum("price")))


def hopping(bids: Any, spec: Row) -> Any:
    """Count per auction and hopping window."""
    keyed = bids[["auction"]].group_by("auction")
    windows = keyed.hopping_window(milliseconds(spec["window"]), milliseconds(spec["every"]),
                                   milliseconds(spec["delay"]))  # fmt: skip
    return _closed(windows.agg(n=Count()))


def q7(bids: Any, spec: Row) -> Any:
    """The bids with the highest price of their window of 10 s, which has one key for all."""
    together = bids[["auction", "bidder", "price", "ts"]].group_by(lambda _: "all", name="all")
    windows = together.tumbling_window(10_000, milliseconds(spec["delay"]))
    highest = windows.reduce(_higher, lambda bid: [bid]).final(closing_strategy="partition")
    return highest.apply(lambda found: found["value"], expand=True).apply(
        lambda bid: {**bid, "ts": moment(bid["ts"])}
    )


def _higher(best: list[Row], bid: Row) -> list[Row]:
    if bid["price"] > best[0]["price"]:
        return [bid]
    return best if bid["price"] < best[0]["price"] else [*best, bid]


def _closed(windows: Any) -> Any:
    return windows.final(closing_strategy="partition").apply(_answer, metadata=True)


def _answer(found: Row, key: bytes, _timestamp: int, _headers: Any) -> Row:
    first, last = moment(found.pop("start")), moment(found.pop("end"))
    return {"auction": int(key), "window_start": first, "window_end": last, **found}


def distinct(bids: Any, _spec: Row) -> Any:
    """The first row of each auction."""
    return bids.group_by("auction").filter(_first, stateful=True)


def _first(_bid: Row, state: Any) -> bool:
    if state.exists("seen"):
        return False
    state.set("seen", True)  # noqa: FBT003 - Quix takes it by place
    return True


WORKS: dict[str, Callable[[Any, Row], Any]] = {
    "q1": q1, "q2": q2, "tumbling": tumbling, "hopping": hopping, "distinct": distinct, "q7": q7,
}  # fmt: skip
ONCE = ("q1", "q2")  # of the others each record is read again from the keyed topic


def _records(address: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "quix-count"})
    places = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, place)) for place in places]
    consumer.close()
    return sum(last - first for first, last in ends)


def _run(address: str, spec: Row) -> Cost:
    work = spec.get("work", "tumbling")
    left = _records(address, spec["topic"]) * (1 if work in ONCE else 2)
    costs: list[Cost] = []
    with ExitStack() as reading, tempfile.TemporaryDirectory() as folder:

        def processed(*_where: Any) -> None:
            nonlocal left
            if not costs:
                costs.append(reading.enter_context(measured()))
            left -= 1
            if not left:
                app.stop()

        app = Application(
            broker_address=address, consumer_group=spec["out"], auto_offset_reset="earliest",
            state_dir=folder, use_changelog_topics=False, loglevel="ERROR",
            on_message_processed=processed, broker_availability_timeout=0,
            consumer_extra_config=FETCHING, producer_extra_config=PRODUCING,
        )  # fmt: skip
        bids = app.topic(spec["topic"], timestamp_extractor=lambda bid, *_: bid["ts"])
        answers = WORKS[work](app.dataframe(bids), spec)
        answers.to_topic(app.topic(spec["out"]), key=lambda _: None)
        app.run()
    return costs[0]


def drain(address: str, spec: Row) -> dict[str, float]:
    """Drain a topic through the given workload into a topic, at least once."""
    return drained(address, spec, _run)


if __name__ == "__main__":
    main({"drain": drain})

"""Millstream itself, as a user runs it."""

from __future__ import annotations

import queue
import tempfile
import threading
import uuid
from typing import TYPE_CHECKING, Any

import millstream as ms
from benchmarks.engines import millstream_queries as queries
from benchmarks.feeding import FED_SCHEMA, Feed
from benchmarks.measure import Spent, measured
from benchmarks.nexmark import BID_SCHEMA
from benchmarks.processes import main, ready, wait_for_stop
from millstream.engine.inspection.sql_placement import in_java
from millstream.engine.spark.session import parallelism, session
from millstream.plan.stages import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.engine.job import Job
    from millstream.metrics.facts import Facts
    from millstream.sources.spec import Fetching

PATIENCE = 600


def pipeline(out: str, spec: dict[str, Any], schema: str = BID_SCHEMA) -> ms.Pipeline:
    """The work that is spec, from topic to topic."""
    read = ms.Topic(spec["topic"], schema=schema)
    bids = ms.read(read, time="ts", watermark=spec["delay"])
    return ms.Pipeline(out, WORKS[spec.get("work", "tumbling")](bids, spec).to(ms.Topic(out)),
                       batch=spec["batch"], latency=spec.get("latency", "0 seconds"),
                       engine="driver" if on_driver(spec) else "spark")  # fmt: skip


def on_driver(spec: dict[str, Any]) -> bool:
    """Whether it is `millstream-driver`."""
    return spec.get("store") == "driver"


def _tumbling(bids: ms.Stream, spec: dict[str, Any]) -> ms.Stream:
    hot = bids.by("auction").window(ms.tumbling(spec["window"]))
    return hot.agg(n=ms.count(), total=ms.sum("price"))


def _hopping(bids: ms.Stream, spec: dict[str, Any]) -> ms.Stream:
    window = ms.hopping(spec["window"], every=spec["every"])
    return bids.by("auction").window(window).agg(n=ms.count())


def _session(bids: ms.Stream, spec: dict[str, Any]) -> ms.Stream:
    return bids.by("bidder").window(ms.session(gap=spec["gap"])).agg(n=ms.count())


def _distinct(bids: ms.Stream, spec: dict[str, Any]) -> ms.Stream:
    return bids.distinct(by="auction")


def _read(topic: str, columns: str, spec: dict[str, Any]) -> ms.Stream:
    source = ms.Topic(topic, schema=f"auction long, {columns}, ts timestamp")
    return ms.read(source, time="ts", watermark=spec["delay"])


def _other(spec: dict[str, Any]) -> str:
    return str(spec["warm_other"] if spec["topic"] == spec["warm"] else spec["other"])


def _join(_bids: ms.Stream, spec: dict[str, Any]) -> ms.Stream:
    ours = _read(spec["topic"], "bidder long", spec)
    theirs = _read(_other(spec), "price double", spec)
    pairs = ours.join(theirs, on="auction", within=spec["within"], suffix="_paid")
    return pairs.select("auction", "bidder", "event_time as ts", "price")


def _as_of(_bids: ms.Stream, spec: dict[str, Any]) -> ms.Stream:
    source = ms.Topic(_other(spec), schema="auction long, price double, ts timestamp")
    prices = ms.table(source, key="auction", time="ts", watermark=spec["delay"])
    timed = prices.select("auction", "price")
    return _read(spec["topic"], "bidder long", spec).as_of(timed, on="auction")


def _q8(_bids: ms.Stream, spec: dict[str, Any]) -> ms.Stream:
    sources = (ms.Topic(spec["topic"], schema="id long, name string, ts timestamp"),
               ms.Topic(_other(spec), schema="seller long, ts timestamp"))  # fmt: skip
    return queries.q8(*(ms.read(one, time="ts", watermark=spec["delay"]) for one in sources))


WORKS = {"tumbling": _tumbling, "hopping": _hopping, "session": _session, "distinct": _distinct,
         "join": _join, "as_of": _as_of, "q1": queries.q1, "q2": queries.q2, "q5": queries.q5,
         "q7": queries.q7, "q8": _q8}  # fmt: skip


def drain(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Drain a topic through a window into a topic, exactly once."""
    if not on_driver(spec):
        session(sql=in_java(cut(pipeline(spec["out"], spec).outputs)))
    if spec["warm"]:
        warm = {**spec, "topic": spec["warm"], "out": f"warm-{uuid.uuid4().hex[:8]}"}
        _drain(address, warm)
    return _drain(address, spec)


def _drain(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    batches: list[Facts] = []
    with tempfile.TemporaryDirectory() as folder, measured() as cost:
        pipeline(spec["out"], spec).run(
            until="caught_up",
            kafka=address,
            checkpoint=f"{folder}/checkpoint",
            on_batch=lambda facts, lag: batches.append(facts),
        )
    return {"wall": cost.wall, "cpu": cost.cpu, "batches": [_figures(facts) for facts in batches]}


def decode(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Read and decode every record to columns in Spark tasks; sum every column there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from millstream.engine.lanes.tasks import begin_task, chunks
    from millstream.kafka.admin.topics import Topics
    from millstream.kafka.settings import Cluster
    from millstream.schema import Schema
    from millstream.sources.decode import Decoder
    from millstream.sources.kafka.reader import TopicReader

    names = ("rows", "auction", "bidder", "price", "channel", "url", "ts")
    decoder = Decoder(0, spec["topic"], Schema.parse(BID_SCHEMA), "ts", None)

    def summed(fetch: Fetching) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            begin_task()
            numbers = (number for batch in batches for number in batch.column(0).to_pylist())
            for chunk in chunks(fetch(numbers)):
                good = decoder(chunk).good
                found = [good.num_rows, *(pc.sum(good[name]).as_py() for name in names[1:4]),
                         *(pc.sum(pc.utf8_length(good[name])).as_py() for name in names[4:6]),
                         pc.sum(pc.divide(good["ts"].cast(pa.int64()), 1000)).as_py()]  # fmt: skip
                yield pa.record_batch([pa.array([float(one)]) for one in found], names=list(names))

        return sums

    spark, ddl = session(sql=False), ", ".join(f"{name} double" for name in names)
    for topic in (spec["warm"], spec["topic"]):
        ends = Topics(address).offsets(topic, at="end")
        reader = TopicReader(Cluster(address), topic, "bench")
        with measured() as cost:
            scan = reader.scan({p: (0, end) for p, end in ends.items()}, parallelism(spark))
            slices = spark.range(0, scan.count, 1, scan.count)
            rows = slices.mapInArrow(summed(scan.fetch), ddl).collect()
        reader.close()
    sums = [sum(row[place] for row in rows) for place in range(len(names))]
    return {"wall": cost.wall, "cpu": cost.cpu, "sums": sums}


def latency(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Run until it is stopped, exactly once."""
    running = threading.Event()
    batches: list[Facts] = []
    with tempfile.TemporaryDirectory() as folder:
        job = pipeline(spec["out"], spec, FED_SCHEMA).start(
            kafka=address,
            checkpoint=f"{folder}/checkpoint",
            on_batch=lambda facts, lag: batches.append(facts),
            on_phase=lambda phase: running.set() if phase == "running" else None,
        )
        while not running.wait(0.1) and not job.ended():
            pass
        if running.is_set():
            ready()
        with measured() as cost:
            wait_for_stop()
        job.stop()
        job.wait()
    reported = [_figures(facts) for facts in batches]
    return {"wall": cost.wall, "cpu": cost.cpu, "batches": reported}


def lasting(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Run on a checkpoint that stays, until it is killed."""
    pipeline(spec["out"], spec).run(kafka=address, checkpoint=f"{spec['folder']}/checkpoint")
    return {}


def continuous(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Rows one by one, in continuous mode, until it is stopped."""
    schema = "auction long, price double, ts long"
    rows = ms.read(ms.Topic(spec["topic"], schema=schema)).where("auction <> 3")
    made = rows.select("auction", "price * 0.9 as euros", "ts as sent")
    passing = ms.Pipeline(spec["out"], made.to(ms.Topic(spec["out"])), mode="continuous",
                          engine="driver", delivery="at_least_once")  # fmt: skip
    running = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        job = passing.start(
            kafka=address, checkpoint=f"{folder}/checkpoint",
            on_phase=lambda phase: running.set() if phase == "running" else None,
        )  # fmt: skip
        while not running.wait(0.1) and not job.ended():
            pass
        job.wait(0) if job.ended() else ready()
        with measured() as cost:
            wait_for_stop()
        job.stop()
        job.wait()
    return {"wall": cost.wall, "cpu": cost.cpu, "batches": []}


def growth(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Small batches over a per-key count with many keys open; then all of it counted out."""
    heard: queue.Queue[Facts] = queue.Queue()
    bids = ms.read(ms.Topic(spec["topic"], schema=FED_SCHEMA), time="ts")
    counts = bids.by("auction").window(ms.tumbling("10000 days")).agg(n=ms.count())
    counting = ms.Pipeline(spec["out"], counts.to(ms.Topic(spec["out"])), latency="0 seconds")
    feed = Feed(address, spec["topic"], spec["keys"])
    with tempfile.TemporaryDirectory() as folder:
        options = {"kafka": address, "checkpoint": f"{folder}/checkpoint"}
        job = counting.start(**options, on_batch=lambda facts, lag: heard.put(facts))
        _taken_in(job, heard, feed.preload())
        feed.settle()
        batches = []
        for _ in range(spec["batches"]):
            rows = feed.batch(spec["rows"])
            spent = Spent()
            facts = _taken_in(job, heard, rows)
            batches += [{**_figures(one), **spent.so_far()} for one in facts]
        job.stop()
        job.wait()
        counting.run(until="finished", **options)
    return {"batches": batches}


def _taken_in(job: Job, heard: queue.Queue[Facts], rows: int) -> list[Facts]:
    """The batches that took so many rows in."""
    found: list[Facts] = []
    while sum(facts.rows for facts in found) < rows:
        try:
            found.append(heard.get(timeout=1 if job.ended() else PATIENCE))
        except queue.Empty:
            job.wait(timeout=0)
            raise
    return [facts for facts in found if facts.rows]


def _figures(facts: Facts) -> dict[str, Any]:
    return {"rows": facts.rows, "seconds": facts.seconds, "lane": facts.lane,
            "phases": facts.phases, "state_rows": facts.state_rows}  # fmt: skip


if __name__ == "__main__":
    main({"drain": drain, "decode": decode, "latency": latency, "continuous": continuous,
          "growth": growth, "lasting": lasting})  # fmt: skip

"""Millstream itself, as a user runs it."""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from typing import Any

import millstream as ms
from benchmarks.measure import measured
from benchmarks.nexmark import BID_SCHEMA
from millstream.runtime.session import session


def pipeline(topic: str, out: str, window: str, delay: str, batch: str) -> ms.Pipeline:
    """Count and sum per auction and window."""
    bids = ms.read(ms.Topic(topic, schema=BID_SCHEMA), time="ts", watermark=delay)
    hot = bids.by("auction").window(ms.tumbling(window)).agg(n=ms.count(), total=ms.sum("price"))
    return ms.Pipeline(out, hot.to(ms.Topic(out)), batch=batch)


def tumbling(address: str, told: dict[str, Any]) -> dict[str, Any]:
    """Drain a topic through a window into a topic, exactly once."""
    session()
    lanes: list[str] = []
    for topic, out in ((told["warm"], f"warm-{uuid.uuid4().hex[:8]}"), (told["topic"], told["out"])):
        with tempfile.TemporaryDirectory() as folder, measured() as cost:
            pipeline(topic, out, told["window"], told["delay"], told["batch"]).run(
                until="caught_up", kafka=address, checkpoint=f"{folder}/checkpoint",
                on_batch=lambda facts, lag: lanes.append(facts.lane),
            )  # fmt: skip
    return {"wall": cost.wall, "cpu": cost.cpu, "lanes": {n: lanes.count(n) for n in set(lanes)}}


def decode(address: str, told: dict[str, Any]) -> dict[str, Any]:
    """Read and decode every record to columns in Spark tasks; count what came out."""
    import pyarrow as pa

    from millstream.log.settings import Cluster
    from millstream.log.topics import Topics
    from millstream.schema import Schema
    from millstream.sources.decode import Decoder
    from millstream.sources.topic_reader import TopicReader

    spark = session()
    decoder = Decoder(0, told["topic"], Schema.parse(BID_SCHEMA), "ts", None, None)

    def counted(batches: Any) -> Any:
        rows = 0
        for batch in batches:
            rows += decoder(pa.Table.from_batches([batch])).good.num_rows
        yield pa.record_batch([pa.array([rows])], names=["rows"])

    for topic in (told["warm"], told["topic"]):
        ends = Topics(address).offsets(topic, at="end")
        reader = TopicReader(Cluster(address), topic, "bench")
        with measured() as cost:
            frame = reader.frame(spark, {p: (0, end) for p, end in ends.items()})
            rows = sum(row[0] for row in frame.mapInArrow(counted, "rows long").collect())
        reader.close()
    return {"wall": cost.wall, "cpu": cost.cpu, "rows": rows}


if __name__ == "__main__":
    work, kafka, arguments = sys.argv[1:]
    answer = {"tumbling": tumbling, "decode": decode}[work](kafka, json.loads(arguments))
    print(json.dumps(answer))

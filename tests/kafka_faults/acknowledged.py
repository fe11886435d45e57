"""The judge, in a process of its own: what the cluster took must have come out, once.

    python acknowledged.py '{"kafka": …, "output": …, "notes": …}'

It prints JSON: ids that were acknowledged and did not come out (lost), that came out more than
once (doubled), and that nobody can have written (phantom). Ids whose writing ended with an error
may be there or not. It imports nothing of what it judges.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition


def noted(notes: str) -> tuple[set[int], set[int]]:
    """The ids that were taken, and those of which nobody knows."""
    found: dict[str, set[int]] = {"taken": set(), "unknown": set()}
    for line in Path(notes).read_text().splitlines():
        word, _, number = line.partition(" ")
        found[word].add(int(number))
    return found["taken"], found["unknown"]


def came_out(kafka: str, topic: str) -> Counter[int]:
    """The ids in the output, read with committed eyes up to its end."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "judge", "log_level": 0,
                         "isolation.level": "read_committed", "enable.partition.eof": True,
                         "auto.offset.reset": "earliest"})  # fmt: skip
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    left, found = set(partitions), Counter[int]()
    while left:
        for record in consumer.consume(10_000, 0.2):
            error = record.error()
            if error is None:
                found[int(json.loads(record.value() or b"")["id"])] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(record.partition() or 0)
            elif not error.retriable():
                raise SystemExit(f"reading {topic}: {error}")
    consumer.close()
    return found


def judge(kafka: str, output: str, notes: str) -> dict[str, Any]:
    taken, unknown = noted(notes)
    found = came_out(kafka, output)
    return {
        "taken": len(taken),
        "unknown": len(unknown),
        "came out": len(found),
        "lost": sorted(taken - set(found)),
        "doubled": sorted(number for number, times in found.items() if times > 1),
        "phantom": sorted(set(found) - taken - unknown),
    }


if __name__ == "__main__":
    print(json.dumps(judge(**json.loads(sys.argv[1]))))
    assert not any(name.partition(".")[0] == "millstream" for name in sys.modules)

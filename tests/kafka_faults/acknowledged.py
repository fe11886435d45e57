"""Checks in a separate process that every acknowledged id is in the output exactly once.

    python acknowledged.py '{"kafka": …, "output": …, "notes": …}'

It prints JSON: acknowledged ids that are not in the output (lost), ids that are there more than
once (duplicated), and ids that were never written (phantom). Ids whose delivery failed may be there
or not. It imports nothing of `millstream`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition


def noted(notes: str) -> tuple[set[int], set[int]]:
    """The ids that were acknowledged, and those whose delivery failed."""
    found: dict[str, set[int]] = {"acknowledged": set(), "unknown": set()}
    for line in Path(notes).read_text().splitlines():
        word, _, number = line.partition(" ")
        found[word].add(int(number))
    return found["acknowledged"], found["unknown"]


def output_ids(kafka: str, topic: str) -> Counter[int]:
    """The ids in committed records of the output, and how often each is there."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "check", "log_level": 0,
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


def check(kafka: str, output: str, notes: str) -> dict[str, Any]:
    acknowledged, unknown = noted(notes)
    found = output_ids(kafka, output)
    return {
        "acknowledged": len(acknowledged),
        "unknown": len(unknown),
        "output": len(found),
        "lost": sorted(acknowledged - set(found)),
        "duplicated": sorted(number for number, times in found.items() if times > 1),
        "phantom": sorted(set(found) - acknowledged - unknown),
    }


if __name__ == "__main__":
    print(json.dumps(check(**json.loads(sys.argv[1]))))
    assert not any(name.partition(".")[0] == "millstream" for name in sys.modules)

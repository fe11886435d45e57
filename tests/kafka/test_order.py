from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.oracles.murmur2_oracle import java_partition

from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from tests.kafka.shortly import Log

APPENDS, PRODUCERS, KEYS = 100_002, 3, 50

SENDER = """
import sys
from millstream.kafka.clients.producing.producer import Producer

address, topic, name, count, keys = sys.argv[1:]
with Producer(address) as producer:
    for number in range(int(count)):
        key = f"{number % int(keys)}"
        producer.send(topic, f"{name} {number}", key=key)
    producer.flush()
    print(producer.acknowledged)
"""


def test_three_producers_at_once_keep_the_order_of_every_key(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=4)
    each = APPENDS // PRODUCERS
    senders = [
        subprocess.Popen(
            [sys.executable, "-c", SENDER, log.address, topic, name, str(each), str(KEYS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    acknowledged = [int(sender.communicate(timeout=120)[0]) for sender in senders]
    assert acknowledged == [each] * PRODUCERS

    seen: dict[tuple[bytes, str], list[int]] = defaultdict(list)
    places: dict[bytes, set[int]] = defaultdict(set)
    with log.consumer(topic, until_end=True) as consumer:
        for batch in consumer.batches():
            rows = zip(
                batch["key"].to_pylist(),
                batch["partition"].to_pylist(),
                batch["value"].to_pylist(),
                strict=True,
            )
            for key, partition, value in rows:
                sender, number = value.decode().split()
                seen[key, sender].append(int(number))
                places[key].add(partition)

    assert sum(map(len, seen.values())) == APPENDS
    for (key, _), numbers in seen.items():
        assert numbers == list(range(int(key), each, KEYS))
    assert places == {key: {java_partition(key, 4)} for key in places}
    assert len(places) == KEYS


def test_between_partitions_there_is_no_order(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=4)
    with Producer(log.address, partitioner="round_robin") as producer:
        producer.send_many(topic, [b"%d" % i for i in range(4_000)])

    records = log.read(topic)
    read = [int(record.value or b"") for record in records]

    assert sorted(read) == list(range(4_000))
    assert read != sorted(read)
    for partition in range(4):
        own = [int(it.value or b"") for it in records if it.partition == partition]
        assert own == sorted(own)

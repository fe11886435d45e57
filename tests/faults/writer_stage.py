"""A pipeline's output topic, and writers for it, without a job around them."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import Any

import pyarrow as pa
from tests.faults.running import until
from tests.faults.verifier import Log

from millstream.kafka.settings import Cluster
from millstream.sinks.kafka.writer import TopicWriter
from millstream.sinks.spec import Staged
from millstream.sources.kafka.topic import Topic


class Stage:
    """One pipeline's output topic, and writers for it."""

    def __init__(self, address: str, topic: str) -> None:
        self.cluster, self.topic = Cluster.resolve(address), topic
        self.address = address
        self._writers: list[TopicWriter] = []

    def writer(self, job: str = "job", **options: Any) -> TopicWriter:
        self._writers.append(TopicWriter(self.cluster, self.topic, job, patience=20, **options))
        return self._writers[-1]

    def close(self) -> None:
        """Let go of what writers still hold, those that died too."""
        for writer in self._writers:
            writer.close()

    def rows(self, *numbers: int) -> list[Staged]:
        table = pa.table({"n": numbers})
        sink = Topic(self.topic)
        return [Staged("out", "result", sink, (), len(numbers), lambda: iter([table]))]

    def seen(self) -> Counter[int]:
        """What a reader of committed records finds, once no transaction is on its way."""
        log = Log(self.address)
        size = log.topics().get(self.topic, 0)
        with suppress(AssertionError):
            until(lambda: not self.open_transactions(), "the end of transactions", patience=5)
        return Counter(json.loads(r.value())["n"] for r in log.records(self.topic, size))

    def open_transactions(self) -> bool:
        log = Log(self.address)
        size = log.topics()[self.topic]
        ends = [log.ends(self.topic, size, committed=committed) for committed in (True, False)]
        return ends[0] != ends[1]

"""The output topic of a pipeline, and writers for it, without a job."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from tests.faults.running import until
from tests.faults.verifier import Log

from millstream.kafka.settings import Cluster
from millstream.sinks.kafka.writer import TopicWriter
from millstream.sinks.spec import Opening, Staged
from millstream.sources.kafka.topic import Topic


class Stage:
    """One pipeline's output topic, and writers for it."""

    def __init__(self, address: str, topic: str) -> None:
        self.cluster, self.topic = Cluster.resolve(address), topic
        self.address = address
        self._writers: list[TopicWriter] = []

    def writer(self, job: str = "job", **options: Any) -> TopicWriter:
        opening = Opening(self.topic, job, 0, (), patience=20, **options)
        self._writers.append(TopicWriter(self.cluster, opening))
        return self._writers[-1]

    def close(self) -> None:
        """Close all writers, including crashed ones."""
        for writer in self._writers:
            writer.close()

    def rows(self, *numbers: int) -> list[Staged]:
        table = pa.table({"n": numbers})
        sink = Topic(self.topic)
        return [Staged("out", "result", sink, (), len(numbers), lambda: iter([table]))]

    def seen(self) -> Counter[int]:
        """The rows that a `read_committed` consumer finds once no transaction is open."""
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


def reopen(writer: TopicWriter, **values: Any) -> None:
    """Change the options of an open writer."""
    writer._opening = replace(writer._opening, **values)

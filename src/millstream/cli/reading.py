"""Reading a topic for a viewer: from a moment, or the last few records first."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.log.consumer import Consumer
from millstream.log.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.log.records import Record
    from millstream.log.settings import Cluster
    from millstream.viewing.moments import Moment
    from millstream.viewing.selection import Selection

FURTHER = 8
"""How many times further back to look where the last records were not enough."""


@dataclass(frozen=True)
class Section:
    """Some partitions of a topic."""

    cluster: Cluster
    topic: str
    partitions: tuple[int, ...]

    def places(self, moment: Moment) -> dict[int, int]:
        """The offset of a moment in each partition."""
        if isinstance(moment, int):
            return dict.fromkeys(self.partitions, moment)
        found = Topics(self.cluster).offsets(self.topic, at=moment)
        return {partition: found[partition] for partition in self.partitions}

    def reader(self, places: Mapping[int, int], *, until_end: bool) -> Consumer:
        """A consumer of exactly these partitions, from exactly these offsets."""
        return Consumer(
            self.topic,
            kafka=self.cluster,
            start=places,
            partitions=self.partitions,
            until_end=until_end,
        )

    def last(self, count: int, selection: Selection) -> tuple[list[Record], dict[int, int]]:
        """The last `count` records that are selected, by time, and where to go on reading.

        Offsets have gaps (compaction, transactions) and a filter makes more, so it looks
        further and further back until there are enough or the log is at its beginning.
        """
        first, end = self.places("start"), self.places("end")
        back = count
        while True:
            begin = {part: max(first[part], end[part] - back) for part in self.partitions}
            kept: dict[int, deque[Record]] = {part: deque(maxlen=count) for part in self.partitions}
            selection.restart()
            with self.reader(begin, until_end=True) as reader:
                for record in reader:
                    if selection.takes(record):
                        kept[record.partition].append(record)
                reached = {part: offset for (_, part), offset in reader.position().items()}
            if all(len(kept[part]) == count or begin[part] == first[part] for part in kept):
                break
            back *= FURTHER
        found = sorted(
            (record for part in kept.values() for record in part),
            key=lambda record: (record.timestamp, record.partition, record.offset),
        )
        return found[-count:], reached

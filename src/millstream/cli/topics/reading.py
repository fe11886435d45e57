"""Reading a topic for `tail`: from a point in time, or from the last few records."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.viewing.pages import Bounds, Pages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.kafka.clients.consuming.damaged import LostOffsets
    from millstream.kafka.records import Record
    from millstream.kafka.settings import Cluster
    from millstream.viewing.points_in_time import PointInTime
    from millstream.viewing.selection import Selection

WITHOUT_END = Bounds(records=sys.maxsize, bytes=sys.maxsize, seconds=math.inf)
"""A command scans without limit, because the user can stop it."""


@dataclass(frozen=True)
class Section:
    """Some partitions of a topic."""

    cluster: Cluster
    topic: str
    partitions: tuple[int, ...]

    def offsets(self, start: PointInTime) -> dict[int, int]:
        """The offset of a point in time in each partition."""
        if isinstance(start, int):
            return dict.fromkeys(self.partitions, start)
        found = Topics(self.cluster).offsets(self.topic, at=start)
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

    def last(
        self, count: int, selection: Selection
    ) -> tuple[list[Record], dict[int, int], tuple[LostOffsets, ...]]:
        """The last `count` selected records by time, where reading continues, and the unreadable
        offsets in between.

        Offsets have gaps (compaction, transactions) and a filter makes more, so it scans
        further back until there are enough or the beginning of the log is reached.
        """
        pages = Pages(self.cluster, self.topic, self.partitions, WITHOUT_END)
        page = pages.before(pages.end, selection, count)
        return page.records, pages.end, page.lost

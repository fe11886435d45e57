"""The sources of a run: what they have, compared with what was read of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.engine.lanes.planner import following
from millstream.sources.extent import check_extent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.engine.checkpoint.protocol import Ends, Head, Intent
    from millstream.plan.graph import Read
    from millstream.sources.spec import Extent, Ranges, Reader


@dataclass(frozen=True)
class OpenSources:
    """The readers of a run by the names of their sources."""

    readers: Mapping[str, Reader]
    reads: Mapping[str, Read]

    def extents(self) -> dict[str, Extent]:
        """What may be read now."""
        return {name: reader.extent() for name, reader in self.readers.items()}

    def check(self, extents: Mapping[str, Extent], head: Head) -> None:
        """Check what there is against the last commit.

        Raises:
            DataGone: a source was recreated, or no longer has the records to read next.
        """
        for name, extent in extents.items():
            known = head.sources.get(name)
            if known is not None:
                check_extent(self._topic(name), extent, known.next, known.identity)

    def check_ranges(self, intent: Intent) -> None:
        """Check that the sources still have the records of an intent that runs again.

        Raises:
            DataGone: as `check`.
        """
        for name, planned in intent.sources.items():
            starts = {p: a for p, (a, _) in planned.ranges.items()}
            extent = self.readers[name].extent()
            check_extent(self._topic(name), extent, starts, planned.identity)

    def _topic(self, name: str) -> str:
        return self.reads[name].source.name


def waiting(extents: Mapping[str, Extent], head: Head, ends: Ends | None) -> dict[str, Ranges]:
    """The ranges that are not read yet, up to these ends if there are any."""
    found = {}
    for name, extent in extents.items():
        known = head.sources[name].next if name in head.sources else {}
        upto = extent.end if ends is None else ends[name]
        found[name] = {
            p: (a, max(a, min(extent.end[p], upto.get(p, a))))
            for p, a in following(extent, known).items()
        }
    return found

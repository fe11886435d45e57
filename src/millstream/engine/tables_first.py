"""Tables before events: what `lookup` reads its rows from is read first, to a fixed end.

The end is the one that the table's source had when the job first looked at it. It is part of every
intent and every commit, so a crash, a restart or a rewind does not move it. Until a batch reaches
it, the sources of the events give nothing to batches: their rows stay unread in the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from millstream.event_time.batch_time import MIN_TIME
from millstream.plan.graph import ancestry
from millstream.plan.join_graph import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.engine.checkpoint.protocol import Ends, Intent
    from millstream.plan.graph import Output
    from millstream.plan.stages import Stages
    from millstream.sources.spec import Ranges

    Chosen = tuple[str, dict[str, Ranges], bool]


@dataclass
class TablesFirst:
    """Which sources wait for which, by name, and the ends that are waited for."""

    waits: Mapping[str, frozenset[str]]
    ends: Ends = field(default_factory=dict)

    @classmethod
    def of(cls, outputs: Sequence[Output], stages: Stages) -> TablesFirst:
        """What the lookups of a pipeline ask for."""
        found = waits(ancestry(outputs))
        return cls({stages.names[source]: frozenset(stages.names[table] for table in tables)
                    for source, tables in found.items()})  # fmt: skip

    def find(self, known: Ends, waiting: Mapping[str, Ranges]) -> None:
        """Fix the ends of tables: as the last commit has them, else where they are now."""
        for name in {table for tables in self.waits.values() for table in tables}:
            now = {partition: end for partition, (_, end) in waiting[name].items()}
            self.ends.setdefault(name, known.get(name, now))

    def marks(self, marks: Ends) -> Ends:
        """How far a rewound job reads first: tables to their ends, as events wait for that."""
        names = marks.keys() | self.ends.keys()
        return {name: _furthest(marks.get(name, {}), self.ends.get(name, {})) for name in names}

    def choose(
        self,
        choose: Callable[[Mapping[str, Ranges]], Chosen],
        offered: Mapping[str, Ranges],
        waiting: Mapping[str, Ranges],
    ) -> tuple[Chosen, frozenset[str]]:
        """The lane and ranges of a batch, and which sources have unread rows but wait.

        A batch that brings a table to its end may hold events, too: it takes the table in first.
        """
        held: frozenset[str] = frozenset()
        while True:
            found = choose({name: _nothing(ranges) if name in held else ranges
                            for name, ranges in offered.items()})  # fmt: skip
            more = {
                source
                for source, tables in self.waits.items()
                if source not in held
                and _some(waiting[source])
                and not all(self._reached(table, found[1], waiting) for table in tables)
            }
            if not more:
                return found, held
            held |= more

    def held_back(self, meant: Intent, shorter: Intent, declared: Mapping[str, int]) -> Intent:
        """A shorter intent in the place of the one that was meant: where it no longer brings a
        table to its end, the sources that wait for that table are not read either."""
        while True:
            early = {name for name in shorter.sources if _ends_early(name, meant, shorter)}
            held = [
                name
                for name, tables in self.waits.items()
                if tables & early and any(b > a for a, b in shorter.sources[name].ranges.values())
            ]
            if not held:
                return shorter
            empty = {
                name: replace(
                    shorter.sources[name],
                    ranges=_nothing(shorter.sources[name].ranges),
                    declared=declared.get(name, MIN_TIME),
                )
                for name in held
            }
            shorter = replace(shorter, sources={**shorter.sources, **empty})

    def _reached(
        self, table: str, chosen: Mapping[str, Ranges], waiting: Mapping[str, Ranges]
    ) -> bool:
        """Whether a batch reads a table to its end, or as far as its log goes if that is less."""
        for partition, (at, there) in waiting[table].items():
            _, until = chosen[table].get(partition, (at, at))
            if until < min(self.ends[table].get(partition, at), there):
                return False
        return True


def _ends_early(name: str, meant: Intent, shorter: Intent) -> bool:
    before, ends = meant.sources[name].ranges, meant.table_ends.get(name, {})
    return any(until < min(before[partition][1], ends.get(partition, until))
               for partition, (_, until) in shorter.sources[name].ranges.items())  # fmt: skip


def _some(ranges: Ranges) -> bool:
    return any(end > first for first, end in ranges.values())


def _nothing(ranges: Ranges) -> Ranges:
    return {partition: (at, at) for partition, (at, _) in ranges.items()}


def _furthest(some: Mapping[int, int], others: Mapping[int, int]) -> dict[int, int]:
    return {p: max(some.get(p, 0), others.get(p, 0)) for p in some.keys() | others.keys()}

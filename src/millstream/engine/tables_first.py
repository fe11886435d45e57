"""Tables before events: a job reads the tables of its lookups first, to a fixed end.

The end is where the table's source ended when the job first read its extent. It is part of every
intent and every commit, so a crash, a restart or a rewind does not move it. Until a batch reaches
it, the sources of the events are not read: their rows wait in the log.
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
    """Which sources wait for which tables, by name, and the ends of the tables."""

    waits: Mapping[str, frozenset[str]]
    ends: Ends = field(default_factory=dict)

    @classmethod
    def of(cls, outputs: Sequence[Output], stages: Stages) -> TablesFirst:
        """From the lookups of a pipeline."""
        found = waits(ancestry(outputs))
        return cls({stages.names[source]: frozenset(stages.names[table] for table in tables)
                    for source, tables in found.items()})  # fmt: skip

    def find(self, known: Ends, waiting: Mapping[str, Ranges]) -> None:
        """Fix the ends of tables: those of the last commit, else the current ones."""
        for name in {table for tables in self.waits.values() for table in tables}:
            now = {partition: end for partition, (_, end) in waiting[name].items()}
            self.ends.setdefault(name, known.get(name, now))

    def marks(self, marks: Ends) -> Ends:
        """How far a rewound job reads first: at least to the ends of its tables."""
        names = marks.keys() | self.ends.keys()
        return {name: _furthest(marks.get(name, {}), self.ends.get(name, {})) for name in names}

    def choose(
        self,
        choose: Callable[[Mapping[str, Ranges]], Chosen],
        offered: Mapping[str, Ranges],
        waiting: Mapping[str, Ranges],
    ) -> tuple[Chosen, frozenset[str]]:
        """The lane and ranges of a batch, and which sources have unread rows but wait.

        A batch that reads a table to its end may also have events: it processes the table first.
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

    def held_back(self, planned: Intent, shorter: Intent, declared: Mapping[str, int]) -> Intent:
        """The shorter version of a planned intent: if it no longer reads a table to its end, it
        does not read the sources that wait for that table either."""
        while True:
            early = {name for name in shorter.sources if _ends_early(name, planned, shorter)}
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
        """Whether a batch reads a table to its end, or to the end of its log if that is earlier."""
        for partition, (at, there) in waiting[table].items():
            _, until = chosen[table].get(partition, (at, at))
            if until < min(self.ends[table].get(partition, at), there):
                return False
        return True


def _ends_early(name: str, planned: Intent, shorter: Intent) -> bool:
    before, ends = planned.sources[name].ranges, planned.table_ends.get(name, {})
    return any(until < min(before[partition][1], ends.get(partition, until))
               for partition, (_, until) in shorter.sources[name].ranges.items())  # fmt: skip


def _some(ranges: Ranges) -> bool:
    return any(end > first for first, end in ranges.values())


def _nothing(ranges: Ranges) -> Ranges:
    return {partition: (at, at) for partition, (at, _) in ranges.items()}


def _furthest(some: Mapping[int, int], others: Mapping[int, int]) -> dict[int, int]:
    return {p: max(some.get(p, 0), others.get(p, 0)) for p in some.keys() | others.keys()}

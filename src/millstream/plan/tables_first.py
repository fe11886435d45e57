"""Which sources wait until the tables that their events are looked up in have been read.

    events.lookup(prices): the sources of `events` wait for those of `prices`

A source that a table is made from cannot wait for that table; neither can sources that would wait
for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.operators.joins.stream_table.spec import Lookup
from millstream.plan.graph import Node, Read
from millstream.plan.join_graph import Enriched, of_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Waits = dict[Read, tuple[Read, ...]]


def waits(nodes: Iterable[Node]) -> Waits:
    """For each source that waits, the sources that are read before it."""
    every: dict[Read, dict[Read, None]] = {}
    for node in nodes:
        if isinstance(node, Enriched) and isinstance(node.spec, Lookup):
            tables = dict.fromkeys(_reads(node.other, lambda below: below.inputs))
            for source in _reads(node.input, of_events):
                every.setdefault(source, {}).update(tables)
    kept = {
        source: tuple(table for table in tables if source not in _all_before(table, every))
        for source, tables in every.items()
    }
    return {source: tables for source, tables in kept.items() if tables}


def _reads(node: Node, inputs: Callable[[Node], Sequence[Node]]) -> list[Read]:
    """The sources behind a node, each once."""
    found: dict[Read, None] = {}
    seen, stack = {node}, [node]
    while stack:
        below = stack.pop()
        if isinstance(below, Read):
            found[below] = None
        new = [one for one in inputs(below) if one not in seen]
        seen.update(new)
        stack += reversed(new)
    return list(found)


def _all_before(source: Read, every: dict[Read, dict[Read, None]]) -> set[Read]:
    """A source, and all that are read before it."""
    seen, stack = {source}, [source]
    while stack:
        new = [table for table in every.get(stack.pop(), ()) if table not in seen]
        seen.update(new)
        stack += new
    return seen

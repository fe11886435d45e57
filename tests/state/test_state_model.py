"""Runs, tombstones, floors, merges and rescales against a plain dict that shares no code."""

from __future__ import annotations

from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from millstream.state.combine import combine
from millstream.state.keys.hashing import buckets_of, hash_keys
from millstream.state.runs.manifest import Change, Manifest
from millstream.state.runs.merge import Merger, merge
from millstream.state.runs.orphans import collect
from millstream.state.runs.runs import Run, file_name, write_segment
from millstream.state.runs.view import View
from millstream.state.spec import StateColumn, StateSpec

if TYPE_CHECKING:
    from pathlib import Path

OF = 16
SPEC = StateSpec(
    pa.schema([("a", pa.int64()), ("b", pa.string())]),
    (
        StateColumn("total", pa.int64(), "sum"),
        StateColumn("least", pa.string(), "min"),
        StateColumn("most", pa.float64(), "max"),
        StateColumn("oldest", pa.int64(), "first"),
        StateColumn("newest", pa.int64(), "last"),
        StateColumn("exact", pa.float64(), "dsum"),
    ),
)
KEYS: list[tuple[int | None, str | None]] = [
    *((number, text) for number in (0, 1, 2, None) for text in ("", "x", "yy", None)),
    *((number, "z") for number in range(3, 20)),
]
ORDERS = [-5, 0, 1, 2, 3, 2**63 - 1]

places = st.tuples(st.sampled_from(ORDERS), st.sampled_from(KEYS))
values = st.fixed_dictionaries(
    {
        "total": st.one_of(st.none(), st.integers(-100, 100)),
        "least": st.one_of(st.none(), st.sampled_from(["", "a", "b", "é"])),
        "most": st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 2.5])),
        "oldest": st.one_of(st.none(), st.integers(0, 9)),
        "newest": st.one_of(st.none(), st.integers(0, 9)),
        "exact": st.one_of(st.none(), st.sampled_from([0.5, -8.25, 1e10])),
    }
)
changes = st.lists(
    st.tuples(places, st.one_of(st.none(), values, values, values)), min_size=8, max_size=25
)
partitions = st.sampled_from([1, 2, 4])

Place = tuple[int, tuple[int | None, str | None]]
Value = dict[str, Any]


def joined(old: Value | None, new: Value) -> Value:
    """One more row for a key, by the meaning of each column."""
    if old is None:
        return new

    def both(name: str, pick: Any) -> Any:
        have = [side[name] for side in (old, new) if side[name] is not None]
        return pick(have) if have else None

    return {
        "total": both("total", sum),
        "least": both("least", min),
        "most": both("most", max),
        "oldest": old["oldest"],
        "newest": new["newest"],
        "exact": both("exact", sum),
    }


class State(RuleBasedStateMachine):
    """The same steps on files and on a dict; after each, both are asked the same questions."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.merger = Merger("m", of=OF, fanout=2, piece_bytes=2000)
        self.manifest = Manifest()
        self.model: dict[Place, Value] = {}
        self.batch = 0
        self.shift = self.rest = 0

    def teardown(self) -> None:
        self.merger.close()

    @initialize(
        bits=st.sampled_from([0, 2, 4, 64]),
        rest=st.booleans(),
        drawn=st.lists(changes, min_size=3, max_size=3),
    )
    def begin_with_a_few_runs(
        self, bits: int, drawn: list[list[tuple[Place, Value | None]]], *, rest: bool
    ) -> None:
        """Only the hash's top bits tell keys apart; the rest is all zeros or all ones."""
        self.shift = 64 - bits
        self.rest = 2**self.shift - 1 if rest else 0
        for change in drawn:
            self.append(change, 2)

    def rows(self, keys: list[Place]) -> pa.Table:
        columns = [
            pa.array([key[0] for _, key in keys], pa.int64()),
            pa.array([key[1] for _, key in keys], pa.string()),
        ]
        hashes = hash_keys(columns, len(keys))
        if self.shift:
            weak = [int(value) >> self.shift << self.shift | self.rest for value in hashes]
            hashes = np.array(weak, dtype=np.uint64)
        orders = pa.array([order for order, _ in keys], pa.int64())
        return pa.table({"_order": orders, "_hash": hashes, "a": columns[0], "b": columns[1]})

    @rule(drawn=changes, parts=partitions)
    def append_a_run(self, drawn: list[tuple[Place, Value | None]], parts: int) -> None:
        self.append(drawn, parts)

    def append(self, drawn: list[tuple[Place, Value | None]], parts: int) -> None:
        drawn = [change for change in drawn if change[0][0] >= self.manifest.floor]
        if not drawn:
            return
        self.batch += 1
        table = self.rows([place for place, _ in drawn])
        for column in SPEC.values:
            held = [None if value is None else value[column.name] for _, value in drawn]
            table = table.append_column(column.name, pa.array(held, column.type))
        delta = combine(table.append_column("_gone", [[v is None for _, v in drawn]]), SPEC)
        buckets = buckets_of(delta["_hash"].to_numpy(), OF)
        segments = []
        for low in range(0, OF, OF // parts):
            part = delta.filter(pa.array((buckets >= low) & (buckets < low + OF // parts)))
            if len(part):
                name = file_name(self.batch, "i", f"{low}")
                span = (low, low + OF // parts)
                segments.append(write_segment(self.folder, name, part, buckets=span, of=OF))
        run = Run(f"batch {self.batch}", tuple(segments))
        self.manifest = self.manifest.apply(Change(add=(run,)))
        for place, value in drawn:
            if value is None:
                self.model.pop(place, None)
            else:
                self.model[place] = joined(self.model.get(place), value)

    @rule(floor=st.sampled_from([-5, 0, 1, 2]))
    def forget_below(self, floor: int) -> None:
        self.manifest = self.manifest.apply(Change(floor=floor))
        for place in [place for place in self.model if place[0] < self.manifest.floor]:
            del self.model[place]

    @rule(ends=st.tuples(st.integers(0, 9), st.integers(0, 9)), piece=st.integers(1, 3000))
    def merge_some(self, ends: tuple[int, int], piece: int) -> None:
        chosen = self.manifest.runs[min(ends) : max(ends) + 1]
        if not chosen or self.merger.oldest_batch("step") is not None:
            return
        self.batch += 1
        merged = merge(
            self.folder,
            SPEC,
            chosen,
            name=file_name(self.batch, "by hand"),
            floor=self.manifest.floor,
            oldest=min(ends) == 0,
            of=OF,
            piece_bytes=piece,
        )
        assert merged is not None
        ids = tuple(run.id for run in chosen)
        self.manifest = self.manifest.apply(Change(replace=((ids, merged),)))

    @rule()
    def begin_a_merge(self) -> None:
        self.batch += 1
        self.merger.offer("step", self.folder, SPEC, self.manifest, batch=self.batch)

    @rule()
    def end_a_merge(self) -> None:
        replaced = self.merger.take("step", self.manifest, wait=30)
        self.manifest = self.manifest.apply(Change(replace=replaced))

    @rule()
    def collect_orphans(self) -> None:
        under_way = self.merger.oldest_batch("step")
        below = self.batch + 1 if under_way is None else under_way
        keep = self.manifest.files | self.merger.reading("step")
        collect(self.folder, set(keep), batch_below=below)

    def views(self, parts: int) -> list[View]:
        width = OF // parts
        return [
            View(
                self.folder,
                SPEC,
                self.manifest.runs,
                floor=self.manifest.floor,
                buckets=(low, low + width),
                of=OF,
            )
            for low in range(0, OF, width)
        ]

    @rule(keys=st.lists(places, max_size=30), parts=partitions)
    def look_up(self, keys: list[Place], parts: int) -> None:
        wanted = self.rows(keys)
        buckets = buckets_of(wanted["_hash"].to_numpy(), OF)
        for place, view in enumerate(self.views(parts)):
            mine = np.flatnonzero(buckets // (OF // parts) == place)
            found, got = view.lookup(wanted.take(pa.array(mine)))
            expected = [self.model.get(keys[row]) for row in mine]
            assert found.tolist() == [value is not None for value in expected]
            rows = got.drop_columns(["exact__lo"]).to_pylist()
            nothing = dict.fromkeys(rows[0]) if rows else {}
            assert rows == [nothing if value is None else value for value in expected]

    @rule(
        span=st.tuples(st.sampled_from(ORDERS), st.sampled_from([*ORDERS, None])),
        parts=partitions,
        size=st.sampled_from([1, 300, 2000, 2**20]),
    )
    def scan(self, span: tuple[int, int | None], parts: int, size: int) -> None:
        low, high = span
        seen: dict[Place, Value] = {}
        for view in self.views(parts):
            tables = list(view.scan(low, high, max_bytes=size))
            rows = [row for table in tables for row in table.to_pylist()]
            sequence = [(row["_order"], row["_hash"]) for row in rows]
            assert all(one <= other for one, other in pairwise(sequence))
            for row in rows:
                place = row["_order"], (row["a"], row["b"])
                assert place not in seen
                seen[place] = {column.name: row[column.name] for column in SPEC.values}
        expected = {
            place: value
            for place, value in self.model.items()
            if place[0] >= low and (high is None or place[0] < high)
        }
        assert seen == expected

    @invariant()
    def everything_is_as_in_the_dict(self) -> None:
        parts = [1, 2, 8][self.batch % 3]
        self.scan((ORDERS[0], None), parts, 700)
        self.look_up([(order, key) for order in ORDERS for key in KEYS], parts)


def test_state_in_files_is_what_a_dict_would_hold(tmp_path: Path) -> None:
    numbers = count()

    def fresh() -> State:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return State(folder)

    steps = settings(max_examples=20, stateful_step_count=10, deadline=None)
    run_state_machine_as_test(fresh, settings=steps)  # type: ignore[arg-type]

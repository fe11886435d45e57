"""Accumulators driven by hand: rows are lifted in pieces, and states merged in any order."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.operators.aggregates.accumulators import Accumulator, accumulator, parts_of
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.spec import GONE, HASH, ORDER, StateSpec

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from millstream.operators.aggregates.functions import Aggregate

KEY = pa.schema([("k", pa.int64())])
ORIGIN = pa.schema(
    [("_source", pa.int32()), ("_partition", pa.int32()), ("_offset", pa.int64()),
     ("_sub", pa.int64())]
)  # fmt: skip


class Accumulating:
    """Aggregates over rows with a key `k`; `state` is what a kernel would keep."""

    def __init__(
        self, aggregates: Mapping[str, Aggregate], schema: pa.Schema, *, retractable: bool = False
    ) -> None:
        self.made: dict[str, Accumulator] = {
            name: accumulator(aggregate, schema, retractable=retractable)
            for name, aggregate in aggregates.items()
        }
        self.parts = parts_of(self.made.values())
        self.state = StateSpec(KEY, tuple(part.column for part in self.parts.values()))

    def lifted(self, rows: pa.Table) -> pa.Table:
        """The state of some rows: one row per key."""
        signs = None
        if "_sign" in rows.column_names:
            given = rows["_sign"].to_numpy().astype(np.int64)
            signs = None if (given == 1).all() else given
        columns = {name: part.lift(rows, signs) for name, part in self.parts.items()}
        hashes = hash_keys([rows["k"]], rows.num_rows)
        orders = np.zeros(rows.num_rows, np.int64)
        return combine(pa.table({ORDER: orders, HASH: hashes, "k": rows["k"], **columns}),
                       self.state)  # fmt: skip

    def merged(self, states: Sequence[pa.Table]) -> pa.Table:
        """Several states as one."""
        return combine(pa.concat_tables(states), self.state)

    def answers(self, state: pa.Table) -> dict[int, dict[str, Any]]:
        """Per key, what each aggregate says."""
        finished = {name: made.finish(state) for name, made in self.made.items()}
        for name, made in self.made.items():
            assert finished[name].type == made.type, name
            finished[name].validate(full=True)
        rows = pa.table(finished).to_pylist()
        return dict(zip(state["k"].to_pylist(), rows, strict=True))


def in_pieces(made: Accumulating, rows: pa.Table, chance: random.Random) -> dict[int, Any]:
    """The answers when rows are cut into shuffled pieces, and those merged in any tree."""
    places = list(range(rows.num_rows))
    chance.shuffle(places)
    cuts = sorted(chance.randrange(len(places) + 1) for _ in range(chance.randrange(5)))
    edges = [0, *cuts, len(places)]
    states = [
        made.lifted(rows.take(pa.array(places[low:high], pa.int64())))
        for low, high in pairwise(edges)
    ]
    while len(states) > 1:
        chance.shuffle(states)
        taken = chance.randint(2, len(states))
        states = [made.merged(states[:taken]), *states[taken:]]
    assert not states[0][GONE].to_numpy(zero_copy_only=False).any()
    return made.answers(states[0])


def table(rows: Sequence[Mapping[str, Any]], kind: pa.DataType) -> pa.Table:
    """Rows with `k`, `v` of a type, an origin, perhaps a sign."""
    fields = [pa.field("k", pa.int64()), pa.field("v", kind), *ORIGIN]
    if rows and "_sign" in rows[0]:
        fields.append(pa.field("_sign", pa.int8()))
    return pa.Table.from_pylist(list(rows), schema=pa.schema(fields))


def single(
    aggregate: Aggregate, kind: pa.DataType, values: Sequence[Any], *, retractable: bool = False
) -> Any:
    """The answer over values that come in two pieces, in order."""
    made = Accumulating({"answer": aggregate}, pa.schema([("v", kind)]), retractable=retractable)
    rows = table(
        [{"k": 0, "v": value, "_source": 0, "_partition": 0, "_offset": place, "_sub": 0}
         for place, value in enumerate(values)], kind,
    )  # fmt: skip
    middle = (len(values) + 1) // 2
    pieces = [made.lifted(rows.slice(0, middle)), made.lifted(rows.slice(middle))]
    return made.answers(made.merged(pieces))[0]["answer"]

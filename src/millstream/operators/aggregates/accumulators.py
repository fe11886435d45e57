"""How aggregates are computed: from rows to state columns, and from the state to the result.

    rows -- lift --> state columns -- combined by the state layer --> finish --> one value

An accumulator is a tuple of parts and a `finish`. A part is one state column with its
`lift`; aggregates that need the same part share it. A new aggregate is a value in
`aggregate_spec.py` and a function from (aggregate, type of its column) to its accumulator,
registered here. Kernels need no change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.operators.aggregates import approximate, bags, in_order, spec, sums
from millstream.operators.aggregates import variance as moments
from millstream.operators.aggregates.parts import ROWS, Accumulator, Part, rows_part
from millstream.operators.aggregates.user_accumulator import user_accumulator
from millstream.operators.aggregates.user_aggregate import UserAggregate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.operators.aggregates.spec import Aggregate

__all__ = ["ROWS", "Accumulator", "Part", "accumulator", "parts_of", "rows_part"]

Maker = Callable[["Aggregate", pa.DataType], Accumulator]


def accumulator(
    aggregate: Aggregate, schema: pa.Schema, *, retractable: bool = False, by_time: bool = False
) -> Accumulator:
    """The accumulator of an aggregate over rows of a schema.

    With `retractable`, every row can be retracted from its state: aggregates that otherwise
    drop values (`min`, `first`, `largest`, …) then keep all of them. With `by_time` the rows
    come from `.ordered()`: aggregates that depend on order take them by event time, then by
    origin.

    Raises:
        InvalidSpec: the column does not exist or has an unsupported type, or the aggregate
            does not support the retraction that is needed.
    """
    if isinstance(aggregate, spec.Count) and aggregate.column is None:
        return sums.count_rows()
    for column in aggregate.columns:
        if column not in schema.names:
            raise InvalidSpec(
                f"{aggregate.kind} needs a column of its input",
                got=repr(column),
                do=f"choose one of {', '.join(schema.names)}",
            )
    if isinstance(aggregate, UserAggregate):
        return user_accumulator(aggregate, schema, retractable=retractable)
    of, kind = schema.field(aggregate.column).type, type(aggregate)
    if kind in _IN_ORDER:
        return _IN_ORDER[kind](aggregate, of, retractable=retractable, by_time=by_time)
    made = _FOR_RETRACTION.get(kind) if retractable else None
    return (made or _MAKERS[kind])(aggregate, of)


def parts_of(accumulators: Iterable[Accumulator]) -> dict[str, Part]:
    """The number of rows, then the parts of all accumulators by name, each once.

    Raises:
        InvalidSpec: two different parts have the same name.
    """
    parts: dict[str, Part] = {}
    for part in [rows_part(), *(part for made in accumulators for part in made.parts)]:
        known = parts.setdefault(part.column.name, part)
        if known.owner != part.owner:
            raise InvalidSpec(
                "user-defined aggregates need different names",
                got=f"{known.owner} and {part.owner}",
                do='write aggregate(name="…", …)',
            )
    return parts


_MAKERS: dict[type, Maker] = {
    spec.Count: sums.count,
    spec.Sum: sums.total,
    spec.Mean: sums.mean,
    spec.Variance: moments.variance,
    spec.Stddev: moments.stddev,
    spec.Min: bags.extreme,
    spec.Max: bags.extreme,
    spec.CountDistinct: bags.count_distinct,
    spec.Quantile: bags.quantile,
    spec.ApproxDistinct: approximate.approx_distinct,
    spec.ApproxQuantile: approximate.approx_quantile,
    spec.Frequent: bags.frequent,
    spec.Largest: bags.largest,
    spec.Smallest: bags.smallest,
}
_IN_ORDER: dict[type, Callable[..., Accumulator]] = {
    spec.First: in_order.first,
    spec.Last: in_order.last,
    spec.Collect: in_order.collect,
}
_FOR_RETRACTION: dict[type, Maker] = {
    spec.Min: bags.extreme_of_bag,
    spec.Max: bags.extreme_of_bag,
    spec.ApproxDistinct: partial(approximate.approx_distinct, retractable=True),
    spec.Largest: partial(bags.largest, retractable=True),
    spec.Smallest: partial(bags.smallest, retractable=True),
}

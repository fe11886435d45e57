"""The specs of aggregates: frozen dataclasses that name a column and options.

How an aggregate is computed is defined by its accumulator (`accumulators.py`), which is looked
up by the spec's type when a kernel is created, so building a pipeline needs no Arrow.

Nulls are ignored. For no values a count is 0, `collect` is [], every other aggregate is null.
NaN equals NaN and is the largest float; negative zero equals zero.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 2**31 - 1


@runtime_checkable
class Aggregate(Protocol):
    """One aggregate of a window.

    - `column`: the input column it reads (None: the rows themselves, or several columns).
    - `columns`: all input columns it reads.
    - `supports_retraction`: a row can be retracted from its ordinary state.
    - `can_retract`: rows can be retracted if the state is created for it;
      without `supports_retraction` it then keeps its rows.
    - `keeps_rows`: its ordinary state grows with the rows, or with the distinct values.
    - `in_order`: it depends on the order of rows.
    - `of_numbers`: its column must contain integers, floats or decimals.
    """

    kind: ClassVar[str]
    supports_retraction: ClassVar[bool]
    can_retract: ClassVar[bool]
    keeps_rows: ClassVar[bool]
    in_order: ClassVar[bool]
    of_numbers: ClassVar[bool]

    @property
    def column(self) -> str | None:
        """The one input column it reads."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Every input column it reads."""


class OfColumn:
    """An aggregate of one column; its text is the call that makes it: `quantile(price, p=0.5)`."""

    __slots__ = ()
    kind: ClassVar[str]
    supports_retraction: ClassVar[bool] = True
    can_retract: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = False
    in_order: ClassVar[bool] = False
    of_numbers: ClassVar[bool] = False

    def __post_init__(self) -> None:
        column = getattr(self, "column", None)
        if not isinstance(column, str) or not column.strip():
            raise InvalidSpec(
                f"{self.kind} needs the name of a column",
                got=repr(column),
                do=f'write {self.kind}("price"{self._example})',
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The column it reads; none where it counts rows."""
        column = getattr(self, "column", None)
        return () if column is None else (column,)

    def __str__(self) -> str:
        options = [f"{name}={value}" for name, value in _options(self).items()]
        return f"{self.kind}({', '.join([*self.columns, *options])})"

    _example: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class Count(OfColumn):
    """The number of rows, or of values of `column` that are not null: a long."""

    column: str | None = None
    kind: ClassVar[str] = "count"

    def __post_init__(self) -> None:
        if self.column is not None:
            OfColumn.__post_init__(self)

    def __str__(self) -> str:
        return f"count({self.column or ''})"


@dataclass(frozen=True, slots=True)
class Sum(OfColumn):
    """The sum: a long of integers, a double of floats, a decimal of 10 digits more of decimals.

    Integers and decimals are exact; a sum that does not fit is an error. Floats are summed
    with twice the precision of a double, so the result does not depend on batches; an infinity
    or NaN that is retracted leaves NaN.
    """

    column: str
    kind: ClassVar[str] = "sum"
    of_numbers: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Mean(OfColumn):
    """The exact sum divided by the count: a double, of decimals a decimal of 4 digits more."""

    column: str
    kind: ClassVar[str] = "mean"
    of_numbers: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Variance(OfColumn):
    """The sample variance (divided by n - 1): a double, null for fewer than two values.

    Integers and decimals of up to 18 digits are exact until the last step. For floats, the sums
    of values and of squares are kept with more than twice the precision of a double, so the
    result is accurate to a relative 1e-12 for any mean and any batches. Longer decimals are
    computed as doubles. An infinity or NaN gives NaN; floats above 1e150 overflow to infinity,
    differences below 1e-140 lose digits. Retracting floats more than 2⁵⁰ times as large as the
    remaining ones leaves a rounding error.
    """

    column: str
    kind: ClassVar[str] = "variance"
    of_numbers: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Stddev(OfColumn):
    """The sample standard deviation: the square root of `variance`."""

    column: str
    kind: ClassVar[str] = "stddev"
    of_numbers: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Min(OfColumn):
    """The smallest value, of the column's own type; NaN is the largest float."""

    column: str
    kind: ClassVar[str] = "min"
    supports_retraction: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Max(OfColumn):
    """The largest value, of the column's own type; NaN is the largest float."""

    column: str
    kind: ClassVar[str] = "max"
    supports_retraction: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class First(OfColumn):
    """The value of the first row that has one, in the order of origin."""

    column: str
    kind: ClassVar[str] = "first"
    supports_retraction: ClassVar[bool] = False
    in_order: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Last(OfColumn):
    """The value of the last row that has one, in the order of origin."""

    column: str
    kind: ClassVar[str] = "last"
    supports_retraction: ClassVar[bool] = False
    in_order: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Collect(OfColumn):
    """A list of the values in the order of origin, or of the first `limit` values."""

    column: str
    limit: int | None = None
    kind: ClassVar[str] = "collect"
    supports_retraction: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    in_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        OfColumn.__post_init__(self)
        if self.limit is not None:
            _require_number(self.kind, "a limit", self.limit, "limit=100")


@dataclass(frozen=True, slots=True)
class CountDistinct(OfColumn):
    """The number of distinct values: a long, exact. Keeps each distinct value with its count."""

    column: str
    kind: ClassVar[str] = "count_distinct"
    keeps_rows: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Quantile(OfColumn):
    """The quantile `p` of all values: a double, exact.

    Interpolated linearly at index p * (n - 1), like Spark's `percentile`. Keeps each distinct
    value with its count.
    """

    column: str
    p: float
    kind: ClassVar[str] = "quantile"
    of_numbers: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    _example: ClassVar[str] = ", 0.99"

    def __post_init__(self) -> None:
        OfColumn.__post_init__(self)
        _require_share(self.kind, self.p)


@dataclass(frozen=True, slots=True)
class ApproxDistinct(OfColumn):
    """The approximate number of distinct values: a long.

    HyperLogLog with Ertl's estimator. `error` is the maximum standard error: two thirds of the
    results are within it, and all but a few in a thousand within three times it. The same
    values give the same result in any order and any batches. State: 4 bytes per register in
    use, at most 16 KB per key at 0.02. Does not support retraction.
    """

    column: str
    error: float = 0.02
    kind: ClassVar[str] = "approx_distinct"
    supports_retraction: ClassVar[bool] = False
    can_retract: ClassVar[bool] = False

    def __post_init__(self) -> None:
        OfColumn.__post_init__(self)
        _require_error(self.kind, self.error, 0.005, 0.1)


@dataclass(frozen=True, slots=True)
class ApproxQuantile(OfColumn):
    """A number within the relative `error` of the value at index floor(p * (n - 1)): a double.

    Values are counted in logarithmic buckets (like DDSketch), separately for negatives and
    positives, with one bucket each for zero, both infinities and NaN. The same values give the
    same result in any order and any batches, and can be retracted. Floats closer to zero than
    2.3e-308 count as zero. State: 12 bytes per bucket in use; at 0.01, about 115 buckets for
    each factor of ten between the values.
    """

    column: str
    p: float
    error: float = 0.01
    kind: ClassVar[str] = "approx_quantile"
    of_numbers: ClassVar[bool] = True
    _example: ClassVar[str] = ", 0.99"

    def __post_init__(self) -> None:
        OfColumn.__post_init__(self)
        _require_share(self.kind, self.p)
        _require_error(self.kind, self.error, 0.0001, 0.5)


@dataclass(frozen=True, slots=True)
class Frequent(OfColumn):
    """The `n` most frequent values: a list of (value, count), exact.

    The most frequent comes first; of equally frequent ones, the smaller value. Keeps each
    distinct value with its count: sketches that keep fewer depend on how rows are batched.
    """

    column: str
    n: int
    kind: ClassVar[str] = "frequent"
    keeps_rows: ClassVar[bool] = True
    _example: ClassVar[str] = ", 10"

    def __post_init__(self) -> None:
        OfColumn.__post_init__(self)
        _require_number(self.kind, "n", self.n, "10")


@dataclass(frozen=True, slots=True)
class Largest(OfColumn):
    """The `n` largest values, with duplicates: a list, the largest first."""

    column: str
    n: int
    kind: ClassVar[str] = "largest"
    supports_retraction: ClassVar[bool] = False
    _example: ClassVar[str] = ", 10"

    def __post_init__(self) -> None:
        OfColumn.__post_init__(self)
        _require_number(self.kind, "n", self.n, "10")


@dataclass(frozen=True, slots=True)
class Smallest(OfColumn):
    """The `n` smallest values, with duplicates: a list, the smallest first."""

    column: str
    n: int
    kind: ClassVar[str] = "smallest"
    supports_retraction: ClassVar[bool] = False
    _example: ClassVar[str] = ", 10"

    def __post_init__(self) -> None:
        OfColumn.__post_init__(self)
        _require_number(self.kind, "n", self.n, "10")


KINDS: Mapping[str, type[OfColumn]] = {
    made.kind: made
    for made in (Count, Sum, Mean, Variance, Stddev, Min, Max, First, Last, Collect, CountDistinct,
                 Quantile, ApproxDistinct, ApproxQuantile, Frequent, Largest, Smallest)
}  # fmt: skip


def _options(aggregate: OfColumn) -> dict[str, Any]:
    """The fields after the column that differ from their defaults."""
    return {
        field.name: getattr(aggregate, field.name)
        for field in fields(aggregate)  # type: ignore[arg-type]
        if field.name != "column"
        and (field.default is MISSING or getattr(aggregate, field.name) != field.default)
    }


def _require_number(kind: str, what: str, given: object, example: str) -> None:
    if type(given) is not int or not 0 < given <= MOST:
        raise InvalidSpec(
            f"{kind} needs {what} of 1 or more",
            got=repr(given),
            do=f'write {kind}("price", {example})',
        )


def _require_share(kind: str, given: object) -> None:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise InvalidSpec(
            f"{kind} needs a p from 0 to 1",
            got=repr(given),
            do=f'write {kind}("price", 0.99)',
        )


def _require_error(kind: str, given: object, least: float, most: float) -> None:
    if not isinstance(given, float) or math.isnan(given) or not least <= given <= most:
        raise InvalidSpec(
            f"{kind} needs an error from {least} to {most}",
            got=repr(given),
            do="write error=0.01 for one in a hundred",
        )

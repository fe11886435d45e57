"""Window and aggregate specs: values that compare, print, and refuse what means nothing."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import InvalidSpec
from millstream.operators.aggregates import functions as aggregates
from millstream.operators.windows.spec import LONGEST, Tumbling, tumbling

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_tumbling_window_is_its_size_and_offset_in_microseconds() -> None:
    assert tumbling("10 seconds") == Tumbling(10_000_000, 0)
    assert tumbling(timedelta(hours=1), offset="90 minutes") == Tumbling(
        3_600_000_000, 1_800_000_000
    )
    assert tumbling("1 minute", offset="-15 seconds") == tumbling("1 minute", offset="45 seconds")


def test_a_tumbling_window_prints_as_it_is_written() -> None:
    assert str(tumbling("90 seconds")) == 'tumbling("1 minute 30 seconds")'
    assert str(tumbling("1 day", offset="6 hours")) == 'tumbling("1 day", offset="6 hours")'


@pytest.mark.parametrize("size", ["0 seconds", "-1 second", "soon", 10])
def test_a_size_that_is_not_a_length_is_refused(size: Any) -> None:
    with pytest.raises(InvalidSpec, match="the size of tumbling needs a duration"):
        tumbling(size)


@pytest.mark.parametrize("size", [0, -1, LONGEST])
def test_a_size_out_of_range_is_refused_however_it_is_made(size: int) -> None:
    with pytest.raises(InvalidSpec, match="needs a size above zero and below"):
        Tumbling(size)
    assert Tumbling(LONGEST - 1).size == LONGEST - 1


def test_an_offset_that_is_not_a_duration_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="the offset of tumbling needs a duration"):
        tumbling("1 hour", offset="later")


@pytest.mark.parametrize("make", [aggregates.sum, aggregates.mean, aggregates.min, aggregates.max])
@pytest.mark.parametrize("column", ["", " ", None, 3])
def test_an_aggregate_needs_a_column(make: Callable[[Any], Any], column: Any) -> None:
    with pytest.raises(InvalidSpec, match=rf"{make.__name__} needs the name of a column; got"):
        make(column)


def test_a_count_counts_rows_or_a_column() -> None:
    assert aggregates.count() == aggregates.Count(None)
    assert aggregates.count("price").column == "price"
    with pytest.raises(InvalidSpec, match="count needs the name of a column; got ''"):
        aggregates.count("")


def test_an_aggregate_declares_whether_it_can_retract() -> None:
    made = {m.__name__: m("v") for m in (aggregates.count, aggregates.sum, aggregates.mean,
                                         aggregates.min, aggregates.max)}  # fmt: skip
    assert {name for name, a in made.items() if a.supports_retraction} == {"count", "sum", "mean"}


def test_specs_import_nothing_heavy() -> None:
    program = (
        "import sys, millstream.operators.windows.spec, millstream.operators.aggregates.functions, "
        "millstream.operators.distinct.spec; "
        "sys.exit(bool({'numpy', 'pyarrow', 'pyspark'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

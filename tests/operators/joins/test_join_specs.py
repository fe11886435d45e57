"""What users may write for a join, and the errors for everything else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millstream.errors import InvalidSpec
from millstream.operators.joins.interval.spec import interval
from millstream.operators.joins.result_columns import result_columns
from millstream.operators.joins.stream_table.spec import as_of, lookup
from millstream.operators.joins.table_table.spec import table_join

MINUTE = 60_000_000


@pytest.mark.parametrize(
    ("within", "bounds"),
    [
        ("5 minutes", (-5 * MINUTE, 5 * MINUTE)),
        ("0 seconds", (0, 0)),
        (timedelta(minutes=1), (-MINUTE, MINUTE)),
        (("-5 minutes", "1 minute"), (-5 * MINUTE, MINUTE)),
        (("1 minute", timedelta(minutes=2)), (MINUTE, 2 * MINUTE)),
        (None, None),
    ],
)
def test_within_is_a_duration_to_both_sides_or_a_pair_of_bounds(within: Any, bounds: Any) -> None:
    assert interval("id", within=within).within == bounds


@pytest.mark.parametrize(
    ("on", "pairs"),
    [
        ("id", (("id", "id"),)),
        (["a", "b"], (("a", "a"), ("b", "b"))),
        ({"user": "id", "day": "day"}, (("user", "id"), ("day", "day"))),
    ],
)
def test_on_is_a_name_a_list_or_a_dict_of_left_to_right(on: Any, pairs: Any) -> None:
    assert interval(on, within="1 hour").on == pairs
    assert as_of(on).on == lookup(on).on == pairs


def test_specs_print_as_they_are_written() -> None:
    assert str(interval("id", within=("-1 minute", "1 hour"), how="full")) == (
        'join(on=\'id\', within=("-1 minute", "1 hour"), how="full")'
    )
    assert str(interval(["a", "b"])) == "join(on=['a', 'b'])"
    assert str(as_of({"a": "b"})) == "as_of(on={'a': 'b'})"
    assert str(as_of("id", "left", "replicated", "_r")) == (
        'as_of(on=\'id\', how="left", plan="replicated", suffix="_r")'
    )
    assert str(table_join("id", ("id",), ("id",), "full", "_r")) == (
        'join(on=\'id\', how="full", suffix="_r")'
    )
    assert str(lookup("id", how="left")) == "lookup(on='id', how=\"left\")"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": []}, "`on` of join needs a column, a list of them, or a dict"),
        ({"on": 5}, "`on` of join needs a column"),
        ({"on": ["a", "a"]}, "each column once on its side; got a"),
        ({"on": {"a": "b", "c": "b"}}, "each column once on its side; got b"),
        ({"on": "a", "how": "outer"}, "one of inner, left, right, full; got 'outer'"),
        ({"on": "a", "how": "left"}, "a left join of streams needs a `within`"),
        ({"on": "a", "within": "-1 second"}, "a duration of zero or more"),
        ({"on": "a", "within": ("1 hour", "-1 hour")}, "its lower bound first"),
        ({"on": "a", "within": ("1 hour",)}, "a duration or a pair of them"),
        ({"on": "a", "within": "soon"}, 'a duration such as "10 seconds"'),
        ({"on": "a", "within": timedelta(days=999_999_999)}, "both below"),
    ],
)
def test_invalid_arguments_are_refused_in_one_sentence(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        interval(**arguments)
    assert message in str(refused.value)


def test_results_have_the_left_columns_then_the_right_ones_a_shared_key_once() -> None:
    columns = result_columns(["id", "a"], ["id", "b"], (("id", "id"),), step="join")
    assert columns == (("id", 0, "id"), ("a", 0, "a"), ("b", 1, "b"))
    named = result_columns(["user"], ["id", "b"], (("user", "id"),), step="join")
    assert named == (("user", 0, "user"), ("id", 1, "id"), ("b", 1, "b"))


def test_a_name_both_sides_have_is_an_error_that_says_which_to_rename() -> None:
    with pytest.raises(InvalidSpec, match=r"got 'Price' on both; give .*Price as right_Price"):
        result_columns(["id", "price"], ["id", "Price"], (("id", "id"),), step="join")

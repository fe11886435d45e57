"""`transform`: the user's DataFrame function, and the check that it is row-wise.

The check reads the analysed plan. Above the input frame it allows only projections, filters and
Python maps, without nondeterministic expressions, and with the origin and the event time of every
row unchanged. In the plans of other steps it looks for functions that the user has registered as
nondeterministic; those of Spark are refused while building.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.engine.spark.failures import where_it_was_raised
from millstream.errors import InvalidSpec, UserCodeFailed
from millstream.plan.explain.explain import step_text
from millstream.plan.graph import HIDDEN_TIME, Read, Stateful, Stateless, Union
from millstream.schema import check_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from millstream.plan.graph import Node, Transform

_ALLOWED = ("Project", "Filter", "SubqueryAlias")
_MAPS = ("MapInPandas", "MapInArrow", "PythonMapInArrow")
_INSTEAD = {
    "Generate": 'open an array with .explode("column") of the stream',
    "Union": "unite streams with .union(…)",
}


def transformed(step: Transform, frame: DataFrame) -> DataFrame:
    """The frame that the function returns.

    Raises:
        UserCodeFailed: the function raised; the error shows the user's frame.
        InvalidSpec: the returned frame is not a row-wise, repeatable function of its input.
    """
    from pyspark.sql import DataFrame as SparkFrame

    name = f"transform({getattr(step.function, '__name__', 'the function')})"
    try:
        returned = step.function(frame)
    except Exception as error:
        where = where_it_was_raised(error) or f"see {step.at}"
        raise UserCodeFailed(f"the step {name!r} raised {type(error).__name__}: {_line(error)}",
                             do=where) from error  # fmt: skip
    if not isinstance(returned, SparkFrame):
        raise InvalidSpec(f"{name} needs to return a DataFrame", got=repr(returned),
                          do="return a frame such as df.withColumn(…)")  # fmt: skip
    _check_columns(name, step, frame, returned)
    _check_plan(name, step, frame, returned)
    return returned


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _check_columns(name: str, step: Transform, frame: DataFrame, returned: DataFrame) -> None:
    for column in _kept(step):
        if column not in returned.columns:
            what = "" if column == "_origin" else ", which holds the event time"
            raise InvalidSpec(
                f"{name} needs to keep the column {column}{what}",
                got=f"columns {', '.join(returned.columns)}",
                do='use df.withColumn(…) or df.select("*", …)',
            )
    old = set(frame.columns)
    check_names([column for column in returned.columns if column not in old], name)


def _kept(step: Transform) -> list[str]:
    """The columns that a function must not change; carried columns are part of the origin."""
    if step.time is None or step.time == HIDDEN_TIME:
        return ["_origin"]
    return ["_origin", step.time.column]


def _check_plan(name: str, step: Transform, frame: DataFrame, returned: DataFrame) -> None:
    before, after = _plan(frame), _plan(returned)
    names = _names_above(before, after)
    for node in names:
        if node not in _ALLOWED and node not in _MAPS:
            raise InvalidSpec(f"{name} needs a row-wise function", got=f"{node} in its plan",
                              do=_INSTEAD.get(node, "use the stream's operators for anything that "
                                              "spans rows"))  # fmt: skip
    if not after.deterministic():
        raise _not_repeatable(name, f"{_at_fault(after)}, which is not deterministic")
    if _holds(after, returned, "CURRENT_LIKE"):
        raise _not_repeatable(name, "the wall clock in its plan",
                            'add the batch clock first: .with_columns(at="now()")')  # fmt: skip
    if _holds(after, returned, "PLAN_EXPRESSION"):
        raise InvalidSpec(f"{name} needs a row-wise function", got="a subquery in its plan",
                          do="use the stream's operators for anything that spans rows")  # fmt: skip
    if not any(node in _MAPS for node in names):
        _check_kept(name, step, before, after)


def _not_repeatable(name: str, got: str, do: str = "remove it") -> InvalidSpec:
    return InvalidSpec(f"{name} needs to return the same rows when a batch is repeated",
                       got=got, do=do)  # fmt: skip


def check_repeatable(tree: Node, built: DataFrame, build: Callable[[Node], DataFrame]) -> None:
    """Check the steps of a tree, given its frame and how to build that of a step below.

    Raises:
        InvalidSpec: names the first step that calls a nondeterministic function.
    """
    plan = _plan(built)
    if plan.deterministic():
        return
    for below in tree.inputs if isinstance(tree, Stateless | Union) else ():
        if not isinstance(below, Read | Stateful):
            check_repeatable(below, build(below), build)
    where = None if tree.at is None else f"leave it out; see {tree.at}"
    raise _not_repeatable(step_text(tree), f"{_at_fault(plan)}, which is not deterministic",
                          where or "leave it out")  # fmt: skip


def _at_fault(plan: Any) -> str:
    """The nondeterministic function of a plan."""
    node: Any = plan
    while (below := _first_unrepeatable(node.children())) is not None:
        node = below
    call = _first_unrepeatable(node.expressions())
    if call is None:
        return str(node.nodeName())
    while (below := _first_unrepeatable(call.children())) is not None:
        call = below
    return f"{str(call.toString()).partition('(')[0]}()"


def _first_unrepeatable(parts: Any) -> Any:
    """The first of these that is not deterministic."""
    each = (parts.apply(place) for place in range(parts.size()))
    return next((part for part in each if not part.deterministic()), None)


def _check_kept(name: str, step: Transform, before: Any, after: Any) -> None:
    """Check that the origin and the event time are the columns of the input."""
    old, new = _attributes(before), _attributes(after)
    for column in _kept(step):
        if old[column] != new[column]:
            raise InvalidSpec(f"{name} needs to leave the column {column} unchanged",
                              got="a new column of that name",
                              do="give the new column another name")  # fmt: skip


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _names_above(before: Any, after: Any) -> list[str]:
    """The kinds of nodes between the input frame and the returned one."""
    names, waiting = [], [after]
    while waiting:
        node = waiting.pop()
        if node.equals(before):
            continue
        names.append(str(node.nodeName()))
        children = node.children()
        waiting += [children.apply(place) for place in range(children.size())]
    return names


def _attributes(plan: Any) -> dict[str, int]:
    output = plan.output()
    parts = [output.apply(place) for place in range(output.size())]
    return {str(part.name()): int(part.exprId().id()) for part in parts}


def _holds(plan: Any, frame: DataFrame, pattern: str) -> bool:
    patterns = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern  # type: ignore[union-attr]
    return bool(plan.containsPattern(getattr(patterns, pattern)()))

"""SQL expressions as text: which columns they name, what they may not do, the batch clock.

The parser (sqlglot) is imported when the first expression is checked, so that
`import millstream` stays light.
"""

from __future__ import annotations

import difflib
from functools import cache
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import exp

_CLOCKS = ("current_timestamp", "now", "current_date", "curdate", "localtimestamp")
_RANDOM = ("rand", "random", "randn", "uuid", "shuffle", "monotonically_increasing_id",
           "input_file_name", "spark_partition_id", "current_user", "reflect", "java_method",
           "randstr", "uniform")  # fmt: skip


def check(sql: str, columns: tuple[str, ...] | None, *, step: str) -> None:
    """Refuse an expression that does not parse, names no column there is, or is not row-wise."""
    tree = _parsed(sql, step)
    _refuse_what_is_not_row_wise(tree, sql, step)
    if columns is None:
        return
    known = {name.lower() for name in columns}
    for name in sorted(named(sql)):
        if name.lower() not in known:
            raise unknown_column(name, columns, step=f"{step} {sql!r}")


def named(sql: str) -> frozenset[str]:
    """The top-level columns an expression reads: `who.id + x` reads `who` and `x`."""
    from sqlglot import exp

    tree = _parsed(sql, "an expression")
    found = set()
    for column in tree.find_all(exp.Column):
        root = column.parts[0].name
        if root not in _bound(column):
            found.add(root)
    return frozenset(found)


def alias(sql: str, *, step: str) -> tuple[str, str]:
    """The name and the expression of `price * 0.9 as euros`; a bare column names itself."""
    from sqlglot import exp

    tree = _parsed(sql, step)
    if isinstance(tree, exp.Alias):
        return tree.alias, sql
    if isinstance(tree, exp.Column):
        return tree.name, sql
    raise InvalidSpec(f"{step} needs a name for each expression", got=repr(sql),
                      do=f'write "{sql} as some_name"')  # fmt: skip


def renamed(sql: str) -> str | None:
    """The column an expression is a plain copy of, if it is one."""
    from sqlglot import exp

    tree = _parsed(sql, "an expression").unalias()
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        return str(tree.name)
    return None


def at_clock(sql: str, clock: int) -> str:
    """The same expression with `now()` and its like standing for the batch clock."""
    if not any(word in sql.lower() for word in _CLOCKS):
        return sql
    from sqlglot import exp

    moment = f"timestamp_micros({clock}L)"

    def fixed(node: exp.Expression) -> exp.Expression:
        word = _function(node)
        if word in ("current_date", "curdate"):
            return exp.Cast(this=exp.Var(this=moment), to=exp.DataType.build("date"))
        if word == "localtimestamp":
            return exp.Cast(this=exp.Var(this=moment), to=exp.DataType.build("timestamp_ntz"))
        return exp.Var(this=moment) if word in _CLOCKS else node

    return str(_parsed(sql, "an expression").copy().transform(fixed).sql(dialect="spark"))


def unknown_column(name: str, columns: Iterable[str], *, step: str) -> InvalidSpec:
    """The sentence for a column that is not there, with the nearest that is."""
    known = list(columns)
    near = difflib.get_close_matches(name, known, n=1)
    return InvalidSpec(
        f"{step} needs columns that exist",
        got=f"{name!r}, where the stream has {', '.join(known) or 'none'}",
        do=f"did you mean {near[0]!r}?" if near else "name one of these",
    )


@cache
def _parsed(sql: str, step: str) -> exp.Expression:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if not isinstance(sql, str):
        raise InvalidSpec(f"{step} needs SQL text", got=repr(sql))
    try:
        trees = sqlglot.parse(f"SELECT {sql}", dialect="spark")
    except SqlglotError as error:
        reason = str(error).splitlines()[0].split(". Line")[0]
        raise InvalidSpec(f"{step} needs one SQL expression", got=f"{sql!r} ({reason})") from None
    tree = trees[0] if len(trees) == 1 else None
    plain = isinstance(tree, exp.Select) and not any(
        value for key, value in tree.args.items() if key not in ("expressions", "kind", "hint")
    )
    if tree is None or not plain or len(tree.expressions) != 1:
        raise InvalidSpec(f"{step} needs one SQL expression", got=repr(sql))
    expression: exp.Expression = tree.expressions[0]
    return expression.copy()


def _refuse_what_is_not_row_wise(tree: exp.Expression, sql: str, step: str) -> None:
    from sqlglot import exp

    for node in tree.walk():
        word = _function(node)
        if word in _RANDOM:
            raise InvalidSpec(f"{step} needs an expression that gives the same answer when a "
                              "batch is run again", got=f"{word}() in {sql!r}")  # fmt: skip
        if isinstance(node, exp.AggFunc | exp.Window | exp.Subquery | exp.Select | exp.Star):
            raise InvalidSpec(f"{step} needs a row-wise expression", got=repr(sql),
                              do="aggregate with .by(…).window(…).agg(…)")  # fmt: skip


def _function(node: exp.Expression) -> str | None:
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    if isinstance(node, exp.Func):
        return str(node.sql_name()).lower()
    if isinstance(node, exp.Column) and node.name.lower() in ("current_timestamp", "current_date"):
        return str(node.name).lower()
    return None


def _bound(column: exp.Expression) -> set[str]:
    """Names an enclosing lambda binds: `x` in `transform(tags, x -> x + 1)`."""
    from sqlglot import exp

    bound: set[str] = set()
    parent = column.parent
    while parent is not None:
        if isinstance(parent, exp.Lambda):
            bound.update(argument.name for argument in parent.expressions)
        parent = parent.parent
    return bound

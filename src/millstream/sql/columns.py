"""SQL expressions as text: which columns they read, what is not allowed, the batch clock.

The parser (sqlglot) is imported when the first expression is checked, so that
`import millstream` stays light. It only reads: Spark receives the user's own text, because
SQL that sqlglot generates may have another meaning (it takes Spark's `cast` for `try_cast`).
"""

from __future__ import annotations

import difflib
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.sql.functions import (
    AGGREGATES,
    CLOCKS,
    CLOCKS_WITHOUT_CALL,
    GENERATORS,
    SPECIAL_MOMENTS,
    TYPED_MOMENTS,
    UNREPEATABLE,
    WINDOWS,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from sqlglot import exp
    from sqlglot.tokenizer_core import Token


def check(
    sql: str, columns: tuple[str, ...] | None, *, step: str, hidden: tuple[str, ...] = ()
) -> None:
    """Refuse an expression that does not parse, reads an unknown column, or is not row-wise.

    Column names are compared as Spark does, ignoring case; `hidden` ones exactly.
    """
    tree = parsed(sql, step)
    _refuse_what_is_not_row_wise(tree, sql, step)
    if columns is None:
        return
    known = {name.lower() for name in columns}
    for name in sorted(columns_read(sql)):
        if name.lower() not in known and name not in hidden:
            raise unknown_column(name, (*columns, *hidden), step=f"{step} {sql!r}")


def has_alias(sql: str) -> bool:
    """Whether an expression has an alias: `… as name`."""
    from sqlglot import exp

    return isinstance(parsed(sql, "an expression"), exp.Alias | exp.Aliases)


def check_unnamed(sql: str, step: str) -> None:
    """Refuse `… as name` where the alias would be ignored."""
    if has_alias(sql):
        raise InvalidSpec(f"{step} needs an expression without a name", got=repr(sql),
                          do="leave out `as …`")  # fmt: skip


def columns_read(sql: str) -> frozenset[str]:
    """The top-level columns an expression reads: `who.id + x` reads `who` and `x`."""
    from sqlglot import exp

    tree = parsed(sql, "an expression")
    found = set()
    for column in tree.find_all(exp.Column):
        root = column.parts[0].name
        if root not in _bound(column):
            found.add(root)
    return frozenset(found)


def alias(sql: str, *, step: str) -> tuple[str, str]:
    """The name and the expression of `price * 0.9 as euros`; a column is its own name."""
    from sqlglot import exp

    tree = parsed(sql, step)
    if isinstance(tree, exp.Alias):
        return tree.alias, sql
    if isinstance(tree, exp.Column):
        return tree.name, sql
    raise InvalidSpec(f"{step} needs a name for each expression", got=repr(sql),
                      do=f'write "{sql} as some_name"')  # fmt: skip


def copied_column(sql: str) -> str | None:
    """The column an expression copies, if it is only that; `*` for `*`."""
    from sqlglot import exp

    tree = parsed(sql, "an expression").unalias()
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        return str(tree.name)
    return "*" if isinstance(tree, exp.Star) else None


def quoted(name: str) -> str:
    """A column's name as SQL, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def at_clock(sql: str, clock: int, columns: Container[str] = ()) -> str:
    """The text with `now()` and similar functions replaced by the batch clock.

    `current_date` without parentheses is a column if there is one of that name.
    """
    if not any(word in sql.lower() for word in CLOCKS):
        return sql
    made, done = [], 0
    for word, first, last, called in _clock_words(sql):
        if not called and (word not in CLOCKS_WITHOUT_CALL or word in columns):
            continue
        made += [sql[done:first], CLOCKS[word].format(clock=f"timestamp_micros({clock}L)")]
        done = last + 1
    return "".join([*made, sql[done:]])


def unknown_column(name: str, columns: Iterable[str], *, step: str) -> InvalidSpec:
    """The error for an unknown column, with the most similar name."""
    known = list(columns)
    shown = [column for column in known if not column.startswith("_")]
    lower = {column.lower(): column for column in known}
    near = difflib.get_close_matches(name.lower(), list(lower), n=1)
    return InvalidSpec(
        f"{step} needs columns that exist",
        got=f"{name!r}, where the stream has {', '.join(shown) or 'none'}",
        do=f"did you mean {lower[near[0]]!r}?" if near else "name one of these",
    )


def parsed(sql: str, step: str) -> exp.Expression:
    """The tree of one SQL expression.

    Raises:
        InvalidSpec: it is not text, not SQL, or more than one expression.
    """
    if not isinstance(sql, str):
        raise InvalidSpec(f"{step} needs SQL text", got=repr(sql), do='write it as "price > 0"')
    return _parsed(sql, step)


@cache
def _parsed(sql: str, step: str) -> exp.Expression:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        trees = sqlglot.parse(f"SELECT {sql}", dialect="spark")
    except SqlglotError as error:
        reason = str(error).splitlines()[0].split(". Line")[0]
        raise _not_one(sql, step, f" ({reason})") from None
    tree = trees[0] if len(trees) == 1 else None
    plain = isinstance(tree, exp.Select) and not any(
        value for key, value in tree.args.items() if key != "expressions"
    )
    if tree is None or not plain or len(tree.expressions) != 1 or ";" in _marks(sql):
        raise _not_one(sql, step)
    expression: exp.Expression = tree.expressions[0]
    if any(expression.find_all(exp.Placeholder, exp.Parameter)):
        raise _not_one(sql, step, " (a parameter)")
    return expression.copy()


def _not_one(sql: str, step: str, reason: str = "") -> InvalidSpec:
    return InvalidSpec(f"{step} needs one SQL expression", got=f"{sql!r}{reason}",
                       do='write it as in Spark: "price > 0"')  # fmt: skip


def _refuse_what_is_not_row_wise(tree: exp.Expression, sql: str, step: str) -> None:
    from sqlglot import exp

    for word in _called(sql):
        if word in UNREPEATABLE:
            raise _unrepeatable(f"{word}()", sql, step)
        if word in AGGREGATES or word in WINDOWS or "_agg" in word:
            raise _not_row_wise(sql, step, "aggregate with .by(…).window(…).agg(…)")
        if word in GENERATORS:
            raise _not_row_wise(sql, step, 'open an array with .explode("column")')
    if special := _special_moment(sql):
        raise _unrepeatable(special, sql, step)
    if any(tree.find_all(exp.AggFunc, exp.Window, exp.Subquery, exp.Query)):
        raise _not_row_wise(sql, step, "aggregate with .by(…).window(…).agg(…)")
    if any(tree.find_all(exp.Star)):
        raise _not_row_wise(sql, step, "name the columns")


def _not_row_wise(sql: str, step: str, do: str) -> InvalidSpec:
    return InvalidSpec(
        f"{step} needs an expression over one row, giving one value", got=repr(sql), do=do
    )


def _unrepeatable(what: str, sql: str, step: str) -> InvalidSpec:
    return InvalidSpec(
        f"{step} needs an expression that gives the same answer when a batch is run again",
        got=f"{what} in {sql!r}",
        do="leave it out; now() is the batch clock and may be used",
    )


def _tokens(sql: str) -> list[Token]:
    from sqlglot.dialects.dialect import Dialect

    return list(Dialect.get_or_raise("spark").tokenize(sql))


def _marks(sql: str) -> set[str]:
    from sqlglot.tokenizer_core import TokenType

    return {";" for token in _tokens(sql) if token.token_type == TokenType.SEMICOLON}


def _called(sql: str) -> Iterator[str]:
    """The functions an expression calls, and `current_time`, which needs no parentheses."""
    from sqlglot.tokenizer_core import TokenType

    quantified = (TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE)
    tokens = _tokens(sql)
    for place, token in enumerate(tokens):
        word = token.text.lower()
        before = tokens[place - 1].token_type if place else None
        if token.token_type == TokenType.STRING or before in quantified:
            continue
        after = tokens[place + 1].token_type if place + 1 < len(tokens) else None
        bare = token.token_type != TokenType.IDENTIFIER and before != TokenType.DOT
        if after == TokenType.L_PAREN or (word == "current_time" and bare):
            yield word


def _special_moment(sql: str) -> str | None:
    """`date 'today'` and similar literals, which Spark takes from the wall clock."""
    from sqlglot.tokenizer_core import TokenType

    tokens = _tokens(sql)
    for word, text in pairwise(tokens):
        if word.text.lower() in TYPED_MOMENTS and text.token_type == TokenType.STRING:
            moment = text.text.strip().lower()
            if any(moment.startswith(special) for special in SPECIAL_MOMENTS):
                return f"{word.text} '{text.text}'"
    return None


def _clock_words(sql: str) -> Iterator[tuple[str, int, int, bool]]:
    """Functions that read the clock: the word, its start and end, whether it has parentheses."""
    from sqlglot.tokenizer_core import TokenType

    tokens = _tokens(sql)
    for place, token in enumerate(tokens):
        word = token.text.lower()
        if word not in CLOCKS or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        if place and tokens[place - 1].token_type == TokenType.DOT:
            continue
        call = [following.token_type for following in tokens[place + 1 : place + 3]]
        if call == [TokenType.L_PAREN, TokenType.R_PAREN]:
            yield word, token.start, tokens[place + 2].end, True
        elif call[:1] != [TokenType.L_PAREN]:
            yield word, token.start, token.end, False


def _bound(column: exp.Expression) -> set[str]:
    """Names bound by an enclosing lambda: `x` in `transform(tags, x -> x + 1)`."""
    from sqlglot import exp

    bound: set[str] = set()
    parent = column.parent
    while parent is not None:
        if isinstance(parent, exp.Lambda):
            bound.update(argument.name for argument in parent.expressions)
        parent = parent.parent
    return bound

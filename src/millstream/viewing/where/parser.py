"""Parses a filter into a condition, by recursive descent.

any    = all {"or" all}
all    = no {"and" no}
no     = "not" no | test
test   = part [SIGN part | ["not"] "in" "(" part {"," part} ")" | ["not"] "like" TEXT
              | "is" ["not"] "null"]
part   = NUMBER | TEXT | "true" | "false" | "null" | NAME | "(" any ")"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidInput, MillstreamError
from millstream.viewing.fields import MOST_DIGITS
from millstream.viewing.points_in_time import instant
from millstream.viewing.where import tree
from millstream.viewing.where.tokens import Token, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

DEEPEST = 100
LONGEST_LIKE = 1_000
TIME = ("_timestamp",)


def parse(source: str, *, what: str = "--where") -> tree.Condition:
    """Parse a filter; `what` names it in errors.

    Raises:
        InvalidInput: the text is not a filter; names the character of the error.
    """
    return tree.Condition(_Parser(source, what).whole())


class _Parser:
    def __init__(self, source: str, what: str) -> None:
        self._what = what
        self._tokens = tokens(source, what=what)
        self._place = 0
        self._depth = 0

    def whole(self) -> tree.Node:
        condition = self._any()
        if self._now.kind != "end":
            raise self._wrong("`and`, `or` or the end")
        return condition

    @property
    def _now(self) -> Token:
        return self._tokens[self._place]

    def _next(self) -> Token:
        token = self._now
        self._place += 1
        return token

    def _take(self, kind: str, *texts: str) -> Token | None:
        token = self._now
        return self._next() if token.kind == kind and token.text in texts else None

    def _demand(self, kind: str, text: str) -> None:
        if self._take(kind, text) is None:
            raise self._wrong(f"`{text}`")

    def _wrong(self, need: str, token: Token | None = None) -> InvalidInput:
        token = token or self._now
        return InvalidInput(
            f"{self._what} needs {need} at character {token.at}",
            got=str(token),
            do="see `millstream tail --help`",
        )

    def _any(self) -> tree.Node:
        return self._chain("or", self._all, tree.AnyOf)

    def _all(self) -> tree.Node:
        return self._chain("and", self._no, tree.AllOf)

    def _chain(
        self,
        word: str,
        part: Callable[[], tree.Node],
        join: Callable[[tuple[tree.Node, ...]], tree.Node],
    ) -> tree.Node:
        parts = [part()]
        while self._take("word", word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else join(tuple(parts))

    def _no(self) -> tree.Node:
        first = self._now
        if self._take("word", "not"):
            return tree.Not(self._deeper(self._no))
        found = self._test()
        if isinstance(found, tree.Constant) and tree.truth(found.constant) is None:
            raise self._wrong("a condition such as `price > 10`", first)
        return found

    def _deeper(self, inner: Callable[[], tree.Node]) -> tree.Node:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._wrong(f"at most {DEEPEST} levels of `not` and parentheses")
        found = inner()
        self._depth -= 1
        return found

    def _test(self) -> tree.Node:
        left = self._part()
        if self._now.kind == "sign" and self._now.text in tree.SIGNS:
            return self._comparison(left, self._next().text)
        if self._take("word", "is"):
            return self._is_null(left)
        negated = self._take("word", "not") is not None
        found: tree.Node
        if self._take("word", "in"):
            found = self._among(left)
        elif self._take("word", "like"):
            found = self._like(left)
        elif negated:
            raise self._wrong("`in` or `like`")
        else:
            return left
        return tree.Not(found) if negated else found

    def _comparison(self, left: tree.Node, sign: str) -> tree.Node:
        at = self._now
        right = self._part()
        if _is_time(left):
            right = self._as_time(right, at)
        elif _is_time(right):
            left = self._as_time(left, at)
        return tree.Comparison(left, sign, right)

    def _is_null(self, left: tree.Node) -> tree.Node:
        negated = self._take("word", "not") is not None
        self._demand("word", "null")
        found = tree.IsNull(left)
        return tree.Not(found) if negated else found

    def _among(self, item: tree.Node) -> tree.Node:
        self._demand("sign", "(")
        choices = [self._choice(item)]
        while self._take("sign", ","):
            choices.append(self._choice(item))
        self._demand("sign", ")")
        return tree.Among(item, tuple(choices))

    def _choice(self, item: tree.Node) -> tree.Node:
        at = self._now
        choice = self._part()
        return self._as_time(choice, at) if _is_time(item) else choice

    def _like(self, item: tree.Node) -> tree.Node:
        pattern = self._next()
        if pattern.kind != "text":
            raise self._wrong("text in quotes after `like`", pattern)
        if len(pattern.text) > LONGEST_LIKE:
            raise self._wrong(f"at most {LONGEST_LIKE} characters after `like`", pattern)
        return tree.Like.of(item, pattern.text)

    def _part(self) -> tree.Node:
        token = self._now
        if self._take("sign", "("):
            found = self._deeper(self._any)
            self._demand("sign", ")")
            return found
        if self._take("word", "true", "false"):
            return tree.Constant(token.text == "true")
        if self._take("word", "null"):
            return tree.Constant(None)
        self._place += 1
        match token.kind:
            case "number":
                return tree.Constant(_number(token.text))
            case "text":
                return tree.Constant(token.text)
            case "name":
                return tree.Field(token.path)
            case _:
                raise self._wrong("a name or a value", token)

    def _as_time(self, node: tree.Node, at: Token) -> tree.Node:
        if not isinstance(node, tree.Constant) or node.constant is None:
            return node
        try:
            return tree.Constant(instant(str(node.constant)))
        except MillstreamError:
            raise self._wrong("a time such as '2026-01-01T12:00' beside _timestamp", at) from None


def _is_time(node: tree.Node) -> bool:
    return isinstance(node, tree.Field) and node.path == TIME


def _number(text: str) -> int | float:
    whole = len(text) < MOST_DIGITS and not any(mark in text for mark in ".eE")
    return int(text) if whole else float(text)

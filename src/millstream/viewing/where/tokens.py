"""The tokens of a filter, with their positions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from millstream.errors import InvalidInput
from millstream.viewing.escape import one_line, shortened

Kind = Literal["number", "text", "name", "word", "sign", "end"]

WORDS = frozenset({"and", "or", "not", "in", "is", "like", "null", "true", "false"})
LONGEST = 10_000
SHOWN = 60

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>-?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    | (?P<name>(?:[^\W\d]\w*|`[^`]+`)(?:\.(?:\w+|`[^`]+`))*)
    | (?P<sign><=|>=|!=|<>|==|[=<>(),])
    )""",
    re.VERBOSE,
)
_PART = re.compile(r"`([^`]+)`|(\w+)")


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the filter; `at` counts characters from 1."""

    kind: Kind
    text: str
    at: int

    @property
    def path(self) -> tuple[str, ...]:
        """The parts of a dotted name."""
        return tuple(quoted or plain for quoted, plain in _PART.findall(self.text))

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end"
        shown = one_line(self.text)
        return f"`{shown}`" if len(shown) <= SHOWN else f"`{shown[:SHOWN]}…`"


def tokens(source: str, *, what: str = "--where") -> list[Token]:
    """The tokens of a filter, followed by an `end`.

    Raises:
        InvalidInput: a character that starts no token, or text without its closing quote.
    """
    if len(source) > LONGEST:
        raise InvalidInput(
            f"{what} needs at most {LONGEST} characters", got=f"{len(source)} characters"
        )
    found, place, end = [], 0, len(source.rstrip())
    while place < end:
        match = _TOKEN.match(source, place)
        if match is None:
            raise _unreadable(source, place, what)
        kind, text = match.lastgroup, match.group(match.lastgroup or 0)
        found.append(_token(kind, text, match.start(kind or 0) + 1))
        place = match.end()
    found.append(Token("end", "", end + 1))
    return found


def _token(kind: str | None, text: str, at: int) -> Token:
    if kind == "name":
        lower = text.lower()
        return Token("word", lower, at) if lower in WORDS else Token("name", text, at)
    if kind == "text":
        quote = text[0]
        return Token("text", text[1:-1].replace(quote * 2, quote), at)
    return Token("number" if kind == "number" else "sign", text, at)


def _unreadable(source: str, place: int, what: str) -> InvalidInput:
    while source[place].isspace():
        place += 1
    rest = source[place:]
    if rest[0] in "'\"":
        need, do = f"a closing {rest[0]} for the text", f"write {rest[0] * 2} for a quote inside"
    else:
        need, do = "a name, a value or a comparison", "see `millstream tail --help`"
    return InvalidInput(f"{what} needs {need} at character {place + 1}", got=shortened(rest), do=do)

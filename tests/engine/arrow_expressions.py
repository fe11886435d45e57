"""Random SQL that needs no Spark, and rows with many edge cases."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    Made = Callable[[], str]

STAMP = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("b", pa.int8()), ("s", pa.int16()), ("i", pa.int32()), ("j", pa.int32()), ("l", pa.int64()),
     ("m", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("f", pa.float32()),
     ("g", pa.float32()), ("t", pa.string()), ("u", pa.string()), ("p", pa.bool_()),
     ("q", pa.bool_()), ("ts", STAMP), ("at", STAMP), ("d", pa.date32()), ("e", pa.date32())]
)  # fmt: skip
_DOUBLES = [0.0, -0.0, 1.0, -1.5, 0.1, 0.908, math.nan, math.inf, -math.inf, 5e-324, -1e308, 1e308,
            2.0**53, 2.0**31, 3.0, 123.0]  # fmt: skip
_TEXTS = ["", "a", "A", "ab", " a", "a ", "ä", "\U0001f600", "\uffff", "\ue000", "é", "e\u0301",
          "\x00", "zz"]  # fmt: skip

SIGNS = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]
_PAIRS = ("x y", "x 1.0", "0 x", "f g", "t u", "b l", "i x")
COMPARED = [pair.replace(" ", sign) for sign in SIGNS for pair in _PAIRS]


def _integers(bits: int) -> list[int]:
    half = 2 ** (bits - 1)
    return [-half, -half + 1, half - 1, half - 2, 0, 1, -1, 2, 3, -3, 7, 100, -100]


_VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): _integers(8),
    pa.int16(): _integers(16),
    pa.int32(): _integers(32),
    pa.int64(): [*_integers(64), 2**53, 2**53 + 1, 2**31, 123, 1230],
    pa.float64(): _DOUBLES,
    pa.float32(): [0.0, -0.0, 1.0, -1.5, math.nan, math.inf, -math.inf, 0.5, 3.0],
    pa.string(): _TEXTS,
    pa.bool_(): [True, False],
    STAMP: [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)],
    pa.date32(): [date(2026, 1, day) for day in (1, 2, 3)],
}


def table(rng: random.Random, rows: int) -> pa.Table:
    """Rows over all types; one value in six is null."""
    columns = [
        pa.array([None if rng.random() < 1 / 6 else rng.choice(_VALUES[field.type])
                  for _ in range(rows)], field.type)
        for field in SCHEMA
    ]  # fmt: skip
    return pa.Table.from_arrays(columns, schema=SCHEMA)


class Expressions:
    """Random SQL by its type: `boolean`, `double`, `integer`, `text`."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def any(self, depth: int = 3) -> str:
        kinds = (self.boolean, self.boolean, self.double, self.integer, self.text, self.moment)
        return self._rng.choice(kinds)(depth)

    def boolean(self, depth: int = 3) -> str:
        pick = self._rng.choice
        if depth <= 0:
            return pick(["p", "Q", "`p`", "true", "false"])
        below = depth - 1
        makers: list[Made] = [
            lambda: f"{self.boolean(below)} {pick(['and', 'or'])} {self.boolean(below)}",
            lambda: f"({self.boolean(below)} {pick(['AND', 'or'])} {self.boolean(below)})",
            lambda: f"{pick(['not ', '!'])}({self.boolean(below)})",
            lambda: f"not {self.compared(below)}",
            lambda: self.compared(below),
            lambda: self.compared(below),
            lambda: f"p {pick(['=', '<>', '<=>', '!='])} q",
            lambda: f"{pick(['l', 'b', 't', 'x', 'ts', 'p'])} is {pick(['', 'not '])}null",
            self._one_of,
            lambda: self._between(below),
            lambda: self._chosen(self.boolean, below),
        ]
        return pick(makers)()

    def compared(self, depth: int) -> str:
        pick = self._rng.choice
        sign = pick(SIGNS)
        pairs: list[tuple[Made, Made]] = [
            (lambda: self.integer(depth), lambda: self.integer(depth)),
            (lambda: self.double(depth), lambda: self.double(depth)),
            (lambda: self.double(depth), lambda: pick(["i", "b", "s", "3", "0.908", "-1.5D"])),
            (lambda: pick(["i", "s"]), lambda: pick(["1.5D", "x", "1e10", "-3e0"])),
            (lambda: self.text(depth), lambda: self.text(depth)),
            (lambda: "f", lambda: "g"),
            (lambda: "ts", lambda: "at"),
            (lambda: "d", lambda: "e"),
        ]
        sides = [made() for made in pick(pairs)]
        self._rng.shuffle(sides)
        return f"{sides[0]} {sign} {sides[1]}"

    def double(self, depth: int = 2) -> str:
        pick = self._rng.choice
        if depth <= 0:
            return pick(["x", "y", "X"])
        below = depth - 1
        makers = [
            lambda: f"{self.double(below)} {pick('+-*')} {self.double(below)}",
            lambda: (
                f"({self.double(below)} {pick('+-*')} {pick(['3', '0.908', '2L', '1e-3', 'l'])})"
            ),
            lambda: f"{pick(['i', 'l', '0.1', 'f', 's'])} {pick('+-*')} {pick(['x', 'y'])}",
            lambda: f"({self.double(below)}) / {pick(['3', '-0.908', '2L', '1e-3'])}",
            lambda: f"{pick(['i', 'l', 'b'])} / {pick(['3', '-7', '1.5D'])}",
            lambda: f"-{pick(['x', 'y'])}",
            lambda: f"-({self.double(below)})",
            lambda: f"cast({pick(['i', 'l', 'x', 'f', 's'])} as double)",
            lambda: self._chosen(self.double, below),
            lambda: f"coalesce({self.double(below)}, {pick(['0', '0.5', 'x', 'l', 'null'])}, y)",
            lambda: f"nullif({self.double(below)}, {pick(['0', '0.908', 'y', 'i'])})",
        ]
        return pick(makers)()

    def integer(self, depth: int = 2) -> str:
        pick = self._rng.choice
        if depth <= 0:
            return pick(["b", "s", "i", "j", "l", "m", "I", "l", "3", "-3", "2147483648", "1L"])
        below = depth - 1
        name = pick(["b", "s", "i", "l", "m"])
        makers = [
            lambda: f"{name} % {pick(['3', '-3', '1', '-1', '2147483648', '7L', '100Y'])}",
            lambda: f"mod({name}, {pick(['3', '10L'])})",
            lambda: f"cast({pick(['b', 's', 'i'])} as {pick(['int', 'bigint', 'long'])})",
            lambda: self._chosen(self.integer, below),
            lambda: f"coalesce({name}, {self.integer(below)}, 0)",
            lambda: f"nullif({name}, {pick(['0', '1L', 'i', '-1'])})",
            lambda: self.integer(0),
        ]
        return pick(makers)()

    def text(self, depth: int = 2) -> str:
        pick = self._rng.choice
        literal = pick(["''", "'a'", '"a"', "'ä'", "'\uffff'", "'\U0001f600'", "'A '"])
        if depth <= 0:
            return pick(["t", "u", "T", literal])
        makers: list[Made] = [
            lambda: self.text(0),
            lambda: self._chosen(self.text, depth - 1),
            lambda: f"nvl(t, {literal})",
            lambda: f"nullif(t, {literal})",
        ]
        return pick(makers)()

    def moment(self, depth: int = 2) -> str:
        return self._rng.choice(["ts", "if(p, ts, at)", "coalesce(ts, at)", "nullif(d, e)", "d"])

    def _chosen(self, kind: Any, depth: int) -> str:
        condition, one, two = self.boolean(depth), kind(depth), kind(depth)
        return self._rng.choice(
            [
                f"if({condition}, {one}, {two})",
                f"case when {condition} then {one} else {two} end",
                f"case when {condition} then {one} when p then {two} end",
                f"if({condition}, null, {one})",
            ]
        )

    def _one_of(self) -> str:
        no = self._rng.choice(["", "not "])
        return self._rng.choice(
            [
                f"t {no}in ('a', '', 'ä')",
                f"l {no}in (1, 123, 2147483648)",
                f"b {no}in (1, 300)",
                f"i {no}in ({', '.join(map(str, range(20)))})",
            ]
        )

    def _between(self, depth: int) -> str:
        no = self._rng.choice(["", "not "])
        return self._rng.choice(
            [
                f"x {no}between {self.double(0)} and 3",
                f"{self.integer(0)} {no}between l and {self.integer(0)}",
                f"t {no}between 'A' and {self.text(0)}",
                f"x {no}between -1.5 and 1e3 and p",
                f"ts {no}between at and ts",
            ]
        )

"""Output: data on stdout, messages on stderr.

Data is a table for people or JSON for programs (`-o table|json`); `--quiet` suppresses all
messages but errors.
"""

from __future__ import annotations

import json
import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from millstream.viewing.escape import in_json, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Output(StrEnum):
    """The shape of data on stdout."""

    table = "table"
    json = "json"


@dataclass(frozen=True)
class Screen:
    """How much is printed, and whether in colour."""

    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    color: bool = True

    @classmethod
    def from_environment(cls) -> Screen:
        """Settings from `NO_COLOR` and `MILLSTREAM_DEBUG`, used before any option is read."""
        environ = os.environ
        return cls(
            debug=environ.get("MILLSTREAM_DEBUG", "").lower() not in ("", "0", "false", "no"),
            color=not environ.get("NO_COLOR") and environ.get("TERM") != "dumb",
        )


_screen: ContextVar[Screen | None] = ContextVar("screen", default=None)


def screen() -> Screen:
    """The settings of the running command."""
    return _screen.get() or Screen.from_environment()


def use_screen(settings: Screen) -> None:
    """Use these settings from now on."""
    _screen.set(settings)


def say(text: str) -> None:
    """Print what was done or what to do next."""
    if not screen().quiet:
        _print_message(text)


def detail(text: str) -> None:
    """Print under `--verbose` only."""
    if screen().verbose and not screen().quiet:
        _print_message(text, style="2")


def warn(text: str) -> None:
    """Print a warning; the command continues."""
    if not screen().quiet:
        _print_message(f"warning: {text}", style="33")


def complain(text: str) -> None:
    """Print why the command ends, even under `--quiet`."""
    _print_message(f"error: {text}", style="31")


def colored(stream: TextIO) -> bool:
    """Whether colour codes may be written to this stream."""
    return screen().color and stream.isatty()


def painted(text: str, style: str, stream: TextIO) -> str:
    """The text in an ANSI style if the stream shows colour, else unchanged."""
    return f"\x1b[{style}m{text}\x1b[0m" if colored(stream) else text


def _print_message(text: str, *, style: str | None = None) -> None:
    for line in text.split("\n"):
        shown = one_line(line)
        sys.stderr.write((painted(shown, style, sys.stderr) if style else shown) + "\n")
    sys.stderr.flush()


def json_text(value: object) -> str:
    """One line of JSON in UTF-8, without control characters."""
    return in_json(json.dumps(value, ensure_ascii=False, default=str))


def print_json(value: object) -> None:
    """Print one JSON document, indented."""
    sys.stdout.write(in_json_lines(json.dumps(value, ensure_ascii=False, indent=2, default=str)))
    sys.stdout.write("\n")


def in_json_lines(text: str) -> str:
    """As `in_json`, keeping the line breaks of indented JSON."""
    return "\n".join(in_json(line) for line in text.split("\n"))


def print_rows(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], output: Output, *, none: str
) -> None:
    """Print rows as an array of objects or as a table; `none` is the message for no rows."""
    if output is Output.json:
        print_json(list(rows))
    elif rows:
        print_table(columns, ([row.get(name) for name in columns] for row in rows))
    else:
        say(none)


def print_facts(facts: Mapping[str, object], output: Output) -> None:
    """Print one object, or one `name  value` line per fact."""
    if output is Output.json:
        print_json(facts)
        return
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        label = painted(name.replace("_", " ").ljust(width), "1", sys.stdout)
        sys.stdout.write(f"{label}  {cell(value)}\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns aligned by spaces."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.show_edge = False
    body = [[_cell_of(value) for value in row] for row in rows]
    for place, name in enumerate(columns):
        numeric = all(isinstance(row[place], _Number) for row in body) and bool(body)
        table.add_column(
            Text(name.replace("_", " ").upper()),
            justify="right" if numeric else "left",
            overflow="fold",
        )
    for row in body:
        table.add_row(*(Text(str(value)) for value in row))
    terminal = sys.stdout.isatty()
    Console(
        file=sys.stdout,
        no_color=not colored(sys.stdout),
        color_system="auto" if colored(sys.stdout) else None,
        width=None if terminal else 10_000,
    ).print(table, highlight=False)


class _Number(str):
    """A right-aligned cell."""


def _cell_of(value: object) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return _Number(cell(value)) if number else cell(value)


def counted(number: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cell(value: object) -> str:
    """A value for people: null as `-`, booleans as yes and no, lists with commas."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{one_line(str(k))}={cell(v)}" for k, v in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value)) or "-"
    return one_line(str(value))

"""One CSV record read a character at a time: slow, and independent of what it judges.

Python's own `csv` has to agree on the text of the cells; values are read by the JSON
oracle, from the JSON that means the same.
"""

from __future__ import annotations

import csv
import json
import re
from typing import Any

from tests.oracles import json_oracle

Fields = list[tuple[str, Any, bool]]
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)\Z")
_NUMERIC = ("byte", "short", "int", "long", "float", "double")


class Bad(Exception):
    """The record is no row."""


def read(raw: bytes | None, fields: Fields, header: list[str] | None = None) -> dict[str, Any]:
    """The row, or Bad."""
    cells = _cells(raw)
    names = header if header is not None else [name for name, _, _ in fields]
    if len(cells) != len(names):
        raise Bad("cells")
    found = dict(zip(names, cells, strict=True))
    document = {}
    for name, type_, _ in fields:
        cell = found.get(name)
        document[name] = "null" if cell is None else _as_json(cell, type_)
    text = "{" + ",".join(f"{json.dumps(n)}:{v}" for n, v in document.items()) + "}"
    try:
        row, _ = json_oracle.read(text.encode(), fields)
    except json_oracle.Bad:
        raise Bad("value") from None
    return dict(row)


def _as_json(cell: str, type_: Any) -> str:
    if type_ in _NUMERIC and _NUMBER.match(cell):
        return cell
    if type_ == "boolean" and cell in ("true", "false"):
        return cell
    if type_ == "timestamp" and _WHOLE.match(cell):
        return cell
    return json.dumps(cell)


def _cells(raw: bytes | None) -> list[str | None]:
    """Texts; None for an empty cell without quotes."""
    if raw is None:
        raise Bad("null")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Bad("utf-8") from None
    if text.startswith("\ufeff"):
        raise Bad("mark")
    if text.endswith("\r\n"):
        text = text[:-2]
    elif text.endswith("\n"):
        text = text[:-1]
    cells: list[str | None] = []
    at = 0
    while True:
        cell, at = _cell(text, at)
        cells.append(cell)
        if at == len(text):
            break
        at += 1
    if "\r" not in text and "\n" not in text and text:
        [parsed] = csv.reader([text], strict=True)
        assert parsed == [cell or "" for cell in cells], (text, parsed, cells)
    return cells


def _cell(text: str, at: int) -> tuple[str | None, int]:
    if at < len(text) and text[at] == '"':
        made = ""
        at += 1
        while True:
            if at == len(text):
                raise Bad("open quotes")
            if text[at] != '"':
                made += text[at]
                at += 1
            elif text[at : at + 2] == '""':
                made += '"'
                at += 2
            else:
                at += 1
                break
        if at < len(text) and text[at] != ",":
            raise Bad("text after quotes")
        return made, at
    made = ""
    while at < len(text) and text[at] != ",":
        if text[at] in '"\r\n':
            raise Bad("a mark in a bare cell")
        made += text[at]
        at += 1
    return made or None, at

"""The JSON text of a few values, one after the other: what whole columns give, sooner."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from millstream.schema import Scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from millstream.schema import Type

MOST = 24
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e9  # between them nobody writes an exponent


def texts(column: pa.ChunkedArray, type_: Type) -> list[str] | None:
    """The text of each value, `null` for null; None where only columns know how it is written."""
    write = _WRITES.get(type_.name) if isinstance(type_, Scalar) else None
    if write is None:
        return None
    found = []
    for value in column.to_pylist():
        text = "null" if value is None else write(value)
        if text is None:
            return None
        found.append(text)
    return found


def _string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _real(value: float) -> str | None:
    return repr(value) if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_TO else None


_WRITES: dict[str, Callable[..., str | None]] = {
    "byte": str,
    "short": str,
    "int": str,
    "long": str,
    "boolean": {True: "true", False: "false"}.get,
    "string": _string,
    "double": _real,
}

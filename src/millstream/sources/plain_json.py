"""Encodes rows of Python values as JSON records that the JSON format reads."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from datetime import date
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any
from uuid import UUID

from millstream.errors import InvalidInput


def as_json(row: Mapping[str, Any], what: str) -> bytes:
    """Encode a row of JSON values, times, decimals and bytes; `what` names the caller in errors.

    Raises:
        InvalidInput: the row is not a dict, or contains another type.
    """
    if not isinstance(row, Mapping):
        raise InvalidInput(f"{what} needs rows as dicts", got=repr(row),
                           do='write [{"auction": 1}]')  # fmt: skip

    def encode_other(value: Any) -> Any:
        if isinstance(value, date | time_of_day):
            return value.isoformat()
        if isinstance(value, bytes):
            return b64encode(value).decode()
        if isinstance(value, Decimal | UUID):
            return str(value)
        raise InvalidInput(f"{what} needs rows of JSON values, times, decimals and bytes",
                           got=repr(value), do="write it as text")  # fmt: skip

    try:
        return json.dumps(dict(row), default=encode_other, allow_nan=False).encode()
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        return json.dumps(_finite(dict(row)), default=encode_other).encode()


def _finite(value: Any) -> Any:
    """The value with NaN and infinities as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value

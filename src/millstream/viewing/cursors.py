"""Cursors: a position in a topic as text, `0@120,1@98`, an offset for each partition.

A page of records has the cursors of its neighbours, so paging keeps no state on the server and
shows each record once even while the topic grows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millstream.errors import InvalidInput
from millstream.viewing.escape import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

_ONE = re.compile(r"([0-9]{1,9})@([0-9]{1,18})")
_LONGEST = 8_192


def format_cursor(offsets: Mapping[int, int]) -> str:
    """Offsets as text.

    >>> format_cursor({1: 98, 0: 120})
    '0@120,1@98'
    """
    return ",".join(f"{partition}@{offsets[partition]}" for partition in sorted(offsets))


def parse_cursor(text: str, *, what: str) -> dict[int, int]:
    """The offsets of a cursor.

    >>> parse_cursor("0@120,1@98", what="from")
    {0: 120, 1: 98}

    Raises:
        InvalidInput: it is not a cursor, or names a partition twice.
    """
    found: dict[int, int] = {}
    for part in text.split(",") if len(text) <= _LONGEST else [text]:
        one = _ONE.fullmatch(part)
        if one is None or int(one[1]) in found:
            raise InvalidInput(f"{what} needs a cursor such as 0@120,1@98", got=shortened(text),
                               do="pass the cursor of a page unchanged")  # fmt: skip
        found[int(one[1])] = int(one[2])
    return found

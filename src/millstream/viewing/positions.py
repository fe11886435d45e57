"""A place in a topic as text: `0@120,1@98`, an offset for each partition.

A page of records says with such a text where the next one begins, so nobody remembers anything
between two pages, and paging shows each record once however the topic grows meanwhile.
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


def text_of(places: Mapping[int, int]) -> str:
    """The text.

    >>> text_of({1: 98, 0: 120})
    '0@120,1@98'
    """
    return ",".join(f"{partition}@{places[partition]}" for partition in sorted(places))


def places_of(text: str, *, what: str) -> dict[int, int]:
    """The offsets.

    >>> places_of("0@120,1@98", what="from")
    {0: 120, 1: 98}

    Raises:
        InvalidInput: it is no such text, or names a partition twice.
    """
    found: dict[int, int] = {}
    for part in text.split(",") if len(text) <= _LONGEST else [text]:
        one = _ONE.fullmatch(part)
        if one is None or int(one[1]) in found:
            raise InvalidInput(f"{what} needs a place such as 0@120,1@98", got=shortened(text),
                               do="take it from the page before, as it is")  # fmt: skip
        found[int(one[1])] = int(one[2])
    return found

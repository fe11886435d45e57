"""`millstream demo` has a shop: page views, made up but always the same for one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.cli.moments import iso

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

PRODUCTS = ("teapot", "lamp", "kettle", "chair", "clock", "mug", "rug", "vase")
COUNTRIES = ("de", "fr", "nl", "pl", "at", "dk")
_NEXT = {
    "/": ("/search", "/product", "/product", None),
    "/search": ("/product", "/product", "/", None),
    "/product": ("/product", "/cart", "/search", None),
    "/cart": ("/checkout", "/product", None),
    "/checkout": ("/thanks", "/thanks", None),
    "/thanks": (None,),
}


@dataclass
class _Visit:
    user: str
    country: str
    page: str = "/"


def page_views(seed: int, *, visitors: int = 8) -> Iterator[dict[str, object]]:
    """Views of a web shop without end: visitors come, look around, sometimes buy, and leave.

    Each view has user, country, page, product (where there is one) and milliseconds to load.
    """
    chance = random.Random(seed)
    visits = [_newcomer(chance) for _ in range(visitors)]
    while True:
        place = chance.randrange(len(visits))
        visit = visits[place]
        yield _view(visit, chance)
        following = chance.choice(_NEXT[visit.page])
        if following is None:
            visits[place] = _newcomer(chance)
        else:
            visit.page = following


def stamped(view: dict[str, object], now: datetime) -> dict[str, object]:
    """The view with its event time."""
    return {**view, "ts": iso(now)}


def _newcomer(chance: random.Random) -> _Visit:
    return _Visit(f"user-{chance.randrange(1000):03d}", chance.choice(COUNTRIES))


def _view(visit: _Visit, chance: random.Random) -> dict[str, object]:
    view: dict[str, object] = {"user": visit.user, "country": visit.country, "page": visit.page}
    if visit.page in ("/product", "/cart"):
        view["product"] = chance.choice(PRODUCTS)
    view["ms"] = round(chance.lognormvariate(4, 0.6))
    return view

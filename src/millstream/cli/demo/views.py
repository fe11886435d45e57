"""The page views of `millstream demo`: generated, the same for the same seed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

from millstream.viewing.points_in_time import iso

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

PRODUCTS = ("teapot", "lamp", "kettle", "chair", "clock", "mug", "rug", "vase")
COUNTRIES = ("de", "fr", "nl", "pl", "at", "dk")
LATE_SHARE, BROKEN_SHARE = 0.01, 0.003
OUTAGE = (0.15, 0.4)  # the part of each minute in which the checkout hardly ever works
_NEXT = {
    "/": ("/search", "/product", "/product", None),
    "/search": ("/product", "/product", "/", None),
    "/product": ("/product", "/cart", "/search", None),
    "/cart": ("/checkout", "/checkout", "/product"),
    "/checkout": ("/thanks", "/thanks", None),
    "/thanks": (None,),
}


@dataclass
class _Visit:
    user: str
    country: str
    page: str = "/"
    search: str | None = None


@dataclass(frozen=True)
class Record:
    """One record of the shop: a view that happened `behind` seconds ago, or a broken one.

    The phone's own clock, which stamps the view and the sending of it, is `wrong` by so many
    seconds.
    """

    view: dict[str, object]
    behind: float
    broken: bool
    wrong: float

    @property
    def late(self) -> bool:
        """Whether it arrives after its window has closed."""
        return self.behind > 10 and not self.broken

    def key(self) -> str:
        """The visitor."""
        return str(self.view["user"])

    def value(self, now: datetime) -> bytes:
        """The record's value if it is produced now; a broken one is truncated."""
        sent = now + timedelta(seconds=self.wrong)
        at = sent - timedelta(seconds=self.behind)
        fields = {**self.view, "ts": iso(at), "sent": iso(sent)}
        text = json.dumps(fields, separators=(",", ":")).encode()
        return text[: len(text) // 2] if self.broken else text


def page_views(seed: int, *, visitors: int = 8, rate: float = 50.0) -> Iterator[dict[str, object]]:
    """Views of a web shop without end: visitors come, look around, sometimes buy, and leave.

    Each view has user, country, page, product (where there is one), status and milliseconds
    to load; a search has an id and a word, and the product that is clicked in its answer has
    that id, too. At so many views a second, the checkout fails for a quarter of each minute.
    """
    chance = random.Random(seed)
    visits = [_newcomer(chance) for _ in range(visitors)]
    for number in count():
        place = chance.randrange(len(visits))
        visit = visits[place]
        broken = OUTAGE[0] <= number / rate / 60 % 1 < OUTAGE[1]
        yield _view(visit, chance, f"s{number}", 0.9 if broken else 0.02)
        following = chance.choice(_NEXT[visit.page])
        if following is None:
            visits[place] = _newcomer(chance)
        else:
            visit.page = following


def shop_records(seed: int, rate: float = 50.0) -> Iterator[Record]:
    """The shop's records without end: some views come very late, some records are broken, and
    one phone in twenty has a clock that is hours off."""
    chance = random.Random(seed * 7919 + 1)
    for view in page_views(seed, rate=rate):
        draw = chance.random()
        behind = chance.uniform(30, 60) if draw < LATE_SHARE else chance.uniform(0, 0.5)
        yield Record(view, behind, draw > 1 - BROKEN_SHARE, _hours_off(str(view["user"])) * 3600.0)


def _hours_off(user: str) -> int:
    number = int(user.removeprefix("user-"))
    return 0 if number % 20 else number % 7 - 3


def _newcomer(chance: random.Random) -> _Visit:
    return _Visit(f"user-{chance.randrange(1000):03d}", chance.choice(COUNTRIES))


def _view(visit: _Visit, chance: random.Random, search: str, failing: float) -> dict[str, object]:
    view: dict[str, object] = {"user": visit.user, "country": visit.country, "page": visit.page}
    if visit.page in ("/product", "/cart"):
        view["product"] = chance.choice(PRODUCTS)
    if visit.page == "/product" and visit.search is not None:
        view["search"] = visit.search
    visit.search = None
    if visit.page == "/search":
        visit.search = search
        view |= {"search": search, "word": chance.choice(PRODUCTS)}
    fails = visit.page == "/checkout" and chance.random() < failing
    view["status"] = 503 if fails else 200
    view["ms"] = round(chance.lognormvariate(4, 0.6))
    return view

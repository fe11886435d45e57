"""Which page of a topic a request asks for: the same words for records, late and dead rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from millstream.console.api.request import number, word
from millstream.console.api.routes import asked_for
from millstream.console.shared import InTurn
from millstream.errors import InvalidInput
from millstream.viewing.points_in_time import parse_point_in_time
from millstream.viewing.positions import places_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

    from millstream.kafka.clients.consuming.damaged import Lost
    from millstream.viewing.kept_pages import KeptPages
    from millstream.viewing.pages import Page, Pages, Takes
    from millstream.viewing.points_in_time import PointInTime

LIMIT, MOST = 50, 200
PARAMETERS = [
    asked_for("at", "beginning, end (the last ones), -1h, 2026-01-01T12:00 (UTC) or an offset "
              "(@1200)", default="end"),
    asked_for("from", "go on from there: `later` of another page"),
    asked_for("before", "those before: `earlier` of another page"),
    asked_for("limit", f"how many, at most {MOST}", kind="integer", default=LIMIT),
]  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A page that is asked for; calling it gives it."""

    limit: int
    at: PointInTime = "end"
    after: dict[int, int] | None = None
    before: dict[int, int] | None = None

    def __call__(self, pages: Pages | KeptPages, taking: Takes) -> Page:
        """That page of a topic."""
        taking = InTurn(taking)
        if self.before is not None:
            return pages.before(self.before, taking, self.limit)
        if self.after is not None:
            return pages.after(self.after, taking, self.limit)
        if self.at == "end":
            return pages.before(pages.end, taking, self.limit)
        return pages.after(pages.places(self.at), taking, self.limit)


def page_of(request: Request) -> Asked:
    """The page a request means.

    Raises:
        InvalidInput: a word is wrong, or two places are named.
    """
    given = {name: text for name in ("at", "from", "before") if (text := word(request, name))}
    if len(given) > 1:
        raise InvalidInput("a page needs one place", got=" and ".join(given), do="leave one out")
    return Asked(
        limit=number(request, "limit", LIMIT, most=MOST),
        at=parse_point_in_time(given.get("at", "end"), what="at"),
        after=places_of(given["from"], what="from") if "from" in given else None,
        before=places_of(given["before"], what="before") if "before" in given else None,
    )


def around(page: Page) -> dict[str, Any]:
    """What a page says beside its records."""
    return {
        "complete": page.complete,
        "earlier": None if page.earlier is None else text_of(page.earlier),
        "later": None if page.later is None else text_of(page.later),
        "lost": lost_of(page.lost),
    }


def lost_of(lost: Iterable[Lost]) -> list[dict[str, Any]]:
    """Offsets that cannot be read, as JSON."""
    return [asdict(one) for one in lost]

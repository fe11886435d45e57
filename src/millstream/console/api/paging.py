"""Paging parameters of a request, the same for records, late rows and dead rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from millstream.console.api.request import query_int, query_text
from millstream.console.api.routes import query_parameter
from millstream.console.shared import SerialFilter
from millstream.errors import InvalidInput
from millstream.viewing.cursors import format_cursor, parse_cursor
from millstream.viewing.points_in_time import parse_point_in_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

    from millstream.kafka.clients.consuming.damaged import LostOffsets
    from millstream.viewing.file_pages import FilePages
    from millstream.viewing.pages import Page, Pages, RecordFilter
    from millstream.viewing.points_in_time import PointInTime

LIMIT, MOST = 50, 200
PARAMETERS = [
    query_parameter("at", "beginning, end (the last records), -1h, 2026-01-01T12:00 (UTC) or an "
                    "offset (@1200)", default="end"),
    query_parameter("from", "continue after a page: its `later`"),
    query_parameter("before", "the records before a page: its `earlier`"),
    query_parameter("limit", f"how many, at most {MOST}", kind="integer", default=LIMIT),
]  # fmt: skip


@dataclass(frozen=True)
class PageRequest:
    """A requested page; call it to read the page."""

    limit: int
    at: PointInTime = "end"
    after: dict[int, int] | None = None
    before: dict[int, int] | None = None

    def __call__(self, pages: Pages | FilePages, selection: RecordFilter) -> Page:
        """Read the page."""
        selection = SerialFilter(selection)
        if self.before is not None:
            return pages.before(self.before, selection, self.limit)
        if self.after is not None:
            return pages.after(self.after, selection, self.limit)
        if self.at == "end":
            return pages.before(pages.end, selection, self.limit)
        return pages.after(pages.offsets(self.at), selection, self.limit)


def page_request(request: Request) -> PageRequest:
    """The page that a request asks for.

    Raises:
        InvalidInput: a parameter is wrong, or more than one position is given.
    """
    given = {name: text for name in ("at", "from", "before") if (text := query_text(request, name))}
    if len(given) > 1:
        raise InvalidInput("a page needs one position", got=" and ".join(given), do="give only one")
    return PageRequest(
        limit=query_int(request, "limit", LIMIT, most=MOST),
        at=parse_point_in_time(given.get("at", "end"), what="at"),
        after=parse_cursor(given["from"], what="from") if "from" in given else None,
        before=parse_cursor(given["before"], what="before") if "before" in given else None,
    )


def page_to_json(page: Page) -> dict[str, Any]:
    """The members of a page's JSON besides its records."""
    return {
        "complete": page.complete,
        "earlier": None if page.earlier is None else format_cursor(page.earlier),
        "later": None if page.later is None else format_cursor(page.later),
        "lost": lost_to_json(page.lost),
    }


def lost_to_json(lost: Iterable[LostOffsets]) -> list[dict[str, Any]]:
    """Offsets that cannot be read, as JSON."""
    return [asdict(one) for one in lost]

"""Rows that left a job by the other doors: too late, or dead; a page of them at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidInput, NotFound
from millstream.jobs.kafka import cluster_of
from millstream.jobs.registry import Book
from millstream.jobs.reports.run_log import DiaryReader
from millstream.viewing.escape import harmless
from millstream.viewing.points_in_time import iso
from millstream.viewing.positions import text_of
from millstream.viewing.record_json import IN_A_LIST, body, shown

if TYPE_CHECKING:
    from millstream.engine.dead_letters import rows as dead_letters
    from millstream.engine.dead_letters.kept_rows import KeptRows
    from millstream.jobs.folders import StackPlace
    from millstream.jobs.registry import JobRow
    from millstream.kafka.records import Record
    from millstream.plan.side_outputs import SideOutput
    from millstream.viewing.kept_pages import KeptPages
    from millstream.viewing.pages import Page, Pages, Takes

Look = Callable[["Pages | KeptPages", "Takes"], "Page"]
STATES = ("waiting", "retried", "dropped")
_ENVELOPE = {"step", "reason", "watermark", "windows", "origin", "row"}
_PLACE, _EDGES, _MOST_WINDOWS = ("partition", "offset", "index"), ("start", "end"), 100


def late_rows(
    place: StackPlace, name: str, look: Look, *,
    topic: str | None = None, step: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A page of the rows that came too late; `look` says which page.

    Raises:
        NotFound: no such job, or none of its late rows go to that topic or folder.
    """
    job = _job(place, name)
    taken = _taken_by(place, job, "late")
    if topic is not None and topic not in taken.places:
        raise NotFound(f"this needs a topic that takes late rows of {name}",
                       got=", ".join(taken.places) or "none")  # fmt: skip
    chosen = topic or next(iter(taken.places), None)
    taking = _Late(step)
    page = None if chosen is None else _page(place, name, taken.places[chosen], look, taking)
    return {
        "job": name, "topic": chosen, "topics": list(taken.places), "elsewhere": taken.elsewhere,
        "rows": [_late_row(record) for record in page.records] if page else [],
        **_around(page, taking.seen, taking.strange),
    }  # fmt: skip


def dead_rows(
    place: StackPlace, name: str, look: Look, *,
    selection: dead_letters.Selection, state: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A page of the rows that no step could take, each with what became of it.

    Raises:
        NotFound: there is no such job.
        InvalidInput: there is no such state.
    """
    if state is not None and state not in STATES:
        raise InvalidInput(f"state needs one of {', '.join(STATES)}", got=repr(state[:40]))
    job = _job(place, name)
    taken = _taken_by(place, job, "dead")
    chosen = next(iter(taken.places), None)
    taking = _Dead(selection, _marks(place, job, taken, chosen), state)
    page = None if chosen is None else _page(place, name, taken.places[chosen], look, taking)
    return {
        "job": name, "topic": chosen, "elsewhere": taken.elsewhere,
        "rows": [taking.shown(record) for record in page.records] if page else [],
        **_around(page, taking.seen, taking.strange),
    }  # fmt: skip


@dataclass
class _Late:
    """Takes envelopes of late rows, of one step or of all."""

    step: str | None
    seen: int = 0
    strange: int = 0

    def takes(self, record: Record) -> bool:
        self.seen += 1
        envelope = _opened(record)
        if envelope is None:
            self.strange += 1
            return False
        return self.step is None or envelope["step"] == self.step


@dataclass
class _Dead:
    """Takes dead rows that are selected and in a state."""

    selection: dead_letters.Selection
    marks: dead_letters.Marks
    state: str | None
    seen: int = 0
    strange: int = 0

    def takes(self, record: Record) -> bool:
        from millstream.engine.dead_letters.rows import opened

        self.seen += 1
        row = opened(record)
        if row is None:
            self.strange += 1
            return False
        if self.state not in (None, self.marks.state(row.origin)):
            return False
        return self.selection.takes(row)

    def shown(self, record: Record) -> dict[str, Any]:
        from millstream.engine.dead_letters.rows import opened

        row = opened(record)
        assert row is not None
        return {
            "place": text_of({record.partition: record.offset}), "step": row.step,
            "reason": body(row.reason.encode(), "text", IN_A_LIST.value)["text"],
            "state": self.marks.state(row.origin), "record": shown(row.record),
        }  # fmt: skip


def _late_row(record: Record) -> dict[str, Any]:
    envelope = _opened(record)
    assert envelope is not None
    origin = envelope["origin"]
    return {
        "place": text_of({record.partition: record.offset}),
        "at": iso(record.timestamp),
        "step": _word(envelope["step"]),
        "reason": _word(envelope["reason"]),
        "watermark": None if envelope["watermark"] is None else _word(envelope["watermark"]),
        "windows": [{edge: _word(window[edge]) for edge in _EDGES}
                    for window in (envelope["windows"] or [])[:_MOST_WINDOWS]],
        "origin": {**{word: origin[word] for word in _PLACE}, "source": _word(origin["source"])},
        "row": body(envelope["row"].encode(errors="replace"), "auto", IN_A_LIST.value),
    }  # fmt: skip


def _word(text: str) -> str:
    return harmless(text[: IN_A_LIST.key])


def _opened(record: Record) -> dict[str, Any] | None:
    """The envelope of a late row; None where it is something else: anybody may write there."""
    try:
        found = json.loads(record.value or b"")
    except (ValueError, RecursionError):
        return None
    return found if _is_envelope(found) else None


def _is_envelope(found: Any) -> bool:
    if not isinstance(found, dict) or set(found) != _ENVELOPE:
        return False
    origin, windows = found["origin"], found["windows"] or []
    return (
        all(isinstance(found[word], str) for word in ("step", "reason", "row"))
        and isinstance(found["watermark"], str | None)
        and isinstance(origin, dict)
        and isinstance(origin.get("source"), str)
        and all(isinstance(origin.get(word), int) for word in _PLACE)
        and isinstance(windows, list)
        and all(_is_window(window) for window in windows)
    )


def _is_window(window: Any) -> bool:
    return isinstance(window, dict) and all(isinstance(window.get(edge), str) for edge in _EDGES)


def _page(
    place: StackPlace, name: str, store: str | KeptRows, look: Look, taking: Takes
) -> Page | None:
    """What `look` finds in a topic or in files; None where nothing has been written yet."""
    from millstream.viewing.kept_pages import KeptPages
    from millstream.viewing.pages import Pages

    if not isinstance(store, str):
        return look(KeptPages(store), taking) if store.folder.exists() else None
    try:
        pages = Pages(cluster_of(place, name), store)
    except NotFound:
        return None
    return look(pages, taking)


def _around(page: Page | None, scanned: int, strange: int) -> dict[str, Any]:
    earlier, later = (None, None) if page is None else (page.earlier, page.later)
    return {
        "scanned": scanned, "strange": strange, "complete": page is None or page.complete,
        "earlier": None if earlier is None else text_of(earlier),
        "later": None if later is None else text_of(later),
        "lost": [] if page is None else [asdict(one) for one in page.lost],
    }  # fmt: skip


@dataclass(frozen=True)
class _Taken:
    """What takes rows of a job: topics and folders that can be shown, and what else does.

    `marks` is where the state of dead rows is kept: "topic" or "files".
    """

    places: dict[str, str | KeptRows]
    elsewhere: list[str]
    marks: str


def _taken_by(place: StackPlace, job: JobRow, kind: SideOutput) -> _Taken:
    from millstream.engine.dead_letters.kept_rows import KeptRows
    from millstream.sources.files.files import Files

    with DiaryReader(place.job(job.name).facts).at_once() as diary:
        about = (diary.about() or {}).get(kind)
    if about is None:  # it has not run yet, or by an earlier version
        about = {"topics": [f"{job.pipeline}.dead"] if kind == "dead" else [], "elsewhere": []}
    suffix = _suffix(job)
    places: dict[str, str | KeptRows] = {f"{t}{suffix}": f"{t}{suffix}" for t in about["topics"]}
    for path, format_ in about.get("files", ()):
        files = Files(f"{path}{suffix}", format=format_)
        places[harmless(str(files.path))] = KeptRows(files, kind)
    return _Taken(places, list(about["elsewhere"]), about.get("marks", "topic"))


def _marks(place: StackPlace, job: JobRow, taken: _Taken, chosen: str | None) -> dead_letters.Marks:
    """What has been done about dead rows."""
    from millstream.engine.dead_letters.files import DeadFiles
    from millstream.engine.dead_letters.rows import Marks
    from millstream.engine.dead_letters.topic import DeadRows

    store = None if chosen is None else taken.places[chosen]
    if store is None:
        return Marks()
    if isinstance(store, str):
        return DeadRows(job.pipeline, cluster_of(place, job.name), topic=store).marks()
    if taken.marks == "files":
        return DeadFiles(store).marks()
    return DeadRows(job.pipeline, cluster_of(place, job.name), _suffix(job), kept=store).marks()


def _suffix(job: JobRow) -> str:
    from millstream.engine.recovery.rewind import suffix_of

    folder = Path(job.checkpoint)
    return suffix_of(folder) if (folder / "job").exists() else ""


def _job(place: StackPlace, name: str) -> JobRow:
    with Book(place.book, read_only=True) as book:
        return book.job(name)

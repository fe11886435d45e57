"""Late rows and dead letters of a job, one page at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidInput, NotFound
from millstream.jobs.kafka import cluster_of
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.run_log import RunLogReader
from millstream.viewing.cursors import format_cursor
from millstream.viewing.escape import harmless
from millstream.viewing.points_in_time import iso
from millstream.viewing.record_json import IN_A_LIST, body_to_json, record_to_json

if TYPE_CHECKING:
    from millstream.engine.dead_letters import rows as dead_letters
    from millstream.engine.dead_letters.kept_rows import KeptRows
    from millstream.jobs.folders import StackFolder
    from millstream.jobs.registry import JobRow
    from millstream.kafka.records import Record
    from millstream.plan.side_outputs import SideOutput
    from millstream.viewing.file_pages import FilePages
    from millstream.viewing.pages import Page, Pages, RecordFilter

Look = Callable[["Pages | FilePages", "RecordFilter"], "Page"]
STATES = ("waiting", "retried", "dropped")
_ENVELOPE = {"step", "reason", "watermark", "windows", "origin", "row"}
_ORIGIN, _EDGES, _MOST_WINDOWS = ("partition", "offset", "index"), ("start", "end"), 100


def late_rows(
    stack: StackFolder, name: str, look: Look, *,
    topic: str | None = None, step: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return a page of a job's late rows; `look` selects the page.

    Raises:
        NotFound: no such job, or its late rows do not go to that topic or folder.
    """
    job = _job(stack, name)
    destinations = _destinations_of(stack, job, "late")
    if topic is not None and topic not in destinations.stores:
        known = ", ".join(destinations.stores) or "no topic"
        raise NotFound(f"the late rows of {name} go to {known}", got=repr(topic))
    chosen = topic or next(iter(destinations.stores), None)
    selected = _LateSelection(step)
    page = (
        None if chosen is None else _page(stack, name, destinations.stores[chosen], look, selected)
    )
    return {
        "job": name, "topic": chosen, "topics": list(destinations.stores),
        "other_sinks": destinations.other_sinks,
        "rows": [_late_row(record) for record in page.records] if page else [],
        **_cursors(page, selected.seen, selected.unreadable),
    }  # fmt: skip


def dead_rows(
    stack: StackFolder, name: str, look: Look, *,
    selection: dead_letters.Selection, state: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return a page of a job's dead letters, each with its state.

    Raises:
        NotFound: there is no such job.
        InvalidInput: there is no such state.
    """
    if state is not None and state not in STATES:
        raise InvalidInput(f"state needs one of {', '.join(STATES)}", got=repr(state[:40]))
    job = _job(stack, name)
    destinations = _destinations_of(stack, job, "dead")
    chosen = next(iter(destinations.stores), None)
    selected = _DeadSelection(selection, _marks_of(stack, job, destinations, chosen), state)
    page = (
        None if chosen is None else _page(stack, name, destinations.stores[chosen], look, selected)
    )
    return {
        "job": name, "topic": chosen, "other_sinks": destinations.other_sinks,
        "rows": [selected.to_json(record) for record in page.records] if page else [],
        **_cursors(page, selected.seen, selected.unreadable),
    }  # fmt: skip


@dataclass
class _LateSelection:
    """Selects late rows of one step, or of all."""

    step: str | None
    seen: int = 0
    unreadable: int = 0

    def matches(self, record: Record) -> bool:
        self.seen += 1
        envelope = _read_envelope(record)
        if envelope is None:
            self.unreadable += 1
            return False
        return self.step is None or envelope["step"] == self.step


@dataclass
class _DeadSelection:
    """Selects dead letters by `selection` and state."""

    selection: dead_letters.Selection
    marks: dead_letters.Marks
    state: str | None
    seen: int = 0
    unreadable: int = 0

    def matches(self, record: Record) -> bool:
        from millstream.engine.dead_letters.rows import opened as read_dead_row

        self.seen += 1
        row = read_dead_row(record)
        if row is None:
            self.unreadable += 1
            return False
        if self.state not in (None, self.marks.state(row.origin)):
            return False
        return self.selection.takes(row)

    def to_json(self, record: Record) -> dict[str, Any]:
        from millstream.engine.dead_letters.rows import opened as read_dead_row

        row = read_dead_row(record)
        assert row is not None
        return {
            "position": format_cursor({record.partition: record.offset}), "step": row.step,
            "reason": body_to_json(row.reason.encode(), "text", IN_A_LIST.value)["text"],
            "state": self.marks.state(row.origin), "record": record_to_json(row.record),
        }  # fmt: skip


def _late_row(record: Record) -> dict[str, Any]:
    envelope = _read_envelope(record)
    assert envelope is not None
    origin = envelope["origin"]
    return {
        "position": format_cursor({record.partition: record.offset}),
        "at": iso(record.timestamp),
        "step": _escape(envelope["step"]),
        "reason": _escape(envelope["reason"]),
        "watermark": None if envelope["watermark"] is None else _escape(envelope["watermark"]),
        "windows": [{edge: _escape(window[edge]) for edge in _EDGES}
                    for window in (envelope["windows"] or [])[:_MOST_WINDOWS]],
        "origin": {**{word: origin[word] for word in _ORIGIN}, "source": _escape(origin["source"])},
        "row": body_to_json(envelope["row"].encode(errors="replace"), "auto", IN_A_LIST.value),
    }  # fmt: skip


def _escape(text: str) -> str:
    return harmless(text[: IN_A_LIST.key])


def _read_envelope(record: Record) -> dict[str, Any] | None:
    """Return the envelope of a late row; None if the record is not one of ours."""
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
        and all(isinstance(origin.get(word), int) for word in _ORIGIN)
        and isinstance(windows, list)
        and all(_is_window(window) for window in windows)
    )


def _is_window(window: Any) -> bool:
    return isinstance(window, dict) and all(isinstance(window.get(edge), str) for edge in _EDGES)


def _page(
    stack: StackFolder, name: str, store: str | KeptRows, look: Look, selected: RecordFilter
) -> Page | None:
    """Apply `look` to a topic or to files; return None if nothing has been written yet."""
    from millstream.viewing.file_pages import FilePages
    from millstream.viewing.pages import Pages

    if not isinstance(store, str):
        return look(FilePages(store), selected) if store.folder.exists() else None
    try:
        pages = Pages(cluster_of(stack, name), store)
    except NotFound:
        return None
    return look(pages, selected)


def _cursors(page: Page | None, scanned: int, unreadable: int) -> dict[str, Any]:
    earlier, later = (None, None) if page is None else (page.earlier, page.later)
    return {
        "scanned": scanned, "unreadable": unreadable, "complete": page is None or page.complete,
        "earlier": None if earlier is None else format_cursor(earlier),
        "later": None if later is None else format_cursor(later),
        "lost": [] if page is None else [asdict(one) for one in page.lost],
    }  # fmt: skip


@dataclass(frozen=True)
class _Destinations:
    """Where a job's late or dead rows go: topics and folders, which can be shown, and other sinks.

    `marks` is where the state of dead letters is kept: "topic" or "files".
    """

    stores: dict[str, str | KeptRows]
    other_sinks: list[str]
    marks: str


def _destinations_of(stack: StackFolder, job: JobRow, kind: SideOutput) -> _Destinations:
    from millstream.engine.dead_letters.kept_rows import KeptRows
    from millstream.sources.files.files import Files

    with RunLogReader(stack.job(job.name).run_log).at_once() as run_log:
        about = (run_log.about() or {}).get(kind)
    if about is None:  # it has not run yet, or by an earlier version
        about = {"topics": [f"{job.pipeline}.dead"] if kind == "dead" else []}
    suffix = _suffix(job)
    stores: dict[str, str | KeptRows] = {f"{t}{suffix}": f"{t}{suffix}" for t in about["topics"]}
    for path, format_ in about.get("files", ()):
        files = Files(f"{path}{suffix}", format=format_)
        stores[harmless(str(files.path))] = KeptRows(files, kind)
    others = about.get("other_sinks") or about.get("elsewhere") or []  # earlier versions
    return _Destinations(stores, list(others), about.get("marks", "topic"))


def _marks_of(
    stack: StackFolder, job: JobRow, destinations: _Destinations, chosen: str | None
) -> dead_letters.Marks:
    """Return the states of the dead letters."""
    from millstream.engine.dead_letters.files import FileDeadLetters
    from millstream.engine.dead_letters.rows import Marks
    from millstream.engine.dead_letters.topic import TopicDeadLetters

    store = None if chosen is None else destinations.stores[chosen]
    if store is None:
        return Marks()
    if isinstance(store, str):
        return TopicDeadLetters(job.pipeline, cluster_of(stack, job.name), topic=store).marks()
    if destinations.marks == "files":
        return FileDeadLetters(store).marks()
    return TopicDeadLetters(
        job.pipeline, cluster_of(stack, job.name), _suffix(job), kept=store
    ).marks()


def _suffix(job: JobRow) -> str:
    from millstream.engine.recovery.rewind import suffix_of

    folder = Path(job.checkpoint)
    return suffix_of(folder) if (folder / "job").exists() else ""


def _job(stack: StackFolder, name: str) -> JobRow:
    with JobRegistry(stack.registry, read_only=True) as registry:
        return registry.job(name)

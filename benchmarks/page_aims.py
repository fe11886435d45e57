"""The aims of the project, and whether the stored results reach them.

Each has a figure of a stored row, a first aim and a next one. A void or unmeasured cell meets
no aim.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.page_rows import commit, is_loaded, rounds_of
from benchmarks.report import right

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.report import Round

    Kept = dict[str, Any]
    Found = float | str

NOT_MEASURED, VOID = "not measured", "void"


@dataclass(frozen=True)
class Bound:
    """A lower or an upper bound of a figure."""

    least: float | None = None
    most: float | None = None

    def holds(self, figure: float) -> bool:
        """Whether a figure satisfies it."""
        return (self.least is None or figure >= self.least) and (
            self.most is None or figure <= self.most
        )

    def format(self, unit: str) -> str:
        """As text."""
        sign, bound = ("≥", self.least) if self.least is not None else ("≤", self.most)
        return f"{sign} {bound:g}{unit}"


@dataclass(frozen=True)
class Aim:
    """A figure of a row, the engine to compare with, and its bounds."""

    row: str
    work: str
    against: str
    figure: Callable[[Kept], Found]
    first: Bound | None
    then: Bound | None
    unit: str = "×"


def _times(kept: Kept, ours: str, theirs: str, figure: Callable[[Round], float]) -> Found:
    """The ratio of their figure to ours, the median over the rounds."""
    cells = kept["cells"]
    if ours not in cells or theirs not in cells:
        return NOT_MEASURED
    if not (right(cells[ours]) and right(cells[theirs])):
        return VOID
    pairs = zip(cells[ours], cells[theirs], strict=False)
    return statistics.median(figure(other) / figure(mine) for mine, other in pairs)


def _does(against: str) -> Callable[[Kept], Found]:
    """How much more Millstream processes per CPU-second."""
    return partial(_times, ours="millstream", theirs=against, figure=lambda one: one["cpu"])


def _by_duckdb(kept: Kept) -> Found:
    return _times(kept, ours="duckdb", theirs="millstream", figure=lambda one: one["cpu"])


def _batch_by(theirs: str, ours: str) -> Callable[[Kept], Found]:
    """The ratio of their time for a batch to ours."""
    return partial(_times, ours=ours, theirs=theirs, figure=lambda one: one["seconds"]["p50"])


def _slowest(percentile: str) -> Callable[[Kept], Found]:
    """The largest value of Millstream's cells."""

    def found(kept: Kept) -> Found:
        ours = [rounds for name, rounds in kept["cells"].items()
                if name.partition(",")[0] == "millstream"]  # fmt: skip
        if not ours:
            return NOT_MEASURED
        if not all(right(rounds) for rounds in ours):
            return VOID
        figures = [[one["latency_ms"].get(percentile) for one in rounds] for rounds in ours]
        if any(figure is None for cell in figures for figure in cell):
            return NOT_MEASURED
        return float(max(statistics.median(cell) for cell in figures))

    return found


def _back(kept: Kept) -> Found:
    ours = kept["cells"].get("millstream")
    if not ours:
        return NOT_MEASURED
    return statistics.median(one["back"] for one in ours) if right(ours) else VOID


def _watched(kept: Kept) -> Found:
    """The cost of readers in percent."""
    watched = f"job, {kept['settings']['READERS']} readers"
    times = _times(kept, "engine alone", watched, lambda one: one["cpu_ms"])
    return times if isinstance(times, str) else 100 * (times - 1)


def _drained(kept: Kept) -> Found:
    """Gigabytes processed."""
    return kept["settings"]["BACKLOG_MB"] / 1000 if right(kept["cells"]["millstream"]) else VOID


def _least(first: float, then: float) -> tuple[Bound, Bound]:
    return Bound(least=first), Bound(least=then)


def _most(first: float, then: float) -> tuple[Bound, Bound]:
    return Bound(most=first), Bound(most=then)


def _against(row: str, work: str, aims: dict[str, tuple[float, float]]) -> list[Aim]:
    return [Aim(row, work, name, _does(name), *_least(*pair)) for name, pair in aims.items()]


AIMS = [
    Aim("decode", "JSON to columns", "spark-heap (`from_json`)", _does("spark-heap"),
        Bound(least=1.8), None),
    Aim("decode", "JSON to columns, CPU", "duckdb", _by_duckdb, None, Bound(most=1.5)),
    *_against("tumbling", "windows of 10 s, 100 k keys", {
        "spark-heap": (1.8, 3), "spark-rocksdb": (3, 6),
        "flink-heap": (1.5, 3), "flink-rocksdb": (2.5, 6)}),
    *_against("session", "sessions, 50 k keys", {
        "spark-heap": (2.5, 6), "spark-rocksdb": (3, 8),
        "flink-heap": (2, 4), "flink-rocksdb": (5, 12)}),
    *_against("hopping", "windows of 10 s every second", {"spark-heap": (4, 10)}),
    *_against("join", "join within a second", {"spark-heap": (2, 5), "flink-heap": (1, 3)}),
    *_against("as_of", "as-of join", {"flink-heap": (1, 3)}),
    *_against("distinct", "distinct, 1 M keys", {"spark-rocksdb": (3, 8)}),
    Aim("growth", "batch of 10 k rows at 10 M open keys: time", "the same at 100 k",
        _batch_by("millstream, 10,000,000 keys", "millstream, 100,000 keys"), *_most(1.3, 1.1)),
    Aim("growth", "batch of 10 k rows at 10 M open keys: faster", "spark-rocksdb",
        _batch_by("spark-rocksdb, 10,000,000 keys", "millstream, 10,000,000 keys"),
        *_least(1.5, 4)),
    Aim("latency", "window at 2,000 records/s: p50", "–", _slowest("p50"), *_most(150, 30), " ms"),
    Aim("latency", "window at 2,000 records/s: p99", "–", _slowest("p99"), *_most(300, 100),
        " ms"),
    Aim("continuous", "record, continuous: p50", "–", _slowest("p50"), Bound(most=5), None, " ms"),
    Aim("continuous", "record, continuous: p99", "–", _slowest("p99"), None, Bound(most=30),
        " ms"),
    Aim("recovery", "after `kill -9`, first new answer: faster", "spark-heap",
        partial(_times, ours="millstream", theirs="spark-heap", figure=lambda one: one["back"]),
        Bound(least=1), None),
    Aim("recovery", "after `kill -9`, first new answer", "–", _back, None, Bound(most=5), " s"),
    Aim("readers", "100 readers of the page: more CPU", "engine alone", _watched, *_most(5, 2),
        " %"),
    Aim("backlog", "a backlog through a heap of 1 GB", "–", _drained, *_least(2, 2), " GB"),
]  # fmt: skip


def summary(found: dict[str, Kept]) -> str:
    """All aims in a table, with how many of them are met."""
    reached = [(aim, aim.figure(found[aim.row]) if aim.row in found else NOT_MEASURED)
               for aim in AIMS]  # fmt: skip
    return "\n".join([
        _count("first", [_mark(aim.first, figure) for aim, figure in reached if aim.first])
        + " " + _count("next", [_mark(aim.then, figure) for aim, figure in reached if aim.then]),
        "",
        "| row | work | against | reached | first aim | | next aim | | measured |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(aim, figure, found.get(aim.row)) for aim, figure in reached),
        "",
    ])  # fmt: skip


def _count(which: str, marks: list[str]) -> str:
    met, missed = marks.count("met"), marks.count("**not met**")
    left = len(marks) - met - missed
    return f"Of {len(marks)} {which} aims {met} are met, {missed} are not, {left} are open."


def _line(aim: Aim, figure: Found, kept: Kept | None) -> str:
    shown = figure if isinstance(figure, str) else f"{_digits(figure)}{aim.unit}"
    fields = [f"[{aim.row}](#{aim.row})", aim.work, aim.against, shown]
    for bound in (aim.first, aim.then):
        fields += ["", ""] if bound is None else [bound.format(aim.unit), _mark(bound, figure)]
    where = "" if kept is None or figure == NOT_MEASURED else f"{commit(kept)}, {rounds_of(kept)}"
    if where and kept is not None and is_loaded(kept):
        where += ", loaded machine"
    return f"| {' | '.join([*fields, where])} |"


def _digits(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def _mark(bound: Bound | None, figure: Found) -> str:
    if bound is None or isinstance(figure, str):
        return "–"
    return "met" if bound.holds(figure) else "**not met**"

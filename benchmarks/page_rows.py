"""Sections of the page: each kind of row as a table of its cells, with a plot.

A cell is named after its engine and, after a comma, its variant. A void cell stays in the table
with its reason, without figures, and is in no plot and no ratio.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.cells import bids, drained_of
from benchmarks.plots import bars, lines
from benchmarks.report import right, spread, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.report import Round

    Kept = dict[str, Any]
    Figure = Callable[[Round], float | None]
    Column = Callable[[str, list[Round]], str]

ENOUGH_ROUNDS = 5
LOADED = 2.0  # times the cores


@dataclass(frozen=True)
class Shown:
    """A measured row, with the texts of its section."""

    row: str
    kept: Kept
    settings: Mapping[str, str]
    guarantees: Mapping[str, str]
    versions: Mapping[str, str]
    pictures: Path

    @property
    def cells(self) -> dict[str, list[Round]]:
        """Its rounds by cell."""
        return dict(self.kept["cells"])

    @property
    def absent(self) -> dict[str, str]:
        """Excluded engines with the reasons."""
        return dict(self.kept.get("absent", {}))

    @property
    def right_cells(self) -> dict[str, list[Round]]:
        """The cells that are not void."""
        return {name: rounds for name, rounds in self.cells.items() if right(rounds)}

    def drawn(self, name: str, plot: str) -> str:
        """Write a plot to a file; return the Markdown that shows it."""
        self.pictures.mkdir(parents=True, exist_ok=True)
        (self.pictures / f"bench-{name}.svg").write_text(plot)
        title = plot.partition("<title>")[2].partition("</title>")[0]
        return f"![{title}](pictures/bench-{name}.svg)\n"


def drained_count(kept: Kept) -> int:
    """How many events each engine of a row has drained."""
    settings = kept["settings"]
    return drained_of(settings["EVENTS"], settings.get("kinds", ["bids"]))


def drained(shown: Shown) -> str:
    """Events per CPU-second."""
    count = drained_count(shown.kept)

    def speed(one: Round) -> float:
        return float(count / one["cpu"])

    columns = {
        "events per CPU-second": _column(speed, ",.0f"),
        "events a second": _column(lambda one: count / one["wall"], ",.0f"),
        "millstream does": _ratio(shown, lambda one: one["cpu"]),
    }
    plot = _bars(shown, "events per CPU-second, more is better", speed, ",.0f")
    return _section(shown, columns, [plot], f"{count:,} events")


def latency(shown: Shown) -> str:
    """Percentiles of a latency, by rate and partitions."""
    columns = {f"{p} ms": _column(_latency(p), ",.1f") for p in ("p50", "p95", "p99", "p99.9")}
    columns["cores"] = _column(lambda one: one["cores"], ".2f")
    columns["p50 ÷ millstream's"] = _ratio(shown, _latency("p50"))
    settings = shown.kept["settings"]
    rates = settings["RATES"] if "RATES" in settings else [settings["RATE"]]
    if len(rates) > 1:
        figures = {p: _latency(p) for p in ("p50", "p99")}
        plots = _lines(shown, "rate", "records a second", {"latency": ("ms", figures)})
    else:
        plots = [_bars(shown, "p50 in ms, less is better", _latency("p50"), ",.1f")]
    what = f"{', '.join(f'{rate:,}' for rate in rates)} records a second"
    return _section(shown, columns, plots, what, "at")


def sweep(shown: Shown) -> str:
    """Cost and latency by the interval of batches."""
    columns = {
        "CPU-s per million": _column(_cost, ",.1f"),
        "p50 ms": _column(_latency("p50"), ",.0f"),
        "p99 ms": _column(_latency("p99"), ",.0f"),
        "rows per batch": _column(lambda one: one["batch_rows"], ",.0f"),
        "CPU ÷ millstream's": _ratio(shown, _cost),
    }
    plots = _lines(shown, "batch_s", "interval of batches, seconds", {
        "cpu": ("CPU-seconds per million records", {"": _cost}),
        "latency": ("ms after the window's end", {p: _latency(p) for p in ("p50", "p99")}),
    })  # fmt: skip
    what = f"{shown.kept['settings']['RATE']:,} records a second"
    return _section(shown, columns, plots, what, "batch")


def growth(shown: Shown) -> str:
    """The time of a batch by the number of open keys."""
    columns = {
        "p50 ms": _column(_batch_ms("p50"), ",.0f"),
        "p95 ms": _column(_batch_ms("p95"), ",.0f"),
        "CPU-ms": _column(lambda one: 1000 * one["cpu"]["p50"], ",.0f"),
        "MB written": _column(lambda one: one["mean_written"] / 1e6, ".2f"),
        "p50 ÷ millstream's": _ratio(shown, _batch_ms("p50")),
    }
    plots = _lines(shown, "keys", "open keys", {"ms": ("ms a batch", {"": _batch_ms("p50")})})
    settings = shown.kept["settings"]
    what = f"{settings['BATCHES']} batches of {settings['rows']:,} rows"
    return _section(shown, columns, plots, what, "open")


def recovery(shown: Shown) -> str:
    """Seconds from a start after `kill -9` to the first new answer."""
    columns = {
        "seconds": _column(lambda one: one["back"], ".1f"),
        "seconds ÷ millstream's": _ratio(shown, lambda one: one["back"]),
        "answers repeated": _column(lambda one: one["repeated"], ",.0f"),
    }
    title = "seconds to the first new answer, less is better"
    plot = _bars(shown, title, lambda one: one["back"], ".1f")
    what = f"{bids(shown.kept['settings']['EVENTS']):,} events"
    return _section(shown, columns, [plot], what)


def readers(shown: Shown) -> str:
    """CPU of a job per thousand records, without and with readers of its page."""
    alone = next(iter(shown.cells.values()))
    base = _median(alone, lambda one: one["cpu_ms"]) or 1.0
    columns = {
        "CPU-ms for 1,000 records": _column(lambda one: one["cpu_ms"], ",.1f"),
        "by that of the engine alone": _column(lambda one: one["cpu_ms"] / base, ".3f"),
    }
    settings = shown.kept["settings"]
    what = f"{settings['RATE']:,} records a second, {settings['READERS']} readers"
    return _section(shown, columns, [], what, "run")


def backlog(shown: Shown) -> str:
    """A backlog through a small heap: time and memory."""
    columns = {
        "seconds": _column(lambda one: one["wall"], ",.1f"),
        "CPU-seconds": _column(lambda one: one["cpu"], ",.1f"),
        "most memory, MB": _column(lambda one: one["peak"]["tree"] / 1e6, ",.0f"),
        "of it the JVM": _column(lambda one: one["peak"]["java"] / 1e6, ",.0f"),
    }
    settings = shown.kept["settings"]
    return _section(
        shown, columns, [], f"{settings['BACKLOG_MB']:,} MB, a heap of {settings['heap']}"
    )


# -- figures --------------------------------------------------------------------


def _latency(percentile: str) -> Figure:
    return lambda one: one["latency_ms"].get(percentile)


def _batch_ms(percentile: str) -> Figure:
    return lambda one: 1000 * one["seconds"][percentile]


def _cost(one: Round) -> float:
    return float(one["cpu_per_million"])


def _known(rounds: list[Round], figure: Figure) -> list[float]:
    return [found for one in rounds if (found := figure(one)) is not None]


def _median(rounds: list[Round], figure: Figure) -> float | None:
    known = _known(rounds, figure)
    return statistics.median(known) if known else None


def _column(figure: Figure, form: str) -> Column:
    """The median of a figure over the rounds, with the smallest and the largest."""

    def column(_: str, rounds: list[Round]) -> str:
        known = _known(rounds, figure)
        return spread(known, form) if known else "–"

    return column


def _ratio(shown: Shown, figure: Figure) -> Column:
    """A cell's figure divided by that of the corresponding cell of Millstream, per round."""

    def column(name: str, rounds: list[Round]) -> str:
        engine, comma, rest = name.partition(", ")
        ours = shown.right_cells.get(f"millstream{comma}{rest}")
        if engine == "millstream" or ours is None:
            return ""
        pairs = zip(_known(rounds, figure), _known(ours, figure), strict=False)
        ratios = [theirs / mine for theirs, mine in pairs if mine]
        return f"{spread(ratios, '.2f')}×" if ratios else ""

    return column


# -- common to all sections -----------------------------------------------------


def _bars(shown: Shown, title: str, figure: Figure, form: str) -> str:
    figures = {name: found for name, rounds in shown.right_cells.items()
               if (found := _median(rounds, figure)) is not None}  # fmt: skip
    return shown.drawn(shown.row, bars(f"{shown.row}: {title}", figures, form))


def _lines(
    shown: Shown, by: str, x_name: str, plots: dict[str, tuple[str, dict[str, Figure]]]
) -> list[str]:
    """Plots over the variants of an engine; none without points."""
    made = []
    for kind, (y_name, figures) in plots.items():
        series: dict[str, list[tuple[float, float]]] = {}
        for name, rounds in shown.right_cells.items():
            for called, figure in figures.items():
                found = _median(rounds, figure)
                if found:
                    engine = f"{name.partition(', ')[0]} {called}".strip()
                    series.setdefault(engine, []).append((_place(by, name, rounds[0]), found))
        if series:
            title = f"{shown.row}: {y_name}, less is better"
            made.append(shown.drawn(f"{shown.row}-{kind}", lines(title, series, x_name, y_name)))
    return made


def _place(by: str, name: str, one: Round) -> float:
    if by == "keys":
        return float(name.partition(", ")[2].removesuffix(" keys").replace(",", ""))
    return float(one[by])


def _section(
    shown: Shown, columns: Mapping[str, Column], plots: list[str], what: str, apart: str = ""
) -> str:
    """A table with a line for each cell; `apart` is the title of the variants."""
    titles = ["engine", *([apart] if apart else []), "settings", "guarantee", *columns, "answer"]
    table = [_joined(titles), _joined(["---"] * len(titles))]
    for name, rounds in shown.cells.items():
        engine, _, rest = name.partition(", ")
        counts = right(rounds)
        table.append(_joined([
            engine, *([rest] if apart else []),
            shown.settings.get(engine, ""), shown.guarantees.get(engine, ""),
            *(column(name, rounds) if counts else "–" for column in columns.values()),
            verdict(rounds),
        ]))  # fmt: skip
    for engine, why in shown.absent.items():
        settings = [shown.settings.get(engine, ""), shown.guarantees.get(engine, "")]
        empty = ["–"] * (len(titles) - 4)
        table.append(_joined([engine, *settings, *empty, why]))
    return "\n".join([*plots, *table, "", _missing(shown) + origin(shown, what), ""])


def _joined(fields: list[str]) -> str:
    return f"| {' | '.join(fields)} |"


def _missing(shown: Shown) -> str:
    there = {name.partition(", ")[0] for name in shown.cells} | shown.absent.keys()
    missing = [name for name in shown.settings if name not in there]
    return f"Not measured here: {', '.join(missing)}. " if missing else ""


def origin(shown: Shown, what: str) -> str:
    """When a row was measured, at which commit, and on which machine under which load."""
    kept = shown.kept
    other = [f"{name} {number}" for name, number in kept["versions"].items()
             if number != shown.versions.get(name, number)]  # fmt: skip
    doubts = [f"**{doubt}**" for doubt in caveats(kept)]
    return "; ".join([
        what[0].upper() + what[1:], f"commit {commit(kept)}, {kept['at'][:10]}", rounds_of(kept),
        f"load {_load(kept):.1f} on {machine(kept)}", *other, *doubts,
    ]) + "."  # fmt: skip


def machine(kept: Kept) -> str:
    """The cores a row was measured on."""
    return f"{kept['machine']['cores']} cores ({kept['machine']['processor']})"


def commit(kept: Kept) -> str:
    """The measured commit, with a + if there were uncommitted changes."""
    return str(kept["commit"]) + ("+" if kept.get("changed") else "")


def rounds_of(kept: Kept) -> str:
    """The number of rounds, and the cells with fewer."""
    most = max(len(rounds) for rounds in kept["cells"].values())
    fewer = [f"{name} {len(rounds)}" for name, rounds in kept["cells"].items()
             if len(rounds) < most]  # fmt: skip
    return f"{most} round{'s' if most != 1 else ''}" + (f" ({', '.join(fewer)})" if fewer else "")


def caveats(kept: Kept) -> list[str]:
    """Caveats about the figures of a row."""
    doubts = []
    if min(len(rounds) for rounds in kept["cells"].values()) < ENOUGH_ROUNDS:
        doubts.append("fewer than five rounds")
    if is_loaded(kept):
        doubts.append("loaded machine")
    if commit(kept).endswith("+"):
        doubts.append("with uncommitted changes")
    return doubts


def is_loaded(kept: Kept) -> bool:
    """Whether the load at the end of some round was above twice the cores."""
    return _load(kept) > LOADED * float(kept["machine"]["cores"])


def _load(kept: Kept) -> float:
    """The highest load at the end of a round."""
    loads = [one.get("load", 0.0) for rounds in kept["cells"].values() for one in rounds]
    return max([*loads, 0.0]) or float(kept["machine"]["load"][0])

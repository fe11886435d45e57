"""The kept results as a page of the docs: tables with the losing cells in them, and plots.

`python -m benchmarks.page` writes `docs/benchmarks.md` and `docs/pictures/bench-*.svg` from
`benchmarks/results/*.json`; nothing on the page is written by hand.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.cells import bids
from benchmarks.report import RESULTS, right, spread, verdict

DOCS = Path(__file__).parent.parent / "docs"
ABOUT = {
    "decode": "JSON of six fields to columns",
    "q1": "map: every bid in another currency",
    "q2": "filter: the bids of a few auctions",
    "tumbling": "count and sum, windows of 10 s, 100 k keys",
    "tumbling-1k": "count and sum, windows of 10 s, 1 k keys",
    "tumbling-1m": "count and sum, windows of 10 s, 1 M keys",
    "hopping": "count, windows of 10 s every second, 10 k keys",
    "session": "count, sessions with a gap of 1 s, 50 k keys",
    "distinct": "the first row of each of 1 M keys",
    "join": "two topics, pairs at most 1 s apart, 100 k keys",
    "as_of": "bids with the price as of then, 100 k keys",
    "q5": "hot items: the most bids per window of 10 s every 2 s",
    "q7": "the highest bids of each window of 10 s",
    "q8": "persons and their auctions in the same window of 10 s",
}
SETTINGS = {
    "millstream": "exactly once, batches of about 3 s",
    "spark-heap": "Structured Streaming, heap store, 2 shuffle partitions, at least once",
    "spark-rocksdb": "the same with RocksDB, changelog checkpoints",
    "flink-heap": "Flink SQL, parallelism 2, object reuse, checkpoints every 2 s, at least once",
    "flink-rocksdb": "the same with RocksDB, incremental checkpoints",
    "duckdb": "the same bytes in memory, two threads: the limit, no stream",
}
_HEAD = """# Benchmarks

The same bytes on the same two cores, engines taking turns, start-up and a warm-up taken out; events
per CPU-second of the whole process tree, the JVM included; the median of the rounds with the
smallest and the largest. Every answer is held against DuckDB's, and a cell with a wrong answer is
void. `make bench ROW=tumbling ENGINE=spark-heap` measures a row again, `make bench-all` all of
them; this page is made by `python -m benchmarks.page` from `benchmarks/results`.
"""


def main() -> None:
    """Write the page and its plots."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    drained = {row: found[row] for row in ABOUT if row in found}
    parts = [_HEAD, _engines(drained), *(_row(row, kept) for row, kept in drained.items())]
    parts += [_latency(name, found[name]) for name in ("latency", "continuous") if name in found]
    if "growth" in found:
        parts.append(_growth(found["growth"]))
    (DOCS / "benchmarks.md").write_text("\n".join(parts))
    print(f"wrote docs/benchmarks.md with {len(parts) - 2} rows")


def _engines(drained: dict[str, Any]) -> str:
    there = {engine for kept in drained.values() for engine in kept["cells"]}
    lines = [f"| {name} | {about} |" for name, about in SETTINGS.items() if name in there]
    return "\n".join(["| engine | settings |", "|---|---|", *lines, ""])


def _row(row: str, kept: dict[str, Any]) -> str:
    cells, count = kept["cells"], bids(kept["settings"]["EVENTS"])
    speeds = {name: [count / one["cpu"] for one in rounds] for name, rounds in cells.items()}
    lines = [
        f"| {name} | {spread(speeds[name], ',.0f')} | {_ratio(cells, name)} | {verdict(rounds)} |"
        for name, rounds in cells.items()
    ]
    _plot(row, {name: statistics.median(speeds[name]) for name, rounds in cells.items()
                if right(rounds)})  # fmt: skip
    return "\n".join([
        f"## {row}: {ABOUT[row]}", "", f"![events per CPU-second](pictures/bench-{row}.svg)", "",
        "| engine | events per CPU-second | millstream does | answer |", "|---|---|---|---|",
        *lines, "", _origin(kept, f"{count:,} events"), "",
    ])  # fmt: skip


def _ratio(cells: dict[str, Any], name: str) -> str:
    ours, theirs = cells.get("millstream", []), cells[name]
    if name == "millstream" or not ours or not (right(ours) and right(theirs)):
        return ""
    pairs = zip(ours, theirs, strict=False)
    return spread([one["cpu"] / mine["cpu"] for mine, one in pairs], ".2f") + "×"


def _latency(row: str, kept: dict[str, Any]) -> str:
    lines = []
    for name, (one, *_) in kept["cells"].items():
        figures = one["latency_ms"]
        shown = " | ".join(f"{figures[p]:,.1f}" for p in ("p50", "p95", "p99"))
        lines.append(f"| {name} | {shown} | {verdict([one])} |")
    about = {"latency": "a window, Kafka to Kafka, after its end (ms)",
             "continuous": "a record, Kafka to Kafka, after its sending (ms)"}[row]  # fmt: skip
    rate = f"{kept['settings']['RATE']:,} records a second"
    return "\n".join([f"## {row}: {about}", "", "| engine | p50 | p95 | p99 | answer |",
                      "|---|---|---|---|---|", *lines, "", _origin(kept, rate), ""])  # fmt: skip


def _growth(kept: dict[str, Any]) -> str:
    lines = [
        f"| {name} | {one['seconds'] * 1000:,.0f} | {one['cpu'] * 1000:,.0f} | {verdict([one])} |"
        for name, (one, *_) in kept["cells"].items()
    ]
    return "\n".join(["## growth: a batch of 10 k rows with many keys open", "",
                      "| engine | ms | CPU-ms | answer |", "|---|---|---|---|", *lines, "",
                      _origin(kept, f"{kept['settings']['BATCHES']} batches"), ""])  # fmt: skip


def _origin(kept: dict[str, Any], what: str) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in kept["versions"].items())
    rounds = kept["settings"].get("ROUNDS", 1)
    machine = kept["machine"]
    return (
        f"{what}; rounds: {rounds}; commit {kept['commit']}, {kept['at'][:10]}; "
        f"load {machine['load'][0]:.1f} on {machine['cores']} cores; {versions}"
    )


def _plot(row: str, speeds: dict[str, float]) -> None:
    """Bars, drawn by hand: a label, a bar, its figure."""
    longest = max(speeds.values(), default=1.0)
    bars = []
    for place, (name, speed) in enumerate(speeds.items()):
        top, width = 8 + 30 * place, 380 * speed / longest
        ours = "#1f6f54" if name == "millstream" else "#8a97a6"
        bars.append(
            f'<text x="118" y="{top + 15}" text-anchor="end">{name}</text>'
            f'<rect x="126" y="{top}" width="{width:.1f}" height="20" rx="2" fill="{ours}"/>'
            f'<text x="{132 + width:.1f}" y="{top + 15}">{speed:,.0f}</text>'
        )
    height = 12 + 30 * len(speeds)
    folder = DOCS / "pictures"
    folder.mkdir(exist_ok=True)
    (folder / f"bench-{row}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#5b6673">'
        f"<title>{row}: events per CPU-second</title>{''.join(bars)}</svg>\n"
    )


if __name__ == "__main__":
    main()

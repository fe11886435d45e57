"""Writes the stored results as a page of the docs: tables, also of lost rows, and plots.

`python -m benchmarks.page` writes `docs/benchmarks.md` and `docs/pictures/bench-*.svg` from
`benchmarks/results/*.json`; all figures are generated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import page_rows as rows
from benchmarks.page_aims import summary
from benchmarks.page_before import beside
from benchmarks.report import RESULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Kept = dict[str, Any]

DOCS = Path(__file__).parent.parent / "docs"
SETTINGS = {
    "millstream": "on Spark (the default), batches of about 3 s",
    "millstream-driver": 'the same with `engine="driver"`: one process, one core, no Java',
    "spark-heap": "Structured Streaming, heap store, 2 shuffle partitions",
    "spark-rocksdb": "the same with RocksDB, changelog checkpoints",
    "flink-heap": "Flink SQL, parallelism 2, object reuse, checkpoints every 2 s",
    "flink-rocksdb": "the same with RocksDB, incremental checkpoints",
    "duckdb": "the same bytes in memory, two threads: the limit, no stream",
    "bytewax": "orjson, no cycle collector, two processes without state and one with it, "
    "no recovery store, one epoch, a frozen clock; in a join windows stay open for 60 s",
    "quix": "one process, no cycle collector, RocksDB, no changelog topics, keyed through a "
    "separate topic, windows closed per partition, commits every 5 s",
    "pathway": "two threads, static mode (it stops at the end of the topic) in steps of 3 s, "
    "windows by exactly_once_behavior and one reader, no persistence",
}
GUARANTEES = {
    "millstream": "exactly once",
    "millstream-driver": "exactly once",
    "spark-heap": "at least once",
    "spark-rocksdb": "at least once",
    "flink-heap": "at least once",
    "flink-rocksdb": "at least once",
    "duckdb": "none, a batch",
    "loop": "at least once",
    "bytewax": "at least once",
    "quix": "at least once",
    "pathway": "at least once",
}
_DECODE = {
    "millstream": "its own decoder, in Spark's tasks",
    "spark-heap": "`from_json`",
    "flink-heap": "Flink SQL's JSON format, parallelism 2, one window over all",
    "duckdb": SETTINGS["duckdb"],
}
_PACED = {
    "millstream": '`latency="0 seconds"`: a batch starts as soon as there is input',
    "millstream-driver": 'the same with `engine="driver"`',
    "spark-heap": "heap store, 2 shuffle partitions, batch after batch without a pause",
    "spark-rocksdb": "the same with RocksDB, changelog checkpoints",
}
_CONTINUOUS = {
    "loop": "a consumer and a producer in Python (confluent-kafka), `linger.ms` 0",
    "millstream": '`mode="continuous"`, without Spark, as the SQL is simple',
}
_SWEEP = {
    "millstream": "`latency=` as given: how long a row may wait for more rows",
    "spark-heap": "heap store, 2 shuffle partitions, `processingTime` as given",
}
_GROWTH = {
    "millstream": "a count per key in an open window, every change emitted",
    "spark-rocksdb": "a count per key without a window and without an output",
}
_READERS = {
    "engine alone": "`millstream run` alone",
    "job": "a supervised job, with run log, page and metrics",
}


@dataclass(frozen=True)
class Row:
    """What a row measures, how it is shown, and the settings of its engines."""

    about: str
    show: Callable[[rows.Shown], str] = rows.drained
    settings: Mapping[str, str] = field(default_factory=lambda: SETTINGS)
    guarantees: Mapping[str, str] = field(default_factory=lambda: GUARANTEES)


def _without(*engines: str) -> dict[str, str]:
    return {name: about for name, about in SETTINGS.items() if name not in engines}


_STREAMS = _without("duckdb")
_AT_LEAST_ONCE = dict.fromkeys(_CONTINUOUS, "at least once")
ROWS = {
    "decode": Row("JSON of six fields to columns, each of which is summed. There is no state and "
                  "only the totals are reported: each engine is listed once, without a guarantee.",
                  settings=_DECODE, guarantees=dict.fromkeys(_DECODE, "–")),
    "q1": Row("Map: every bid in another currency.", settings=_STREAMS),
    "q2": Row("Filter: the bids of a few auctions.", settings=_STREAMS),
    "tumbling": Row("Count and sum, windows of 10 s, 100 k keys."),
    "tumbling-1k": Row("Count and sum, windows of 10 s, 1 k keys."),
    "tumbling-1m": Row("Count and sum, windows of 10 s, 1 M keys."),
    "hopping": Row("Count, windows of 10 s every second, 10 k keys.", settings=_STREAMS),
    "session": Row("Count, sessions with a gap of 1 s, 50 k keys.", settings=_STREAMS),
    "distinct": Row("The first row of each of 1 M keys.", settings=_STREAMS),
    "join": Row("Two topics, pairs at most 1 s apart, 100 k keys.", settings=_STREAMS),
    "as_of": Row("Bids with the price at their event time, 100 k keys. Spark has no such join.",
                 settings=_without("duckdb", "spark-heap", "spark-rocksdb")),
    "q5": Row("Hot items: the most bids per window of 10 s every 2 s.", settings=_STREAMS),
    "q7": Row("The highest bids of each window of 10 s.", settings=_STREAMS),
    "q8": Row("Persons and their auctions in the same window of 10 s.", settings=_STREAMS),
    "latency": Row("A window of 100 ms, Kafka to Kafka: from its end until a reader of committed "
                   "records has its row.", rows.latency, _PACED),
    "latency-rates": Row("The same at several rates.", rows.latency, _PACED),
    "continuous": Row("A stateless step, Kafka to Kafka: from the scheduled send time of a record "
                      "until a reader has its row.", rows.latency, _CONTINUOUS,
                      _AT_LEAST_ONCE),
    "continuous-rates": Row("The same at several rates.", rows.latency, _CONTINUOUS,
                            _AT_LEAST_ONCE),
    "sweep": Row("Batches at several intervals over a steady feed, windows of a second, 1,000 "
                 "keys: Spark's trigger, Millstream's `latency=`.", rows.sweep, _SWEEP),
    "growth": Row("A batch of 10 k rows with many keys open.", rows.growth, _GROWTH,
                  {"millstream": "exactly once", "spark-rocksdb": "none, no output"}),
    "recovery": Row("All processes of an engine are killed at peak load, during a large Spark "
                    "batch, and restarted, including the JVM: time until the first new result.",
                    rows.recovery, _PACED),
    "backlog": Row("A backlog larger than the driver's heap.", rows.backlog,
                   {"millstream": "batches of about 3 s"}),
    "readers": Row("What readers of the page cost a job: CPU of the job's own processes.",
                   rows.readers, _READERS, dict.fromkeys(_READERS, "exactly once")),
}  # fmt: skip
_HEAD = """# Benchmarks

Throughput per CPU-second and latency of Millstream and other engines on the same machine,
including the rows that Millstream loses.

## Method

- **Same input.** A seeded generator (Nexmark's persons, auctions and bids as JSON) fills topics
  of a local Kafka broker. Every engine reads the same topic and, unless its row says otherwise,
  writes its results to a topic. DuckDB is not a stream processor: it reads the same bytes from
  memory and serves as an upper bound.
- **Throughput** is events per CPU-second of the engine's whole process tree (Python, JVM, workers)
  while it drains a full topic. The broker, start-up and a warm-up run are not counted. Engines
  take turns, and ratios are computed within a round: “millstream does 2×” means twice the events
  for the same CPU.
- **Latency** is measured as an open loop: records are sent on a schedule whether or not the engine
  keeps up, and latency counts from the scheduled time (for a window: from its end). A cell whose
  feed fell more than a second behind its schedule is void.
- **Every result is checked** against DuckDB's, row by row. A cell with a wrong, missing or
  duplicated result is VOID: the table gives the reason instead of the figures. Flink is given the
  end of its topic and closes all windows there; the other engines leave the last windows open, so
  Flink has more results to check. For engines that promise at least once, results repeated after
  a crash are counted but not treated as wrong.
- **Guarantees differ** and are listed for each engine: exactly once costs more than at least once.
- **Memory.** Flink's heap is Java's default, a quarter of 24 GB. Spark's was 1 GB in rows measured
  before commit 981c9df and is 4 GB since, because q5 does not fit into 1 GB. Other rows gained
  nothing from it (tumbling: 25.7 CPU-seconds with 4 GB, 22.4–24.3 with 1 GB).
- Figures are medians over the rounds, with (smallest–largest). A row is marked if it has **fewer
  than five rounds**, if the machine was **loaded** (a load above twice its cores at the end of a
  round, including the measured work), or if the measured code is not in a commit.

`make bench ROW=tumbling ENGINE=spark-heap` measures a row again ([how](how-to/bench.md)),
`make bench-all` measures all of them. `python -m benchmarks.page` generates this page from
`benchmarks/results`.
"""


def main(results: Path = RESULTS, docs: Path = DOCS) -> None:
    """Write the page and its plots."""
    found = {row: json.loads(path.read_text()) for row in ROWS
             if (path := results / f"{row}.json").exists()}  # fmt: skip
    (docs / "benchmarks.md").write_text(page(found, docs / "pictures"))
    print(f"wrote {docs.name}/benchmarks.md: {len(found)} of {len(ROWS)} rows are measured")


def page(found: dict[str, Kept], pictures: Path) -> str:
    """The page of these results; plots are written to a folder."""
    newest = max(found.values(), key=lambda kept: str(kept["at"]), default=None)
    versions = newest["versions"] if newest else {}
    parts = [_HEAD, _machines(found, versions), "## Aims\n", summary(found), _not_measured(found)]
    parts += [beside(found), "## Rows\n"]
    for name, row in ROWS.items():
        parts.append(f"### {name}\n\n{row.about}\n")
        if name in found:
            parts.append(row.show(rows.Shown(name, found[name], row.settings, row.guarantees,
                                             versions, pictures)))  # fmt: skip
        else:
            parts.append(f"**Not measured yet**: `make bench ROW={name}`.\n")
    return "\n".join(parts)


def _machines(found: dict[str, Kept], versions: dict[str, str]) -> str:
    if not found:
        return "Nothing has been measured yet.\n"
    kinds = sorted({rows.machine(kept) for kept in found.values()})
    where = (f"The machine: {kinds[0]}." if len(kinds) == 1
             else f"The machines: {', '.join(kinds)}; each row names its own.")  # fmt: skip
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    return f"{where} Versions, unless a row names another: {listed}.\n"


def _not_measured(found: dict[str, Kept]) -> str:
    missing = [f"[{name}](#{name})" for name in ROWS if name not in found]
    text = f"Rows that are not measured yet: {', '.join(missing)}.\n" if missing else ""
    commits = {rows.commit(kept) for kept in found.values()}
    if len(commits) > 1:
        text += f"\nThe rows were measured at {len(commits)} commits; each names its own.\n"
    return text


if __name__ == "__main__":
    main()

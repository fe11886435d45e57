"""The page of results, from made-up and missing results."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from benchmarks.__main__ import COMPARED
from benchmarks.page import GUARANTEES, ROWS, SETTINGS, main, page
from benchmarks.page_aims import AIMS
from benchmarks.page_before import beside
from benchmarks.processes import ENGINES
from benchmarks.report import RESULTS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

Round = dict[str, Any]
GOOD = {"check": {"checked": 9, "faults": {"wrong": 0}}, "load": 1.0}
BAD = {"check": {"checked": 9, "faults": {"wrong": 3}}, "load": 1.0}
PERCENTILES = {"p50": 10.0, "p95": 20.0, "p99": 40.0, "p99.9": 80.0}


def drained(cpu: float, **more: Any) -> Round:
    return {**GOOD, "cpu": cpu, "wall": cpu, **more}


def paced(p50: float, **more: Any) -> Round:
    return {**GOOD, "latency_ms": {**PERCENTILES, "p50": p50}, "cores": 0.5,
            "cpu_per_million": 2 * p50, "batch_rows": 400, **more}  # fmt: skip


def batch(seconds: float) -> Round:
    return {**GOOD, "seconds": {"p50": seconds, "p95": seconds}, "cpu": {"p50": seconds},
            "mean_written": 1e6}  # fmt: skip


def kept(cells: dict[str, list[Round]], rounds: int = 5, **more: Any) -> dict[str, Any]:
    return {
        "at": "2026-01-02T03:04:05Z",
        "commit": "abc1234",
        "machine": {"cores": 2, "load": [1.0, 1.0, 1.0], "processor": "A processor"},
        "versions": {"python": "3.11.7", "pyspark": "4.2.0"},
        "settings": {"EVENTS": 50_000},
        "cells": {name: found * (rounds // len(found)) for name, found in cells.items()},
        **more,
    }


TUMBLING = kept({"millstream": [drained(1.0)], "spark-heap": [drained(2.5)]})
EVERYTHING = {
    **dict.fromkeys(ROWS, TUMBLING),
    "latency": kept({"millstream, 2,000/s, 1 partition": [paced(30.0)],
                     "spark-heap, 2,000/s, 1 partition": [paced(300.0)]},
                    settings={"RATES": [2000]}),
    "latency-rates": kept({f"millstream, {rate:,}/s, 4 partitions": [paced(9.0, rate=rate)]
                           for rate in (1_000, 10_000)}, settings={"RATES": [1_000, 10_000]}),
    "continuous": kept({"loop, 1 partition": [paced(2.0)], "millstream, 1 partition": [paced(4.0)]},
                       settings={"RATE": 1000}),
    "continuous-rates": kept({"loop, 1,000/s, 4 partitions": [paced(2.0, rate=1000)]},
                             settings={"RATES": [1000]}),
    "sweep": kept({f"{name}, {length:g} s": [paced(length, batch_s=length)]
                   for length in (0.1, 10.0) for name in ("millstream", "spark-heap")},
                  settings={"RATE": 20_000}),
    "growth": kept({"millstream, 100,000 keys": [batch(0.1)],
                    "millstream, 10,000,000 keys": [batch(0.12)],
                    "spark-rocksdb, 10,000,000 keys": [batch(0.3)]}, rounds=1,
                   settings={"BATCHES": 100, "rows": 10_000}),
    "recovery": kept({"millstream": [{**GOOD, "back": 8.0, "repeated": 0}],
                      "spark-heap": [{**GOOD, "back": 7.0, "repeated": 5}]}),
    "backlog": kept({"millstream": [drained(9.0, peak={"tree": 1e9, "java": 9e8})]}, rounds=1,
                    settings={"BACKLOG_MB": 2000, "heap": "1g"}),
    "readers": kept({"engine alone": [{**GOOD, "cpu_ms": 100.0}],
                     "job, 100 readers": [{**GOOD, "cpu_ms": 103.0}]},
                    settings={"RATE": 2000, "READERS": 100}),
}  # fmt: skip


def section(text: str, row: str) -> str:
    return text.partition(f"### {row}\n")[2].partition("\n### ")[0]


def line(text: str, begins: str) -> str:
    return next(one for one in text.splitlines() if one.startswith(f"| {begins} |"))


def medians(text: str) -> str:
    return re.sub(r" \([^()]*–[^()]*\)", "", text)


def aim(text: str, work: str, against: str) -> str:
    return next(one for one in text.splitlines() if f"| {work} | {against} |" in one)


def test_every_row_that_can_be_measured_is_on_the_page() -> None:
    assert set(ROWS) == set(COMPARED)
    assert {aim.row for aim in AIMS} <= set(ROWS)


def test_every_engine_has_its_settings_and_what_it_promises() -> None:
    assert set(ENGINES) <= set(SETTINGS)
    assert set(ENGINES) <= set(GUARANTEES)


def test_a_row_has_settings_guarantee_median_range_ratio_and_verdict(tmp_path: Path) -> None:
    rounds = [drained(cpu, wall=cpu / 2) for cpu in (1.0, 2.0, 4.0, 2.0, 2.0)]
    theirs = [drained(cpu) for cpu in (3.0, 6.0, 12.0, 6.0, 4.0)]
    text = page({"tumbling": kept({"millstream": rounds, "spark-heap": theirs})}, tmp_path)
    tumbling = section(text, "tumbling")

    assert line(tumbling, "millstream") == (
        "| millstream | on Spark (the default), batches of about 3 s | exactly once "
        "| 23,000 (11,500–46,000) | 46,000 (23,000–92,000) |  | right (9 checked) |"
    )
    assert (
        "| at least once | 7,667 (3,833–15,333) | 7,667 (3,833–15,333) | 3.00 (2.00–3.00)× |"
        in line(tumbling, "spark-heap")
    )
    assert "Not measured here: millstream-driver, spark-rocksdb, flink-heap" in tumbling
    assert "fewer than five" not in tumbling


def test_a_void_cell_keeps_its_place_without_figures_ratio_or_bar(tmp_path: Path) -> None:
    cells = {"millstream": [drained(1.0)], "spark-heap": [{**drained(2.0), **BAD}]}
    text = page({"tumbling": kept(cells)}, tmp_path)

    void = line(section(text, "tumbling"), "spark-heap")
    assert "| – | – | – | VOID: wrong 3" in void
    assert "spark-heap" not in (tmp_path / "bench-tumbling.svg").read_text()
    assert "| void | ≥ 1.8× | – |" in aim(text, "windows of 10 s, 100 k keys", "spark-heap")


def test_few_rounds_a_loaded_machine_and_uncommitted_changes_are_noted(tmp_path: Path) -> None:
    loaded = kept({"millstream": [drained(1.0, load=4.5)]}, rounds=2, changed=True)
    text = page({"tumbling": loaded, "q1": TUMBLING}, tmp_path)

    shown = section(text, "tumbling")
    assert "commit abc1234+, 2026-01-02; 2 rounds; load 4.5 on 2 cores" in shown
    for doubt in ("fewer than five rounds", "loaded machine", "with uncommitted changes"):
        assert f"**{doubt}**" in shown
    assert "**" not in section(text, "q1")
    assert "measured at 2 commits" in text


def test_rows_of_different_machines_name_their_own(tmp_path: Path) -> None:
    other = {**TUMBLING, "machine": {**TUMBLING["machine"], "processor": "Another one"}}
    text = page({"tumbling": TUMBLING, "q1": other}, tmp_path)

    assert "The machines: 2 cores (A processor), 2 cores (Another one); each row" in text
    assert "on 2 cores (A processor)" in section(text, "tumbling")
    assert "on 2 cores (Another one)" in section(text, "q1")
    assert "The machine: 2 cores (A processor)." in page({"tumbling": TUMBLING}, tmp_path)


def test_rows_without_results_are_named_as_not_measured(tmp_path: Path) -> None:
    text = page({"tumbling": TUMBLING}, tmp_path)

    assert "**Not measured yet**: `make bench ROW=sweep`." in section(text, "sweep")
    assert "not measured yet: [decode](#decode), [q1](#q1)" in text
    assert "| not measured | ≥ 1.8× | – |" in aim(
        text, "JSON to columns", "spark-heap (`from_json`)"
    )


def test_aims_are_met_or_not_by_the_results(tmp_path: Path) -> None:
    text = page(EVERYTHING, tmp_path)

    assert "| 2.5× | ≥ 1.8× | met | ≥ 3× | **not met** |" in aim(
        text, "windows of 10 s, 100 k keys", "spark-heap"
    )
    assert "| 1.2× | ≤ 1.3× | met | ≤ 1.1× | **not met** |" in text
    assert "| 30 ms | ≤ 150 ms | met | ≤ 30 ms | met |" in text
    assert "| 0.875× | ≥ 1× | **not met** |  |  |" in text
    assert "| 3 % | ≤ 5 % | met | ≤ 2 % | **not met** |" in text
    assert "| 2 GB | ≥ 2 GB | met |" in text


def test_latency_and_sweep_show_how_their_cells_differ(tmp_path: Path) -> None:
    text = page(EVERYTHING, tmp_path)

    theirs = line(section(text, "latency"), "spark-heap | 2,000/s, 1 partition")
    assert "| 300.0 | 20.0 | 40.0 | 80.0 | 0.50 | 10.00× |" in medians(theirs)
    assert "| 0.50× |" in medians(line(section(text, "continuous"), "loop | 1 partition"))
    ours = line(section(text, "sweep"), "millstream | 10 s")
    assert "| 20.0 | 10 | 40 | 400 |" in medians(ours)


def test_versions_that_differ_from_the_newest_are_shown_at_their_row(tmp_path: Path) -> None:
    older = kept({"millstream": [drained(1.0)]}, at="2025-01-01T00:00:00Z",
                 versions={"python": "3.11.7", "pyspark": "4.1.0"})  # fmt: skip
    text = page({"tumbling": TUMBLING, "q1": older}, tmp_path)

    assert "pyspark 4.1.0" in section(text, "q1")
    assert "pyspark" not in section(text, "tumbling")


def test_the_plots_are_well_formed_and_all_linked_plots_exist(tmp_path: Path) -> None:
    text = page(EVERYTHING, tmp_path)

    shown = {one.partition(")")[0] for one in text.split("](pictures/")[1:]}
    assert shown == {file.name for file in tmp_path.iterdir()}
    assert {"bench-latency-rates-latency.svg", "bench-sweep-cpu.svg"} <= shown
    for file in tmp_path.iterdir():
        drawn = ElementTree.fromstring(file.read_text())
        assert drawn.findtext("{http://www.w3.org/2000/svg}title")


def test_the_kept_results_make_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(RESULTS, tmp_path)

    text = (tmp_path / "benchmarks.md").read_text()
    measured = [file.stem for file in RESULTS.glob("*.json") if file.stem in ROWS]
    assert f"{len(measured)} of {len(ROWS)} rows" in capsys.readouterr().out
    for row in measured:
        at = json.loads((RESULTS / f"{row}.json").read_text())["commit"]
        assert f"commit {at}" in section(text, row)


def beside_earlier(wall: float) -> str:
    cells = {"millstream": [drained(1.0)], "flink-heap": [{**drained(1.0), "wall": wall}]}
    found = kept(cells, settings={"EVENTS": 1_000_000})
    return next(line for line in beside({"tumbling": found}).splitlines() if "flink" in line)


def test_a_peer_far_from_its_earlier_figures_is_explained() -> None:
    near, far = beside_earlier(920_000 / 140_000), beside_earlier(920_000 / 200_000)

    assert near.endswith("| 132,000 | 140,000 | within a fifth |")
    assert "| 132,000 | 200,000 | measured cold there" in far


def test_a_void_or_missing_peer_has_no_comparison_with_earlier_figures() -> None:
    assert beside({"tumbling": TUMBLING}) == ""
    assert beside({"tumbling": kept({"flink-heap": [{**drained(1.0), **BAD}]})}) == ""

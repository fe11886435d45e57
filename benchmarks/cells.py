"""Cells: one row of work on one engine, each answer checked, kept as JSON as they come.

Engines take turns, so that a noisy machine disturbs all of them; start-up and a warm-up
run are outside the measurement; figures are events per CPU-second of the whole process
tree, and ratios within one run.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.nexmark import Load, fill
from benchmarks.oracle import check_windows, duckdb_decode
from millstream.testing import broker

EVENTS = int(os.environ.get("EVENTS", "2000000"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
WARM = 300_000
RESULTS = Path(__file__).parent / "results"
ENGINES = ("millstream", "spark-heap", "spark-rocksdb", "duckdb")

Engine = Callable[[str, dict[str, Any]], dict[str, Any]]


def tumbling(engines: tuple[str, ...]) -> None:
    """Count and sum per key (100 k keys) in windows of 10 s, topic to topic."""
    chosen = [name for name in engines if name != "duckdb"]
    with broker() as running:
        topic, warm = _filled(running.address)
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
        for _ in range(ROUNDS):
            for name in chosen:
                out = f"out-{uuid.uuid4().hex[:8]}"
                told = {"topic": topic, "warm": warm, "out": out, "window": "10 seconds",
                        "delay": "5 seconds", "batch": "3 seconds", "rows": 500_000}  # fmt: skip
                figures = _run(name, "tumbling", running.address, told)
                figures["check"] = check_windows(
                    running.address, topic, out, window_seconds=10, delay_seconds=5
                )
                rounds[name].append(figures)
        _report("tumbling", rounds, EVENTS * 46 // 50)


def decode(engines: tuple[str, ...]) -> None:
    """A topic's JSON records of six fields to columns."""
    chosen = [name for name in engines if name != "spark-rocksdb"]
    with broker() as running:
        topic, warm = _filled(running.address)
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
        for _ in range(ROUNDS):
            for name in chosen:
                if name == "duckdb":
                    rounds[name].append(duckdb_decode(running.address, topic))
                else:
                    told = {"topic": topic, "warm": warm}
                    rounds[name].append(_run(name, "decode", running.address, told))
        _report("decode", rounds, EVENTS * 46 // 50)


def _filled(address: str) -> tuple[str, str]:
    topic, rate = fill(address, Load(EVENTS))
    warm, _ = fill(address, Load(WARM))
    print(f"generated {EVENTS * 46 // 50:,} bids into Kafka at {rate:,.0f} a second", flush=True)
    return topic, warm


def _run(engine: str, work: str, address: str, told: dict[str, Any]) -> dict[str, Any]:
    module, _, store = engine.partition("-")
    if store:
        told = {**told, "store": store}
    command = [sys.executable, "-m", f"benchmarks.engines.{module}_engine", work, address,
               json.dumps(told)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{engine} failed at {work}:\n{done.stderr[-3000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def _report(row: str, rounds: dict[str, list[dict[str, Any]]], events: int) -> None:
    base = [events / figures["cpu"] for figures in rounds.get("millstream", [])]
    print(f"\n{row}: {events:,} events, {ROUNDS} rounds, median (smallest–largest)")
    for name, figures in rounds.items():
        per_cpu = [events / one["cpu"] for one in figures]
        per_second = [events / one["wall"] for one in figures]
        ratio = ""
        if base and name != "millstream":
            ratios = [ours / theirs for ours, theirs in zip(base, per_cpu, strict=True)]
            ratio = f"   millstream is {_spread(ratios, '.2f')}× per CPU-second"
        checks = {key: max(one["check"][key] for one in figures) for key in ("missing", "twice", "wrong")} if "check" in figures[0] else {}  # fmt: skip  # noqa: E501
        void = "   VOID" if any(checks.values()) else ""
        print(f"  {name:14} {_spread(per_cpu, ',.0f')} events per CPU-second,"
              f" {statistics.median(per_second):,.0f} a second{ratio}{void}  {checks or ''}")  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    record = {"row": row, "events": events, "rounds": rounds, "at": time.time(),
              "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
              "commit": _commit()}  # fmt: skip
    (RESULTS / f"{row}.json").write_text(json.dumps(record, indent=1) + "\n")


def _spread(figures: list[float], form: str) -> str:
    middle = format(statistics.median(figures), form)
    return f"{middle} ({format(min(figures), form)}–{format(max(figures), form)})"


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                          check=False)  # fmt: skip
    return done.stdout.strip()

"""The results of a row: printed, and stored as JSON with everything needed to judge them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers import VERSIONS

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("pyspark", "pyarrow", "polars", "numpy", "confluent-kafka", "duckdb")

Round = dict[str, Any]


def faults(figures: Round) -> dict[str, int]:
    """The faults of a cell by name; empty for a right answer."""
    return {name: count for name, count in figures["check"]["faults"].items() if count}


def verdict(rounds: list[Round]) -> str:
    """VOID with the reason, if any round of a cell gave a wrong answer or checked nothing."""
    wrong = [f"{name} {count:,}" for one in rounds for name, count in faults(one).items()]
    if wrong:
        return f"VOID: {', '.join(wrong)}"
    checked = min(one["check"]["checked"] for one in rounds)
    return f"right ({checked:,} checked)" if checked else "VOID: nothing to check"


def right(rounds: list[Round]) -> bool:
    """Whether a cell is not void."""
    return verdict(rounds).startswith("right")


def spread(figures: list[float], form: str) -> str:
    """The median with the smallest and the largest, if there are several."""
    middle = format(statistics.median(figures), form)
    if len(figures) == 1:
        return middle
    return f"{middle} ({format(min(figures), form)}–{format(max(figures), form)})"


def percentiles(figures: list[float], *wanted: float) -> dict[str, float]:
    """These percentiles, to a tenth, by nearest rank: `{"p50": …, "p99.9": …}`."""
    ordered = sorted(figures)
    ranks = {p: -(-round(p * 10) * len(ordered) // 1000) for p in wanted}
    return {f"p{p}": ordered[max(0, rank - 1)] for p, rank in ranks.items()}


def keep(
    row: str,
    settings: dict[str, Any],
    cells: dict[str, list[Round]],
    absent: dict[str, str] | None = None,
) -> bool:
    """Store a row's results; return whether every cell is right."""
    RESULTS.mkdir(exist_ok=True)
    record = {
        "row": row,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit(),
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
            "system": platform.platform(),
            "processor": _processor(),
        },
        "versions": {"python": platform.python_version(), **VERSIONS}
        | {name: version(name) for name in PACKAGES},
        "settings": settings,
        "verdicts": {name: verdict(rounds) for name, rounds in cells.items()},
        "cells": cells,
        "absent": absent or {},
    }
    path = RESULTS / f"{row}.json"
    path.write_text(json.dumps(record, indent=1, default=str) + "\n")
    load = " ".join(f"{figure:.1f}" for figure in os.getloadavg())
    print(f"  load {load} on {os.cpu_count()} cores; kept in benchmarks/results/{path.name}")
    return all(right(rounds) for rounds in cells.values())


def commit() -> str:
    """The measured commit, with a + if there are uncommitted changes."""
    changed = _git("status", "--porcelain", "--", "src", "benchmarks/*.py", "benchmarks/engines")
    return _git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def is_kept(row: str) -> bool:
    """Whether a row was measured at this commit."""
    path = RESULTS / f"{row}.json"
    measured_at = json.loads(path.read_text())["commit"] if path.exists() else ""
    return measured_at == commit() and not measured_at.endswith("+")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")

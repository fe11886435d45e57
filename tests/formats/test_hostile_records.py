"""One hostile record costs a small multiple of its size, alone and among ordinary records."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TIMES = {
    "json": 32, "csv": 12, "avro": 40, "avro, framed or not": 40, "protobuf": 48,
    "protobuf, framed": 48, "text": 8, "bytes": 4,
}  # fmt: skip
"""The bytes of memory that each decoder may use per byte of input, besides `ROOM`."""
ROOM = 64 << 20
SECONDS_PER_MB = 2.5
SLACK = 0.15
SMALL, LARGE = 1 << 18, 1 << 20


def costs(target: str, ways: str, *sizes: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.formats.costs", target, ways, *map(str, sizes)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return [json.loads(line) for line in ended.stdout.splitlines()]


def too_dear(target: str, ways: str, *sizes: int) -> list[str]:
    """The exceeded bounds: memory and time by size, and time as the size grows."""
    found: list[str] = []
    seconds: defaultdict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for cost in costs(target, ways, *sizes):
        what = f"{cost['input']}, {cost['way']}, {cost['size']} bytes"
        if "error" in cost:
            found.append(f"{what}: {cost['error']}")
            continue
        assert cost["good"] + cost["bad"] == cost["rows"], what
        seconds[cost["input"], cost["way"]].append((cost["bytes"], cost["seconds"]))
        if cost["memory"] > TIMES[target] * cost["bytes"] + ROOM:
            found.append(f"{what}: {cost['memory'] >> 20} MiB for {cost['bytes']} bytes")
        if cost["seconds"] > SLACK + SECONDS_PER_MB * cost["bytes"] / 2**20:
            found.append(f"{what}: {cost['seconds']:.2f} s")
    for (name, way), timed in seconds.items():
        (small, before), (large, after) = timed[0], timed[-1]
        if after > SLACK + before * (large / small) ** 1.38:  # 2 ** 1.38 = 2.6
            found.append(f"{name}, {way}: {before:.2f} s, then {after:.2f} s")
    return found


@pytest.mark.parametrize("target", TIMES)
def test_a_hostile_record_costs_a_small_multiple_of_its_size(target: str) -> None:
    assert not too_dear(target, "among", SMALL, LARGE)


@pytest.mark.soak
@pytest.mark.parametrize("target", TIMES)
def test_a_large_hostile_record_costs_a_small_multiple_of_its_size(target: str) -> None:
    assert not too_dear(target, "alone,among,many", 1 << 22, 1 << 24)


def fuzzed(target: str, seed: int, rounds: int) -> None:
    command = [sys.executable, "-m", "tests.formats.fuzzing", target, str(seed), str(rounds)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.parametrize("target", TIMES)
def test_damaged_records_decode_to_the_same_rows_alone_and_among_others(target: str) -> None:
    fuzzed(target, 1, 12)


@pytest.mark.soak
@pytest.mark.parametrize("target", TIMES)
def test_thousands_of_damaged_blocks_decode_to_the_same_rows_alone_and_among_others(
    target: str,
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"{target}: seed {seed}")
    fuzzed(target, seed, 2000)

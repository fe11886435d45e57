"""Joins in a job that crashes at every step of the protocol: nothing lost, nothing twice."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.small_world import Small, install_fault_points
from tests.oracles import joins as oracle
from tests.oracles import joins_as_of, joins_tables

import millstream as ms
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.checkpoint.fault_points import POINTS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]
EVER = ((-(2**63), 2**63 - 1),) * 2
PROTOCOL = [point for point in POINTS if "writing" not in point]


def pipeline() -> ms.Pipeline:
    """Joins of every kind: `a` and `b` are streams, `ta` and `tb` the same rows as tables."""
    left = ms.read(ms.Topic("a", schema="n int, k string, ts timestamp"), time="ts", idle=None)
    schema = "m long, j string, at timestamp"
    right = ms.read(ms.Topic("b", schema=schema), time="at", idle=None)
    rows = ms.table(ms.Topic("tb", schema=schema), key="j", time="at")
    others = ms.table(ms.Topic("ta", schema="n int, k string, ts timestamp"), key="n", time="ts")
    on = {"k": "j"}
    outputs = {
        "pairs": left.join(right, on=on, within="3 seconds", how="full"),
        "then": left.as_of(rows, on=on, how="left"),
        "now": left.lookup(rows, on=on, how="left"),
        "view": others.join(rows, on=on, how="left").changes(),
    }
    return ms.Pipeline("small", *(one.to(ms.Topic(name)) for name, one in outputs.items()))


def fed(small: Small, topic: str, rows: list[Row]) -> None:
    for row in rows:
        at = row["_time"]
        value = {name: value for name, value in row.items() if not name.startswith("_")}
        value["ts" if topic[-1] == "a" else "at"] = f"2026-01-01T00:{at // 60:02d}:{at % 60:02d}Z"
        record = {"key": None, "value": json.dumps(value).encode(), "headers": None,
                  "timestamp": None}  # fmt: skip
        small.environment.log.append(topic, 0, record)


def committed(small: Small) -> list[dict[str, tuple[int, int]]]:
    """What each batch that counts has read of the topics: `lookup` depends on the cuts."""
    checkpoint = Checkpoint(small.folder)
    intents = [checkpoint.read(batch, "intent") for batch in checkpoint.batches("commit")]
    return [{name: tuple(source["ranges"]["0"]) for name, source in intent["sources"].items()}
            for intent in intents]  # fmt: skip


def test_joins_that_crash_at_each_step_of_the_protocol_lose_and_repeat_nothing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(5)
    small = Small(tmp_path / "job", spark, pipeline())
    install_fault_points(small.environment, monkeypatch)
    left, right = list[Row](), list[Row]()
    for turn, point in enumerate(PROTOCOL):
        for number in range(6 * turn, 6 * turn + 6):
            place = {"_time": number, "_offset": number, "_partition": 0}
            left.append({"n": number, "k": chance.choice(["x", "y", "z", None]), **place})
            right.append({"m": number, "j": chance.choice(["x", "y"]), **place})
        for topic in ("a", "b", "ta", "tb"):
            fed(small, topic, (left if topic[-1] == "a" else right)[-6:])
        small.lane = "wide" if turn % 4 == 3 else "narrow"
        small.crash_at(point)
        small.step()
    assert small.environment.at == {}
    small.finish()

    found = {name: [row for _, output, row in small.environment.sinks.rows if output == name]
             for name in ("pairs", "then", "now", "view")}  # fmt: skip
    pairs = oracle.joined(
        [oracle.Batch((left, right), EVER)], on=[("k", "j")], within=(-3, 3), how="full"
    )
    assert Counter((r["n"], r["m"]) for r in found["pairs"]) == Counter(
        (a and a["n"], b and b["m"]) for a, b in pairs[0].pairs
    )
    then = joins_as_of.as_of([joins_as_of.Batch(left, right, EVER)], on=[("k", "j")], how="left")
    assert Counter((r["n"], r["m"]) for r in found["then"]) == Counter(
        (event["n"], version and version["m"]) for event, version in then[0].pairs
    )
    batches = [joins_as_of.Batch(left[slice(*span["a"])], right[slice(*span["tb"])], EVER)
               for span in committed(small)]  # fmt: skip
    now = [pair for one in joins_as_of.lookup(batches, on=[("k", "j")], how="left")
           for pair in one.pairs]  # fmt: skip
    assert Counter((r["n"], r["m"]) for r in found["now"]) == Counter(
        (event["n"], version and version["m"]) for event, version in now
    )
    assert sorted(r["n"] for r in found["now"]) == [row["n"] for row in left]
    assert sum(bool(batch.events) for batch in batches) > 1
    kept: dict[int, Row] = {}
    for row in found["view"]:
        if row["change"] == "delete":
            del kept[row["n"]]
        else:
            assert (row["change"] == "update") == (row["n"] in kept)
            kept[row["n"]] = row
    current = {row["j"]: row for row in right}
    view = joins_tables.view(left, [*current.values()], on=[("k", "j")], how="left")
    assert {n: row["m"] for n, row in kept.items()} == {a["n"]: b and b["m"] for a, b in view if a}

"""Fingerprints change with steps, their order, outputs and functions, and with nothing else."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.plan.fingerprint import PYTHON, differences, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

FACTOR = 2
SCHEMA = "page long, price double, ts timestamp"
SCRIPT = """
import json, sys
import millstream as ms
from millstream.plan.fingerprint import fingerprint
NAMES = frozenset(["a", "b", "c", "d"])
def cheap(frame):
    return frame.filter(frame["name"].isin({"a", "b", "c"}) | (frame["price"] < 3))
rows = ms.read(ms.Topic("in", schema="name string, price double")).transform(cheap)
out = rows.select("name").to(ms.Function(lambda rows, intent, batch: NAMES))
print(json.dumps(fingerprint(ms.Pipeline("p", out))))
"""


def helped(frame: Any) -> Any:
    return frame.withColumn("price", frame["price"] * FACTOR)


def through(frame: Any) -> Any:
    return helped(frame)


def plain(**options: Any) -> ms.Pipeline:
    rows = ms.read(ms.Topic("in", schema=SCHEMA), time="ts").where("price > 1").where("page > 1")
    return ms.Pipeline("p", rows.to(ms.Topic("out")), **options)


def of(function: Any) -> dict[str, str]:
    rows = ms.read(ms.Topic("in", schema=SCHEMA)).transform(function).select("price")
    return fingerprint(ms.Pipeline("p", rows.to(ms.Topic("out"))))


def differing(before: ms.Pipeline, now: ms.Pipeline) -> list[str]:
    return differences(fingerprint(before), fingerprint(now))


def test_a_pipeline_that_is_built_again_is_the_same() -> None:
    assert differing(plain(), plain()) == []
    assert of(through) == of(through)


def test_run_options_are_not_part_of_the_fingerprint() -> None:
    other = plain(batch="5 seconds", history="2 days", delivery="at_least_once", bad_above=0.5)
    assert differing(plain(), other) == []


def test_new_changed_and_removed_parts_are_listed() -> None:
    rows = ms.read(ms.Topic("in", schema=SCHEMA), time="ts", watermark="1 second")
    other = ms.Pipeline("p", rows.where("price > 1").drop("page").to(ms.Topic("another"), "out"))
    assert differing(plain(), other) == [
        "read in (changed)", "drop page (new)", "output out (changed)", "where page > 1 (gone)",
    ]  # fmt: skip


def test_the_same_steps_in_another_order_are_another_pipeline() -> None:
    rows = ms.read(ms.Topic("in", schema=SCHEMA), time="ts").where("page > 1").where("price > 1")
    assert differing(plain(), ms.Pipeline("p", rows.to(ms.Topic("out")))) == [
        "the order of its steps"
    ]


def test_equal_steps_are_counted() -> None:
    rows = ms.read(ms.Topic("in", schema=SCHEMA), time="ts").where("price > 1")
    twice = ms.Pipeline("p", rows.where("page > 1").where("page > 1").to(ms.Topic("out")))
    assert "where page > 1 (number 2) (new)" in differing(plain(), twice)


def test_where_bad_rows_go_and_whether_they_stop_are_part_of_it() -> None:
    for other in (plain(on_bad="stop"), plain(dead=ms.Topic("bad"))):
        assert differing(plain(), other) == ["bad rows (changed)"]


def test_other_rows_in_memory_are_other_input_and_other_columns_another_pipeline() -> None:
    def made(rows: list[dict[str, Any]]) -> ms.Pipeline:
        return ms.Pipeline("p", ms.read(ms.Memory(rows)).to(ms.Memory("out")))

    assert differing(made([{"a": 1}]), made([{"a": 2}, {"a": 3}])) == []
    assert differing(made([{"a": 1}]), made([{"a": "x"}])) == ["read memory (changed)"]


def test_columns_are_compared_where_schema_names_a_file(tmp_path: Path) -> None:
    file = tmp_path / "in.avsc"

    def made(kind: str) -> ms.Pipeline:
        field = {"name": "a", "type": kind}
        file.write_text(json.dumps({"type": "record", "name": "r", "fields": [field]}))
        rows = ms.read(ms.Topic("in", schema=file, format="avro"))
        return ms.Pipeline("p", rows.to(ms.Topic("out")))

    assert differing(made("long"), made("long")) == []
    assert differing(made("long"), made("string")) == ["read in (changed)"]


def changed(function: Any, **names: Any) -> FunctionType:
    """The same code in a module where these names mean something else."""
    other = FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)
    other.__qualname__, other.__module__ = function.__qualname__, function.__module__
    return other


def test_constants_and_helpers_that_a_function_names_are_part_of_it() -> None:
    assert differences(of(helped), of(changed(helped, FACTOR=3))) == [
        "the function helped (changed)"
    ]
    worse = changed(helped, FACTOR=3)
    found = differences(of(through), of(changed(through, helped=worse)))
    assert "the function helped (changed)" in found


def test_closures_and_arguments_that_are_bound_are_part_of_a_function() -> None:
    def scaled(factor: int) -> Any:
        return lambda frame: frame.withColumn("price", frame["price"] * factor)

    assert differences(of(scaled(2)), of(scaled(2))) == []
    assert len(differences(of(scaled(2)), of(scaled(3)))) == 1

    def by(factor: int, frame: Any) -> Any:
        return frame.withColumn("price", frame["price"] * factor)

    bound = [functools.update_wrapper(functools.partial(by, n), by) for n in (2, 2, 3)]
    assert differences(of(bound[0]), of(bound[1])) == []
    assert differences(of(bound[0]), of(bound[2])) != []


def test_functions_count_only_under_the_python_that_compiled_them() -> None:
    before = {**of(helped), PYTHON: "another"}
    assert differences(before, of(changed(helped, FACTOR=3))) == []


def test_a_recursive_function_has_a_fingerprint() -> None:
    def down(frame: Any, times: int = 3) -> Any:
        return down(frame, times - 1) if times else frame

    assert of(down) == of(down)


def test_passwords_are_not_part_of_it() -> None:
    def to(url: str) -> ms.Pipeline:
        rows = ms.read(ms.Topic("in", schema=SCHEMA))
        return ms.Pipeline("p", rows.to(ms.Postgres("out", url=url)))

    one = "postgresql://me:{}@db/{}"
    assert differing(to(one.format("a", "shop")), to(one.format("b", "shop"))) == []
    assert differing(to(one.format("a", "shop")), to(one.format("a", "other"))) == [
        "output out (changed)"
    ]


@pytest.mark.parametrize("seeds", [("1", "2")])
def test_a_fingerprint_is_the_same_in_every_process(seeds: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text(SCRIPT)
    found = [
        subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True,
                       env={**os.environ, "PYTHONHASHSEED": seed}, timeout=60).stdout
        for seed in seeds
    ]  # fmt: skip
    assert found[0] == found[1]
    assert "the function cheap" in found[0]


def test_a_fingerprint_that_an_earlier_version_stored_is_still_that_of_its_pipeline() -> None:
    users = ms.table(ms.Topic("users", schema="id long, age long"), key="id")
    bids = ms.read(ms.Topic("bids", schema="user long, price double, ts timestamp"), time="ts")
    joined = bids.lookup(users.where("age > 3"), on={"user": "id"}).where("price > 1")
    folded = bids.fold(by="user", start={"n": 0}, step=counted)
    windows = bids.by("user").window(ms.tumbling("1 minute")).agg(n=ms.count())
    found = fingerprint(ms.Pipeline(
        "p",
        joined.to(ms.Topic("joined")),
        users.by("age").agg(n=ms.count()).to(ms.Topic("ages")),
        users.changes().to(ms.Topic("changes")),
        folded.to(ms.Topic("folded")),
        windows.to(ms.Topic("windows")),
    ))  # fmt: skip
    stable = {k: v for k, v in found.items() if k != PYTHON and not k.startswith("the function")}
    assert stable == STORED


def counted(state: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    return {"n": state["n"] + 1}


STORED = {
    "read bids": "12ed0da04acb635710a526b1",
    "read users": "d932a245dcf32a7dd20cfb02",
    "where age > 3": "d5580028d783456bfedf897c",
    "current(id)": "d7607bfb87d9587ad38bafbc",
    "lookup(user)": "7bffb10568b3564d4ad18857",
    "where price > 1": "99a8cfd047d71c0774bc26a8",
    "current(id) (number 2)": "d7607bfb87d9587ad38bafbc",
    "agg(age)": "b3cdce72f0cda210e4061932",
    "current(id) (number 3)": "158e0a026610cb2916348d20",
    "changes(id)": "e5fa7461ec65af505729998b",
    "fold(user)": "b1606a3884e44d6e4051b4b1",
    "tumbling(user)": "10381a93d0d314f5d4e4360c",
    "output joined": "c54617bf87a464da320550de",
    "output ages": "af1e2cb7c5ae79ecf9f2bbd7",
    "output changes": "ba7ae0bae1b6a1ef25e5ad2b",
    "output folded": "405904ab075f5479ff0e7885",
    "output windows": "b93a49e483e390701255f5e2",
    "bad rows": "cabc7c3227eae337e1d1a255",
    "the order of its steps": "f43e6b91038a4a1d7824fae9",
}

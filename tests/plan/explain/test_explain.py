"""`plan` explains what a pipeline does, and the same pipeline always gives the same text."""

from __future__ import annotations

import millstream as ms
from millstream.plan.explain.explain import describe

SCHEMA = "id long, price double, ts timestamp"


def bids(name: str = "bids") -> ms.Stream:
    return ms.read(ms.Topic(name, schema=SCHEMA), time="ts", watermark="5 seconds")


def hot(rest: object = None) -> ms.Pipeline:
    windowed = bids().where("price > 0").by("id").window(ms.tumbling("10 seconds"))
    if rest is not None:
        windowed = windowed.late(rest=rest)  # type: ignore[arg-type]
    return ms.Pipeline("hot", windowed.agg(n=ms.count(), total=ms.sum("price")).to(ms.Topic("out")))


def step(pipeline: ms.Pipeline, name: str) -> dict[str, str]:
    steps = describe(pipeline.name, pipeline.outputs)["steps"]
    return next(found for found in steps if found["step"] == name)


def test_a_plan_reads_as_the_pipeline_was_written() -> None:
    text = hot().plan()

    for line in (
        "pipeline hot",
        "  1. read bids",
        "       columns    id long, price double, ts timestamp",
        "       event time ts",
        "       watermark  5 seconds behind the largest time of the slowest partition",
        "  2. where price > 0  from 1",
        "  3. tumbling(id)  from 2",
        '       window     tumbling("10 seconds")',
        "       gives      n = count(), total = sum(price)",
        "       late       rows whose window has been emitted → topic hot.late",
        "  out  from 3 → topic out, key id",
        "  bad rows → topic hot.dead",
        "  1. read bids → where → tumbling(id) → output out",
    ):
        assert f"{line}\n" in text, line


def test_the_same_pipeline_gives_the_same_text() -> None:
    assert hot().plan() == hot().plan()


def test_the_late_side_output_is_named_whatever_its_sink() -> None:
    assert step(hot(ms.Topic("mine")), "tumbling(id)")["late"].endswith("→ topic mine")
    assert step(hot(ms.discard), "tumbling(id)")["late"].endswith("and counted")


def test_a_stream_used_twice_is_one_step_with_two_outputs() -> None:
    stream = bids().where("price > 0")
    pipeline = ms.Pipeline("p", stream.to(ms.Topic("a")), stream.to(ms.Topic("b")))
    plan = describe(pipeline.name, pipeline.outputs)

    assert [found["step"] for found in plan["steps"]] == ["read bids", "where price > 0"]
    assert [output["from"] for output in plan["outputs"]] == [2, 2]


def test_the_plan_of_distinct_shows_when_results_depend_on_batches() -> None:
    one = ms.Pipeline("p", bids().distinct(by="id").to(ms.Topic("out")))
    two = ms.Pipeline("p", bids("a").union(bids("b")).distinct(by="id").to(ms.Topic("out")))

    assert "if each id is in one partition" in step(one, "distinct(id)")["order"]
    assert "rows come from a and b" in step(two, "distinct(id)")["order"]


def test_the_plan_shows_expressions_that_depend_on_the_clock() -> None:
    clocked = ms.Pipeline("p", bids().with_columns(at="now()").to(ms.Topic("out")))
    plain = ms.Pipeline("p", bids().with_columns(at="ts").to(ms.Topic("out")))

    assert "batch clock" in describe("p", clocked.outputs)["steps"][1]["clock"]
    assert "clock" not in describe("p", plain.outputs)["steps"][1]


def test_the_plan_shows_a_select_that_drops_the_event_time() -> None:
    pipeline = ms.Pipeline("p", bids().select("id").to(ms.Topic("out")))

    assert describe("p", pipeline.outputs)["steps"][1]["event time"].startswith("none")

"""SQL and functions that raise for single rows: those rows are dead, the others continue."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.engine.scenes import PLACES, drive_in

import millstream as ms
from millstream.errors import InvalidInput, InvalidSpec, UserCodeFailed
from millstream.testing import Drive

SCHEMA = "k string, v long, ts timestamp"


def rows(*values: int) -> list[dict[str, Any]]:
    return [
        {"k": "a", "v": value, "ts": f"2026-01-01 00:00:{place:02d}"}
        for place, value in enumerate(values)
    ]


def read() -> ms.Stream:
    return ms.read(ms.Topic("in", schema=SCHEMA), time="ts")


def divided() -> ms.Stream:
    return read().with_columns(share="12 div v")


@pytest.mark.parametrize("lane", PLACES)
def test_rows_on_which_sql_raises_are_dead_with_step_and_reason(lane: Any) -> None:
    shares = divided()
    sums = shares.by("k").window(ms.tumbling("1 minute")).agg(n=ms.count(), all=ms.sum("share"))
    pipeline = ms.Pipeline("p", shares.to(ms.Topic("out")), sums.to(ms.Topic("sums")))
    with drive_in(pipeline, lane) as drive:
        drive.feed("in", [*rows(1, 2, 0, 3, 0), b"junk"])
        facts = drive.step()
        dead = drive.dead()
        drive.feed("in", rows(4))
        drive.finish()

        assert (facts.rows, facts.dead) == (6, 3)
        assert sorted(row["share"] for row in drive.rows("out")) == [3, 4, 6, 12]
        assert [(row["n"], row["all"]) for row in drive.rows("sums")] == [(4, 25)]
    assert [(row["partition"], row["offset"]) for row in dead] == [(0, 2), (0, 4), (0, 5)]
    assert [row["step"] for row in dead] == ["tumbling(k)", "tumbling(k)", "in"]
    assert all("DIVIDE_BY_ZERO" in row["reason"] for row in dead[:2])
    assert json.loads(dead[0]["value"]) == rows(1, 2, 0)[2]


def failing(visit: Any) -> list[dict[str, Any]]:
    for row in visit.rows:
        if row["v"] == 3:
            raise ValueError("three is too many")
    return [{"k": visit.key["k"], "n": len(visit.rows)}]


def test_rows_on_which_a_function_raises_are_dead() -> None:
    made = read().process(failing, by="k", state="n long", gives="k string, n long")
    with Drive(ms.Pipeline("p", made.to(ms.Topic("out"))), lane="narrow") as drive:
        drive.feed("in", rows(1, 2, 3, 4))
        facts = drive.step()

        assert facts.dead == 1
        assert drive.rows("out") == [{"k": "a", "n": 3}]
        (dead,) = drive.dead()
        assert (dead["offset"], dead["step"]) == (2, "process(k)")
        assert "three is too many" in dead["reason"]


def test_an_error_in_results_stops_the_job_because_no_single_row_causes_it() -> None:
    sums = read().by("k").window(ms.tumbling("1 minute")).agg(n=ms.count())
    broken = sums.with_columns(x="1 div (n - 2)")
    with Drive(ms.Pipeline("p", broken.to(ms.Topic("out"))), lane="narrow") as drive:
        drive.feed("in", rows(1, 2))
        drive.step()
        with pytest.raises(UserCodeFailed, match="DIVIDE_BY_ZERO"):
            drive.finish()
        assert drive.dead() == []


@pytest.mark.parametrize("bad", [b"junk", {"k": "a", "v": 0, "ts": "2026-01-01 00:00:09"}])
def test_a_pipeline_with_on_bad_stop_names_the_first_bad_row_and_changes_nothing(bad: Any) -> None:
    pipeline = ms.Pipeline("p", divided().to(ms.Topic("out")), on_bad="stop")
    with Drive(pipeline, lane="narrow") as drive:
        drive.feed("in", [*rows(1, 2), bad])
        with pytest.raises((InvalidInput, UserCodeFailed)) as refused:
            drive.step()
        assert drive.rows("out") == drive.dead() == []
    assert "offset 2" in str(refused.value) or "DIVIDE_BY_ZERO" in str(refused.value)


def test_too_many_bad_rows_in_a_minute_stop_the_job_after_reaching_the_dead_topic() -> None:
    pipeline = ms.Pipeline("p", divided().to(ms.Topic("out")), bad_above=0.3)
    with Drive(pipeline, lane="narrow") as drive:
        drive.feed("in", [*rows(1, 2, 3), b"junk"])
        assert drive.step().dead == 1
        drive.feed("in", [b"more", b"junk"])
        with pytest.raises(InvalidInput, match=r"3 of 6.*millstream dead list"):
            drive.step()
        assert len(drive.dead()) == 3


@pytest.mark.parametrize("share", [-0.1, 2, True, "1"])
def test_the_share_of_bad_rows_must_be_between_zero_and_one(share: Any) -> None:
    with pytest.raises(InvalidSpec, match="bad_above needs"):
        ms.Pipeline("p", read().to(ms.Topic("out")), bad_above=share)

"""An error in user code names the step and the user's line, and fails one batch."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from tests.engine.scenes import PLACES, bid, bids, counted, drive, drive_in, out, window

from millstream.engine.lanes import execution
from millstream.errors import UserCodeFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    import millstream as ms

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

HERE = Path(__file__).name


def line_of(word: str) -> int:
    """The line of this file that has this word and the mark of the place."""
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()  # type: ignore[arg-type]
    return next(n for n, text in enumerate(lines, 1) if word in text and "# the place" in text)


def divided() -> ms.Stream:
    return bids().where("auction > 0").where("1 div n >= 0")  # the place of div


def cast() -> ms.Stream:
    return bids().with_columns(number="cast(name as int)")  # the place of cast


def risky(df: DataFrame) -> DataFrame:
    return df.withColumn("x", F.col("auction") / F.col("n"))  # the place of risky


def shout(name):  # type: ignore[no-untyped-def]
    return name.upper()  # the place of shout


def loud(df: DataFrame) -> DataFrame:
    return df.withColumn("x", F.udf(shout, "string")("name"))


FAULTS: dict[str, tuple[Any, str, str]] = {
    "div": (divided, "where 1 div n >= 0", "DIVIDE_BY_ZERO"),
    "cast": (cast, "with_columns cast(name as int) as number", "CAST_INVALID_INPUT"),
    "risky": (lambda: bids().transform(risky), "tumbling(auction)", "DIVIDE_BY_ZERO"),
    "shout": (lambda: bids().transform(loud), "tumbling(auction)", "AttributeError"),
}
GOOD = [bid(1, 1, n=1, name="5"), bid(2, 1, n=2, name="6")]
BAD = bid(3, 1, n=0, name="x")
WORSE = bid(4, 1, n=0)


@pytest.mark.parametrize(("fault", "lane"), [
    *((fault, "narrow") for fault in sorted(FAULTS)), ("div", "wide"), ("shout", "wide"),
])  # fmt: skip
def test_an_error_names_the_step_and_shows_the_users_line(
    fault: str, lane: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    build, step, reason = FAULTS[fault]
    with drive_in(out(counted(build()), on_bad="stop"), lane) as d:
        d.feed("bids", GOOD)
        d.step()
        d.feed("bids", [BAD] if fault != "shout" else [WORSE])
        with pytest.raises(UserCodeFailed) as failed:
            d.step()

    sentence = str(failed.value)
    assert step in sentence
    assert reason in sentence
    assert f"{HERE}:{line_of(f'of {fault}')}" in sentence
    for word in ("py4j", "Py4J", "SQLSTATE", "ansi.enabled", "java", "\n"):
        assert word not in sentence
    assert "QueryContextLogger" not in capfd.readouterr().err


@pytest.mark.parametrize("lane", PLACES)
def test_a_failed_batch_emits_nothing_and_the_fixed_pipeline_continues(lane: Any) -> None:
    broken = out(counted(bids().where("1 div n >= 0")), on_bad="stop")
    fixed = out(counted(bids().where("n = 0 or 1 div n >= 0")))
    with drive_in(broken, lane) as d:
        d.feed("bids", GOOD)
        d.step()
        d.feed("bids", [BAD, bid(15, 1, n=1)])
        with pytest.raises(UserCodeFailed):
            d.step()
        assert d.rows("out") == d.late() == d.dead() == []
        if lane == "narrow":
            with pytest.raises(UserCodeFailed):
                d.step()
            with pytest.raises(UserCodeFailed):
                d.restart()
        d.restart(fixed)
        facts = d.step()

        assert facts.rows == 0, "the batch that failed was run when the job was opened again"
        assert d.rows("out") == [window(1, 0, 3)]
        d.finish()
        assert d.rows("out") == [window(1, 10, 1)]


def test_a_transform_that_raises_while_the_plan_is_made_shows_its_line() -> None:
    def careless(df: DataFrame) -> DataFrame:
        return df.select(undefined_name)  # type: ignore[name-defined]  # noqa: F821  # the place of undefined

    with pytest.raises(UserCodeFailed) as failed:
        drive(bids().transform(careless))

    sentence = str(failed.value)
    assert "transform(careless)" in sentence
    assert "NameError" in sentence
    assert f"{HERE}:{line_of('of undefined')}" in sentence


def test_an_internal_error_is_not_reported_as_one_of_user_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with drive(counted(bids()), lane="driver") as d:
        d.feed("bids", GOOD)
        with monkeypatch.context() as broken:
            broken.setattr(execution, "write_segment", None)
            with pytest.raises(TypeError, match="not callable"):
                d.step()


def test_a_step_after_a_failed_one_retries_its_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from millstream.engine.outputs import Outputs

    with drive(counted(bids()), lane="narrow") as d:
        d.feed("bids", GOOD)
        with monkeypatch.context() as broken:
            broken.setattr(Outputs, "send", lambda *_: (_ for _ in ()).throw(OSError("no route")))
            with pytest.raises(OSError, match="no route"):
                d.step()
        d.feed("bids", [bid(15, 1, n=1)])

        again, following = d.step(), d.step()

        assert (again.batch, again.rows) == (1, 2)
        assert (following.batch, following.rows) == (2, 1)
        d.finish()
        assert d.rows("out") == [window(1, 0, 2), window(1, 10, 1)]

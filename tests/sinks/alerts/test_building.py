"""Invalid alerts raise where they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.sinks.alerting import alert, batch, opened_writer

import millstream as ms
from millstream.engine.redirected_sinks import with_suffix
from millstream.errors import InvalidInput, InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sinks.receiving import Receiver


pytestmark = pytest.mark.usefixtures("home_apart")


def test_an_alert_needs_the_columns_it_names() -> None:
    views = ms.read(ms.Topic("views", schema="page string, ms long, ts timestamp"), time="ts")
    slow = views.by("page").window(ms.tumbling("5 seconds")).agg(slowest=ms.max("ms"))
    assert slow.to(ms.Alert("slow", when="slowest > 1000")).keys == ("page",)
    finer = ms.Alert("slow", when="slowest > 1000", by=["page", "window_start"])
    assert slow.to(finer).keys == ("page", "window_start")
    assert views.to(ms.Alert("slow", when="ms > 1000")).keys == ()
    with pytest.raises(InvalidSpec, match=r"each key of its rows separately: page; got by=\[\]"):
        slow.to(ms.Alert("slow", when="slowest > 1000", by=[]))
    table = views.by("page").agg(n=ms.count())
    assert table.to(ms.Alert("many", when="n > 1000")).keys == ("page",)
    with pytest.raises(InvalidSpec, match=r"names of columns of Alert\('slow', …\); got ms"):
        slow.to(ms.Alert("slow", when="ms > 1000"))
    with pytest.raises(InvalidSpec, match="country"):
        views.to(ms.Alert("slow", when="ms > 1000", by="country"))
    with pytest.raises(InvalidSpec, match=r"\.with_columns"):
        slow.to(ms.Alert("slow", when="slowest > 1000 and page rlike 'x'"))
    plan = ms.Pipeline("p", slow.to(ms.Alert("slow", when="slowest > 1000"))).plan()
    assert "Alert('slow', when slowest > 1000), at least once" in plan


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ms.Alert("", when="n > 1"), "needs a name"),
        (lambda: ms.Alert("a\nb", when="n > 1"), "needs a name"),
        (lambda: ms.Alert("a", when=" "), "Alert(when=…) needs a condition"),
        (lambda: ms.Alert("a", when="n > 1", clears=""), "Alert(clears=…) needs a condition"),
        (lambda: ms.Alert("a", when="n > 1", for_="-1 second"), "Alert(for_=…)"),
        (lambda: ms.Alert("a", when="n > 1", absent="0 seconds"), "Alert(absent=…)"),
        (lambda: ms.Alert("a", when="n > 1", to=["ops@example.com"]), "needs ms.Email"),  # type: ignore[list-item]
        (lambda: ms.JobAlert("lag"), "needs above=, a number"),
        (lambda: ms.JobAlert("late", above=2), "a share from 0 to 1"),
        (lambda: ms.JobAlert("degraded", above=2), "needs no limit"),
        (lambda: ms.JobAlert("tired"), "needs one of lag"),  # type: ignore[arg-type]
        (
            lambda: ms.JobAlert("degraded", to=ms.Email("a@b", url="smtps://me:x@mail.example")),
            "secrets as references",
        ),
    ],
)
def test_an_invalid_alert_raises_where_it_is_written(
    make: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        make()
    assert sentence in str(refused.value)


def test_a_condition_that_does_not_fit_the_types_stops_the_job(receiver: Receiver) -> None:
    sink = alert(receiver, when="page > 5")
    writer = opened_writer(sink)
    with pytest.raises(InvalidSpec, match="fit the types"):
        writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    writer.close()


def test_a_rewind_into_new_outputs_keeps_alerts_and_refuses_mails() -> None:
    sink = ms.Alert("slow", when="n > 5")
    assert with_suffix(sink, "-2") is sink
    with pytest.raises(InvalidInput, match="--again"):
        with_suffix(ms.Email("ops@example.com"), "-2")

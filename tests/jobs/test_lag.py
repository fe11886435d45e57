"""Lag, and the warning before unread records are gone."""

from __future__ import annotations

import pytest

from millstream.jobs.lag import Retention, danger

FOREVER, DAY = Retention(None), Retention(86_400.0)


def warned(retention: Retention = FOREVER, *, position: int, aged: int | None = None,
           first: int = 100, cut: bool = False) -> str | None:  # fmt: skip
    return danger(position=position, first=first, end=200, aged=aged, retention=retention, cut=cut)


def test_a_job_that_has_read_everything_is_never_in_danger() -> None:
    assert warned(DAY, position=200, aged=200, cut=True) is None


def test_unread_records_that_are_young_are_no_danger() -> None:
    assert warned(DAY, position=150, aged=120) is None


def test_unread_records_near_the_end_of_their_retention_are_told() -> None:
    told = warned(DAY, position=150, aged=180)
    assert told == "30 unread records have used up 75% of the retention of 86,400 s"


def test_a_log_that_is_not_cut_warns_nobody_without_retention() -> None:
    assert warned(position=101) is None


@pytest.mark.parametrize(("position", "told"), [(124, True), (125, False)])
def test_unread_records_in_the_oldest_quarter_of_a_log_that_is_cut(
    position: int, *, told: bool
) -> None:
    assert (warned(position=position, cut=True) is not None) == told


def test_records_that_are_gone_are_told_as_gone() -> None:
    assert warned(position=90) == "10 unread records are gone already"

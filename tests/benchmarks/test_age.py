"""The job of an hour at 50 records a second: its samples, its plot, and its limits."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from benchmarks.age import Sample, run, taken, write

if TYPE_CHECKING:
    from pathlib import Path

GOOD = Sample(10.0, 40, 200, 9_000_000, 500_000, 400_000_000, 0.21)


def test_samples_are_written_as_a_table_and_a_plot(tmp_path: Path) -> None:
    samples = [GOOD._replace(seconds=10.0 * n, files=n) for n in range(1, 5)]
    write(samples, tmp_path)

    with (tmp_path / "age.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["files"] for row in rows] == ["1", "2", "3", "4"]
    drawn = ElementTree.fromstring((tmp_path / "age.svg").read_text())
    assert len(drawn.findall("{*}polyline")) == 4
    assert taken(tmp_path)[0] == 2


def test_the_limits_are_those_of_the_design() -> None:
    assert GOOD.bounded
    assert GOOD._replace(files=2_000, bytes=51_500_000).bounded
    assert not GOOD._replace(files=2_001).bounded
    assert not GOOD._replace(bytes=51_500_001).bounded


@pytest.mark.soak
def test_a_job_at_rest_rate_for_an_hour_stays_small(tmp_path: Path) -> None:
    assert run(60, tmp_path, "spark"), (tmp_path / "age.csv").read_text()

"""`millstream commits`: the committed batches of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.bids import two_batches

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


@pytest.mark.usefixtures("spark")
def test_each_batch_is_listed_with_its_facts(
    millstream: Command, offline: Command, topic: str, tmp_path: Path
) -> None:
    job = two_batches(millstream, topic, tmp_path)
    rows = offline.ok("commits", *job, "-o", "json").json

    assert [(row["batch"], row["rows"], row["late"]) for row in rows] == [(1, 3, 0), (2, 2, 1)]
    assert [row["batch"] for row in offline.ok("commits", *job, "-n", "1", "-o", "json").json] == [
        2
    ]
    assert {row["where"] for row in rows} == {"spark"}
    assert "WATERMARK" in offline.ok("commits", *job).out


def test_a_missing_checkpoint_or_name_is_reported(offline: Command, tmp_path: Path) -> None:
    for command in (["commits"], ["state", "show"]):
        assert offline(*command, "--checkpoint", str(tmp_path / "none")).code == 4
        assert offline(*command).code == 2
    assert not (tmp_path / "none").exists()

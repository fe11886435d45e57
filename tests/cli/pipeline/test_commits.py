"""`millstream commits`: what each batch of a job was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.bids import two_batches

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


@pytest.mark.usefixtures("spark")
def test_each_batch_is_listed_with_what_it_was(
    millstream: Command, nowhere: Command, topic: str, tmp_path: Path
) -> None:
    job = two_batches(millstream, topic, tmp_path)
    rows = nowhere.ok("commits", *job, "-o", "json").json

    assert [(row["batch"], row["rows"], row["late"]) for row in rows] == [(1, 3, 0), (2, 2, 1)]
    assert [row["batch"] for row in nowhere.ok("commits", *job, "-n", "1", "-o", "json").json] == [
        2
    ]
    assert "WATERMARK" in nowhere.ok("commits", *job).out


def test_no_checkpoint_and_no_name_are_told(nowhere: Command, tmp_path: Path) -> None:
    for command in (["commits"], ["state", "show"]):
        assert nowhere(*command, "--checkpoint", str(tmp_path / "none")).code == 4
        assert nowhere(*command).code == 2
    assert not (tmp_path / "none").exists()

"""`millstream state show`: the state of steps, without Spark and without Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.bids import two_batches

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command


@pytest.mark.usefixtures("spark")
def test_steps_and_keys_are_shown_with_their_batch(
    millstream: Command, offline: Command, topic: str, tmp_path: Path
) -> None:
    job = two_batches(millstream, topic, tmp_path)
    state = offline.ok("state", "show", *job, "-o", "json").json
    assert state["batch"] == 2
    assert [row["step"] for row in state["rows"]] == ["tumbling(auction)"]

    [row] = offline.ok("state", "show", *job, "--key", "auction=7", "-o", "json").json["rows"]
    assert (row["window_start"], row["n"], row["total"]) == ("2026-01-01T00:00:10.000000Z", 2, 4.0)

    by_name = offline.ok("state", "show", "tumbling(auction)", *job, "--key", "auction=7")
    assert "2026-01-01T00:00:10.000000Z" in by_name.out

    for words, code in (
        (["--key", "auction=8"], 4),
        (["--key", "auction=x"], 2),
        (["--key", "price=1"], 2),
        (["--key", "auction"], 2),
        (["nothing"], 4),
    ):
        said = offline("state", "show", *words, *job)
        assert (said.code, said.out) == (code, ""), said

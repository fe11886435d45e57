"""Files run to their end give the results of the stream, however it was cut."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from tests.engine.scenes import SCHEMA, bid

import millstream as ms
from millstream.testing import Drive

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("tens", "visits", "minutes")


def disordered(seed: int, count: int = 240) -> list[dict[str, Any]]:
    """Rows of two minutes, none later than the declared four seconds."""
    chance = random.Random(seed)
    times = sorted((second / 2 + chance.random() * 4, second / 2) for second in range(count))
    return [bid(at, chance.randrange(6), n=chance.randrange(100)) for _, at in times]


def answers(source: Any) -> list[ms.Stream]:
    rows = ms.read(source, time="ts", watermark="4 seconds", idle=None, ahead=None)
    tens = rows.by("auction").window(ms.tumbling("10 seconds")).agg(
        n=ms.count(), total=ms.sum("n"), top=ms.max("n"))  # fmt: skip
    visits = rows.where("n % 4 = 0").by("auction").window(ms.session(gap="3 seconds")).agg(
        n=ms.count())  # fmt: skip
    minutes = tens.by("auction").window(ms.tumbling("1 minute")).agg(windows=ms.count())
    return [tens, visits, minutes]


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["auction"], row["window_start"]))


def test_files_run_to_their_end_equal_the_topic_in_many_batches(
    tmp_path: Path, spark: object
) -> None:
    rows = disordered(7)
    pipeline = ms.Pipeline("stream", *(
        stream.to(ms.Topic(name))
        for stream, name in zip(answers(ms.Topic("bids", schema=SCHEMA)), NAMES, strict=True)
    ))  # fmt: skip
    streamed: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    with Drive(pipeline) as drive:
        drive.feed("bids", [], partition=1)
        for number, start in enumerate(range(0, len(rows), 24)):
            for row in rows[start : start + 24]:
                drive.feed("bids", [row], partition=row["auction"] % 2)
            assert drive.step().late == 0
            if number == 4:
                drive.restart()
            for name in NAMES:
                streamed[name] += drive.rows(name)
        drive.finish()
        for name in NAMES:
            streamed[name] += drive.rows(name)

    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(3):
        mine = rows[part * 80 : (part + 1) * 80]
        (folder / f"{part}.json").write_text("".join(json.dumps(row) + "\n" for row in mine))
    kept = {name: ms.Memory(name) for name in NAMES}
    streams = answers(ms.Files(folder, format="json", schema=SCHEMA))
    batch = ms.Pipeline("batch", *(
        stream.to(kept[name]) for stream, name in zip(streams, NAMES, strict=True)
    ))  # fmt: skip
    batch.run(until="finished", checkpoint=tmp_path / "job")

    for name in NAMES:
        assert sorted_rows(kept[name].rows) == sorted_rows(streamed[name]), name
    assert [len(streamed[name]) > 10 for name in NAMES] == [True, True, True]
    assert sum(row["n"] for row in streamed["tens"]) == len(rows)

"""`millstream check`: types by Spark, and the fit with the checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.bids import lines, pipeline_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command

pytestmark = pytest.mark.usefixtures("spark")


def test_a_pipeline_that_never_ran_is_new_and_nothing_is_made(
    offline: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    [found] = offline.ok(
        "check", pipeline_file(tmp_path, "bids"), "--checkpoint", str(folder), "-o", "json"
    ).json

    assert [(row["step"], row["verdict"]) for row in found["steps"]] == [
        ("tumbling(auction)", "new")
    ]
    assert found["outputs"][0]["columns"].endswith("n long, total double")
    assert not folder.exists()


def test_a_changed_step_is_refused_and_an_unchanged_one_kept(
    millstream: Command, topic: str, tmp_path: Path
) -> None:
    millstream.ok("topics", "create", topic)
    millstream.ok("produce", topic, stdin=lines([1, 2]))
    folder = ["--checkpoint", str(tmp_path / "job")]
    millstream.ok("run", pipeline_file(tmp_path, topic), *folder, "--until", "caught-up")

    assert "kept" in millstream.ok("check", pipeline_file(tmp_path, topic), *folder).out

    before = sorted((tmp_path / "job").rglob("*"))
    said = millstream("check", pipeline_file(tmp_path, topic, size="20 seconds"), *folder)
    assert said.code == 3
    assert 'window tumbling("10 seconds") → tumbling("20 seconds")' in said.out
    assert "another spec for tumbling(auction)" in said.err
    assert sorted((tmp_path / "job").rglob("*")) == before

    other = millstream("check", pipeline_file(tmp_path, "another"), *folder)
    assert other.code == 3
    assert topic in other.err


def test_aggregates_in_another_order_are_refused(
    millstream: Command, topic: str, tmp_path: Path
) -> None:
    millstream.ok("topics", "create", topic)
    millstream.ok("produce", topic, stdin=lines([1, 2]))
    folder = ["--checkpoint", str(tmp_path / "job")]
    two, turned = "a=ms.min('price'), b=ms.max('price')", "b=ms.max('price'), a=ms.min('price')"

    def file(aggregates: str) -> str:
        path = tmp_path / "hot.py"
        path.write_text(
            "import millstream as ms\n"
            f'bids = ms.read(ms.Topic("{topic}", schema="auction long, price double, '
            'ts timestamp"), time="ts")\n'
            f'hot = bids.by("auction").window(ms.tumbling("10 seconds")).agg({aggregates})\n'
            f'pipeline = ms.Pipeline("{topic}", hot.to(ms.Topic("{topic}.out")))\n'
        )
        return str(path)

    millstream.ok("run", file(two), *folder, "--until", "caught-up")

    assert millstream.ok("check", file(two), *folder, "-o", "json").json[0]["steps"] == [
        {"step": "tumbling(auction)", "verdict": "kept", "why": "continues with its state"}
    ]
    assert millstream("check", file(turned), *folder).code == 3


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ('bids.with_columns(x="price + array(1)")', "with_columns price + array(1) as x needs"),
        ("bids.transform(broken)", "NameError: name 'nothing' is not defined; see "),
    ],
)
def test_what_does_not_fit_is_reported_with_its_step(
    offline: Command, tmp_path: Path, step: str, words: str
) -> None:
    file = tmp_path / "bad.py"
    file.write_text(
        "import millstream as ms\n"
        'bids = ms.read(ms.Topic("bids", schema="price double"))\n'
        "def broken(frame):\n    return frame.withColumn('x', nothing)\n"
        f'pipeline = ms.Pipeline("p", {step}.to(ms.Topic("out")))\n'
    )
    said = offline("check", str(file), "--checkpoint", str(tmp_path / "job"))

    assert said.code == 3
    assert words in said.err
    assert str(file) in said.err
    assert "Traceback" not in said.err
    assert "py4j" not in said.err.lower()

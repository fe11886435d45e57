"""`millstream run`: it runs to the requested end and reports its progress."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cli.bids import lines, pipeline_file, windows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.cli.command import Command

pytestmark = pytest.mark.usefixtures("spark")
START = "2026-01-01T00:00:{:02d}.000000Z"


@pytest.fixture
def bids(millstream: Command, topic: str) -> str:
    millstream.ok("topics", "create", topic)
    return topic


def results(millstream: Command, topic: str) -> list[tuple[str, int]]:
    said = millstream.ok("tail", f"{topic}.out", "--from-beginning", "--until-end", "-o", "json")
    return windows(said.records)


def test_caught_up_leaves_windows_open_and_finished_closes_them(
    millstream: Command, bids: str, tmp_path: Path, spark: SparkSession
) -> None:
    file, folder = pipeline_file(tmp_path, bids), str(tmp_path / "job")
    millstream.ok("produce", bids, stdin=lines([1, 2, 11]))

    said = millstream.ok("run", file, "--checkpoint", folder, "--until", "caught-up")
    assert "caught up: 3 rows read in 1 batch (1 spark), 1 written, 0 late, 0 dead\n" in said.err
    assert results(millstream, bids) == [(START.format(0), 2)]

    said = millstream.ok("run", file, "--checkpoint", folder, "--until", "finished")
    assert "finished: " in said.err
    assert results(millstream, bids) == [(START.format(0), 2), (START.format(10), 1)]

    again = millstream.ok("run", file, "--checkpoint", folder, "--until", "finished")
    assert "already finished" in again.err

    millstream.ok("produce", bids, stdin=lines([30]))
    for more in (["--until", "finished"], []):
        refused = millstream("run", file, "--checkpoint", folder, *more)
        assert refused.code == 1
        assert f"new records: up to 1 in {bids}" in refused.err
        assert "another --checkpoint" in refused.err
    assert len(results(millstream, bids)) == 2


def test_each_batch_is_a_line_of_json_for_programs(
    millstream: Command, bids: str, tmp_path: Path
) -> None:
    millstream.ok("produce", bids, stdin=lines([1, 2]) + '{"auction": "x"}\n')
    said = millstream.ok(
        "run", pipeline_file(tmp_path, bids), "--checkpoint", str(tmp_path / "job"),
        "--until", "caught-up", "--lane", "wide", "-o", "json",
    )  # fmt: skip
    [batch] = [json.loads(line) for line in said.out.splitlines()]

    assert (batch["rows"], batch["dead"], batch["lane"]) == (3, 1, "wide")
    assert batch["lag"] == {bids: 0}


def test_a_missing_topic_or_broker_is_reported_before_spark_starts(
    millstream: Command, offline: Command, topic: str, tmp_path: Path
) -> None:
    file = pipeline_file(tmp_path, topic)

    missing = millstream("run", file, "--checkpoint", str(tmp_path / "job"))
    assert missing.code == 4
    assert topic in missing.err
    assert "starting Spark" not in missing.err
    assert offline("run", file).code == 5


def test_sql_that_fails_on_a_row_names_the_step(
    millstream: Command, bids: str, tmp_path: Path
) -> None:
    file = tmp_path / "divides.py"
    file.write_text(
        "import millstream as ms\n"
        f'bids = ms.read(ms.Topic("{bids}", schema="auction long, price double"))\n'
        'out = bids.with_columns(x="auction div cast(price as long)")\n'
        f'pipeline = ms.Pipeline("{bids}", out.to(ms.Topic("{bids}.out"), name="divided"), '
        'on_bad="stop")\n'
    )
    millstream.ok("produce", bids, stdin='{"auction": 1, "price": 0.0}\n')
    said = millstream(
        "run", str(file), "--checkpoint", str(tmp_path / "job"), "--until", "caught-up"
    )

    assert said.code == 1
    assert "divided" in said.err
    assert "DIVIDE_BY_ZERO" in said.err
    assert "Py4J" not in said.err
    assert "Traceback" not in said.err


def test_the_end_of_a_finished_run_survives_a_crash(
    millstream: Command, bids: str, tmp_path: Path, spark: SparkSession
) -> None:
    from millstream.cli.terminal.pipelines import load
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.engine import Engine
    from millstream.engine.kafka_environment import KafkaEnvironment
    from millstream.engine.spark.session import Spark

    millstream.ok("produce", bids, stdin=lines([1, 2, 11]))
    file, folder = pipeline_file(tmp_path, bids), tmp_path / "job"
    environment = KafkaEnvironment(bids, millstream.environment["MILLSTREAM_KAFKA"])
    engine = Engine(load(file)[1], Checkpoint(folder), Spark.of(spark), environment)
    engine.open()
    engine.end_here(final=True)
    engine.step()
    engine.close()
    millstream.ok("produce", bids, stdin=lines([12, 13]))

    said = millstream.ok("run", file, "--checkpoint", str(folder), "--until", "finished")

    assert "finished: 0 rows read in 1 batch" in said.err
    assert results(millstream, bids) == [(START.format(0), 2), (START.format(10), 1)]
    again = millstream("run", file, "--checkpoint", str(folder), "--until", "finished")
    assert f"new records: up to 3 in {bids}" in again.err  # two, and the mark of their transaction

"""Decoders and compiled SQL are made once per run, and unpickled once per worker process."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.scenes import PLACES, bid, bids, counted, drive

from millstream.engine.spark import arrow_steps
from millstream.engine.spark.per_run import PerRun
from millstream.sources.decode import Decoder
from millstream.sources.kafka.topic import Topic

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from millstream.schema import Schema
    from millstream.sources.spec import Opened, Opener

BATCHES = 4


@dataclass
class CountedOpener:
    """An opener that logs the process in which it is unpickled."""

    opener: Opener
    log: Path

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        with self.log.open("a") as file:
            file.write(f"{os.getpid()}\n")

    def open(self, raw: pa.Table, schema: Schema) -> Opened:
        return self.opener.open(raw, schema)


def batches(lane: Any) -> list[Counter[str]]:
    """How often decoders and SQL were created by the first batch, and by all of them."""
    made: Counter[str] = Counter()

    def counting(name: str, function: Any) -> Any:
        def count(*args: Any, **options: Any) -> Any:
            made[name] += 1
            return function(*args, **options)

        return count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Decoder, "__init__", counting("decoder", Decoder.__init__))
        patch.setattr(arrow_steps, "compiled", counting("sql", arrow_steps.compiled))
        with drive(counted(bids().where("price >= 0 or price is null")), lane=lane) as d:
            snapshots = []
            for number in range(BATCHES):
                d.feed("bids", [bid(number), bid(number, 2)], partition=0)
                assert d.step().rows == 2
                snapshots.append(made.copy())
    return [snapshots[0], snapshots[-1]]


@pytest.mark.parametrize("lane", PLACES)
def test_batches_create_no_decoders_and_compile_no_sql(lane: Any) -> None:
    first, last = batches(lane)

    assert first["decoder"] > 0
    assert first["sql"] > 0
    assert first == last


def test_workers_unpickle_a_decoder_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, opener = tmp_path / "unpickled", Topic.opener
    monkeypatch.setattr(Topic, "opener", lambda topic: CountedOpener(opener(topic), log))

    batches("wide")

    by_process = Counter(log.read_text().split())
    assert len(by_process) > 0
    assert set(by_process.values()) == {1}


def test_a_value_is_found_again_by_its_fingerprint() -> None:
    sent = pickle.dumps(PerRun({"a": 1}))

    received = pickle.loads(sent)
    assert received.value == {"a": 1}
    assert pickle.loads(sent) is received
    assert pickle.loads(pickle.dumps(received)) is received
    assert pickle.loads(pickle.dumps(PerRun({"a": 2}))) is not received

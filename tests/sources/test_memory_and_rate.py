"""`Memory` and `Rate` as sources: columns, identity, repeatable rows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.sources.keeping import opening

import millstream as ms
from millstream.engine.kafka_environment import KafkaEnvironment
from millstream.engine.kernels.kernels import decoder_of
from millstream.errors import InvalidInput, InvalidSpec
from millstream.plan.stages import cut
from millstream.schema import Schema
from millstream.sources.decode import Decoder
from millstream.sources.memory import Memory
from millstream.sources.rate import Rate

if TYPE_CHECKING:
    from pathlib import Path


def test_the_columns_of_rows_are_inferred_from_their_values() -> None:
    rows: list[dict[str, Any]] = [
        {"a": 1, "b": 1, "c": "x", "t": datetime(2026, 1, 1, tzinfo=UTC), "d": date(2026, 1, 1)},
        {"a": None, "b": 2.5, "n": Decimal("1.25"), "l": [{"x": 1}, {"y": True}], "r": b"x"},
    ]
    assert Memory(rows).row_schema() == Schema.parse(
        "a long, b double, c string, t timestamp, d date, n decimal(38,2), "
        "l array<struct<x: long, y: boolean>>, r binary"
    )


def test_rows_without_one_type_or_without_rows_need_a_schema() -> None:
    with pytest.raises(InvalidSpec, match="the column a needs values of one type; got int, str"):
        Memory([{"a": 1}, {"a": "x"}]).row_schema()
    with pytest.raises(InvalidSpec, match="the column a needs values of one type; got only None"):
        Memory([{"a": None}]).row_schema()
    with pytest.raises(InvalidSpec, match="needs rows or a schema; got neither"):
        Memory().row_schema()
    with pytest.raises(InvalidSpec, match="Memory needs rows as dicts; got 5"):
        Memory([5])  # type: ignore[list-item]
    assert Memory(schema="a long").row_schema() == Schema.parse("a long")
    assert Memory("kept").name == "kept"


def test_rows_are_records_that_the_json_format_reads_back(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"x": float("nan"), "b": b"\0", "t": datetime(2026, 1, 1, tzinfo=UTC)},
        {"x": float("-inf"), "b": None, "t": None},
    ]
    memory = Memory(rows)
    raw = memory.reader(opening(tmp_path)).table({0: (0, 2)})
    made = memory.opener().open(raw, memory.row_schema()).decoded.table.to_pylist()
    assert [repr(row["x"]) for row in made] == ["nan", "-inf"]
    assert [(row["b"], row["t"]) for row in made] == [(r["b"], r["t"]) for r in rows]


def test_equal_rows_have_the_same_identity_and_different_rows_do_not(tmp_path: Path) -> None:
    identities = [Memory(rows).reader(opening(tmp_path)).extent().identity
            for rows in ([{"a": 1}], [{"a": 1}], [{"a": 2}], [{"a": 1}, {"a": 1}])]  # fmt: skip
    assert identities[0] == identities[1]
    assert len(set(identities)) == 3


def test_a_value_that_json_cannot_represent_is_refused_by_the_reader(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="Memory needs rows of JSON values"):
        Memory([{"a": object()}], schema="a string").reader(opening(tmp_path))


def test_rate_rows_depend_only_on_their_number(tmp_path: Path) -> None:
    now = 1_000_000_000_000_000
    rate = Rate(rows_per_second=3)
    made = rate.reader(opening(tmp_path, lambda: now))
    assert made.extent().end == {0: 0}
    now += 10_000_000
    again = rate.reader(opening(tmp_path, lambda: now))
    assert again.extent() == made.extent()
    assert again.extent().end == {0: 30}

    def rows(a: int, b: int) -> list[dict[str, Any]]:
        raw = again.table({0: (a, b)})
        opened = rate.opener().open(raw, rate.row_schema())
        assert opened.records["offset"].to_pylist() == list(range(a, b))
        found: list[dict[str, Any]] = opened.decoded.table.to_pylist()
        return found

    whole = rows(0, 30)
    assert rows(0, 7) + rows(7, 8) + rows(8, 30) == whole
    assert [row["value"] for row in whole] == list(range(30))
    start = datetime.fromtimestamp(1_000_000_000, tz=UTC)
    steps = [(row["at"] - start).total_seconds() for row in whole[:5]]
    assert steps == [0.0, 0.333333, 0.666666, 1.0, 1.333333]
    assert json.loads(again.originals({0: [1]})["value"][0].as_py())["value"] == 1


def test_rows_without_a_timestamp_are_compared_with_the_batch_clock() -> None:
    environment = KafkaEnvironment("any", None)
    decoders = []
    for source in (ms.Topic("t", schema="a long"), ms.Memory([{"a": 1}]),
                   ms.Files("x", format="text")):  # fmt: skip
        stages = cut(ms.Pipeline("p", ms.read(source, ahead="1 day").to(ms.Memory())).outputs)
        ((name, read),) = stages.reads.items()
        decoder = decoder_of(stages, name, environment.ahead(read))
        assert isinstance(decoder, Decoder)
        decoders.append(decoder)
    assert [decoder.by_clock for decoder in decoders] == [False, True, True]
    assert {decoder.ahead for decoder in decoders} == {86_400_000_000}


@pytest.mark.parametrize("rate", [0, -1, 2.5, True, 10**10])
def test_a_rate_needs_a_whole_number_of_rows(rate: Any) -> None:
    with pytest.raises(InvalidSpec, match="Rate needs an integer number of rows per second"):
        Rate(rows_per_second=rate)

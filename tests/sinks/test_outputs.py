"""Sinks in a pipeline: checks while building."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import millstream as ms
from millstream.engine.kafka_environment import KafkaEnvironment
from millstream.errors import InvalidSpec
from millstream.sinks.spec import OpenSink

if TYPE_CHECKING:
    from millstream.sinks.spec import Opening, Writer

ROWS = ms.read(ms.Topic("bids", schema="auction long, price double"))


def names(*outputs: object) -> list[str]:
    return [output.name for output in ms.Pipeline("p", *outputs).outputs]  # type: ignore[arg-type]


def test_outputs_to_a_topic_and_a_table_with_the_same_name_get_different_names() -> None:
    assert names(
        ROWS.to(ms.Topic("hot")), ROWS.to(ms.Postgres("hot")), ROWS.to(ms.Sqlite("a.db", "hot"))
    ) == ["hot", "hot-postgres", "hot-sqlite"]


def test_two_outputs_of_the_same_kind_need_different_names() -> None:
    with pytest.raises(InvalidSpec, match="'hot' twice"):
        names(ROWS.to(ms.Topic("hot")), ROWS.to(ms.Topic("hot")))
    with pytest.raises(InvalidSpec, match="'x' twice"):
        names(ROWS.to(ms.Topic("hot"), name="x"), ROWS.to(ms.Postgres("hot"), name="x"))


def test_every_built_in_sink_can_be_opened() -> None:
    sinks = [ms.Postgres("t"), ms.Sqlite("a.db", "t"), ms.Delta("lake"), ms.Function(print)]
    assert all(isinstance(sink, OpenSink) for sink in sinks)
    assert not isinstance(ms.Topic("t"), OpenSink)


def test_sinks_that_commit_together_share_one_writer() -> None:
    environment = KafkaEnvironment("p", None)
    same = {environment.writer_of(ms.Postgres(table, url="${env:A}")) for table in ("a", "b")}
    assert same == {"postgres ${env:A}"}
    assert environment.writer_of(ms.Postgres("a", url="${env:B}")) not in same
    assert environment.writer_of(ms.Sqlite("a.db", "x")) == environment.writer_of(
        ms.Sqlite("a.db", "y")
    )
    assert environment.writer_of(ms.Files("out")) == "files out"


@dataclass(frozen=True)
class Nowhere:
    name: str


def test_a_sink_that_cannot_be_opened_is_refused_by_name() -> None:
    with pytest.raises(InvalidSpec, match="needs sinks it can open; got Nowhere"):
        KafkaEnvironment("p", None).writer_of(Nowhere("x"))


def test_a_user_defined_writer_gets_all_sinks_of_its_system() -> None:
    openings: list[Opening] = []

    @dataclass(frozen=True)
    class Mine:
        name: str

        @property
        def system(self) -> str:
            return "mine"

        def writer(self, opening: Opening) -> Writer:
            openings.append(opening)
            return ms.Function(print).writer(opening)

    environment = KafkaEnvironment("p", None, epoch=lambda: 7, delivery="at_most_once")
    for name in ("a", "b", "a"):
        environment.writer_of(Mine(name))
    environment.writer("mine", "job")
    (opening,) = openings
    assert opening.sinks == (Mine("a"), Mine("b"))
    assert (opening.pipeline, opening.job, opening.epoch) == ("p", "job", 7)
    assert opening.delivery == "at_most_once"

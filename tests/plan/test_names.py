"""Names of folders, steps and stages are safe, readable and unique."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import InvalidSpec
from millstream.plan.graph import Read
from millstream.plan.names import check_given_name, folder_name
from millstream.plan.stages import cut

SCHEMA = "k string, v long, ts timestamp"


def source(topic: str = "t") -> ms.Stream:
    return ms.read(ms.Topic(topic, schema=SCHEMA), time="ts")


def windowed(stream: ms.Stream) -> ms.Stream:
    return stream.by("k").window(ms.tumbling("1 second")).agg(n=ms.count())


@given(st.lists(st.text(max_size=120), max_size=6, unique=True))
def test_a_folder_is_unique_and_never_outside_its_parent(names: list[str]) -> None:
    folders = [folder_name(name) for name in names]

    assert len(set(folders)) == len(names)
    for folder in folders:
        assert re.fullmatch(r"[A-Za-z0-9_.%-]*", folder)
        assert not folder.startswith(".")
        assert len(folder) < 240


def test_a_usual_name_is_its_own_folder() -> None:
    assert folder_name("hot-auctions_v2.1") == "hot-auctions_v2.1"
    assert folder_name("..") == "%2e%."


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, 5])
def test_a_given_name_needs_characters_and_not_too_many(name: str) -> None:
    with pytest.raises(InvalidSpec, match="1 to 100 characters"):
        check_given_name(name, "a step")


def test_a_stage_ends_in_a_step_or_in_outputs_and_comes_after_what_it_needs() -> None:
    read = source()
    sums = windowed(read.where("v > 0"))
    again = windowed(sums)
    outputs = [
        again.to(ms.Topic("again")),
        sums.to(ms.Topic("sums")),
        sums.where("n > 1").to(ms.Topic("many")),
        read.to(ms.Topic("raw")),
        read.to(ms.Topic("copy")),
    ]

    stages = cut(outputs)

    found = [(s.name, s.step is not None, s.sides[0].bare, [o.name for o in s.outputs])
             for s in stages.stages]  # fmt: skip
    assert found == [
        ("tumbling(k)", True, False, ["sums"]),
        ("tumbling(k)#2", True, True, ["again"]),
        ("many", False, False, ["many"]),
        ("raw", False, True, ["raw", "copy"]),
    ]  # fmt: skip
    assert isinstance(read.node, Read)
    assert stages.reporter(read.node) is stages.stages[0]
    assert list(stages.reads) == ["t"]
    assert list(stages.steps) == ["tumbling(k)", "tumbling(k)#2"]


def test_a_stream_used_twice_is_one_step() -> None:
    sums = windowed(source())

    stages = cut([sums.to(ms.Topic("a")), sums.to(ms.Topic("b")), windowed(sums).to(ms.Topic("c"))])

    assert [stage.name for stage in stages.stages] == ["tumbling(k)", "tumbling(k)#2"]
    assert [output.name for output in stages.stages[0].outputs] == ["a", "b"]

"""`Function`: user code as a sink, at least once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.batches import opened, staged

import millstream as ms
from millstream.errors import InvalidSpec, UserCodeFailed
from millstream.testing.sink_suite import SinkSuite


class TestFunction(SinkSuite):
    exactly_once = False

    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.calls: list[tuple[pa.Table, str, int]] = []

    def sink(self) -> ms.Function:
        return ms.Function(self.take)

    def take(self, rows: pa.Table, intent: str, batch: int) -> None:
        self.calls.append((rows, intent, batch))

    def rows(self) -> list[dict[str, Any]]:
        return [row for rows, _, _ in self.calls for row in rows.to_pylist()]

    def test_the_function_is_called_once_per_batch_with_the_intent_and_the_number(self) -> None:
        writer, _ = self.recovered()
        writer.write("one", 1, self.numbers(1, 2, 3))
        writer.write("two", 2, self.numbers(4))
        assert [(rows.column_names, rows.num_rows, intent, batch)
                for rows, intent, batch in self.calls] == [
                    (["n"], 3, "one", 1), (["n"], 1, "two", 2)]  # fmt: skip


def test_retractions_have_their_sign() -> None:
    seen: list[list[dict[str, Any]]] = []
    sink = ms.Function(lambda rows, intent, batch: seen.append(rows.to_pylist()))
    table = pa.table({"n": [1, 2], "_time": [0, 0], "_sign": pa.array([-1, 1], pa.int8())})
    opened(sink).write("one", 1, [staged(sink, table=table)])
    assert seen == [[{"n": 1, "_sign": -1}, {"n": 2, "_sign": 1}]]


def test_an_error_names_the_function_and_the_line() -> None:
    def careless(rows: pa.Table, intent: str, batch: int) -> None:
        raise KeyError("price")

    sink = ms.Function(careless)
    with pytest.raises(
        UserCodeFailed, match=r"'careless' of the output 'out' raised KeyError"
    ) as e:
        opened(sink).write("one", 1, [staged(sink, n=[1])])
    assert "test_function.py:" in str(e.value)


def test_the_name_is_that_of_the_function_or_the_given_one() -> None:
    assert ms.Function(print).name == "print"
    assert ms.Function(lambda rows, intent, batch: None).name == "function"
    assert ms.Function(print, name="shout").name == "shout"
    with pytest.raises(InvalidSpec, match="needs a callable"):
        ms.Function(7)  # type: ignore[arg-type]

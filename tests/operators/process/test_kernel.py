"""A function per key, compared with the same function over a plain dictionary."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.driving import Driver

from millstream.errors import InvalidInput, InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.process.kernel import ProcessKernel
from millstream.operators.process.spec import Process, Visit
from millstream.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INPUT = pa.schema(
    [
        ("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC")),
        *((name, tables.ENGINE[name]) for name in ("_source", "_partition", "_offset", "_sub")),
    ]
)  # fmt: skip
QUIET, SLOW = timedelta(microseconds=10), timedelta(microseconds=7)


def at(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def quiet(visit: Visit) -> Iterable[dict[str, Any]]:
    """Tell of a key once it has been quiet for 10 µs of event time; nudge it by the clock."""
    state = visit.state or {"n": 0, "last": EPOCH - timedelta(days=9), "path": ""}
    for row in visit.rows:
        state["n"] += row["v"]
        state["path"] += str(row["v"])
        state["last"] = max(state["last"], row["ts"])
        visit.at(state["last"] + QUIET)
        visit.after(SLOW)
    visit.state = state
    for kind, time in visit.timers:
        if kind == "clock":
            yield {"k": visit.key["k"], "n": state["n"], "why": "clock", "ts": visit.clock}
        elif visit.state is not None and time == state["last"] + QUIET:
            yield {"k": visit.key["k"], "n": state["n"], "why": state["path"], "ts": time}
            visit.state = None
    if visit.state is not None and not visit.rows and state["n"] == 0:
        visit.state = None


def made(function: Callable[[Visit], Any]) -> ProcessKernel:
    spec = Process(("k",), function, Schema.parse("n long, last timestamp, path string"),
                   Schema.parse("k string, n long, why string, ts timestamp"))  # fmt: skip
    return ProcessKernel(spec, INPUT, "ts")


class Plain:
    """The same function over a dictionary, with timers in a list."""

    def __init__(self) -> None:
        self.states: dict[Any, dict[str, Any]] = {}
        self.timers: list[tuple[str, datetime, Any]] = []

    def step(self, rows: list[dict[str, Any]], after: int, clock: int) -> list[tuple[Any, ...]]:
        keys = {row["k"] for row in rows}
        due = {
            (kind, time, key)
            for kind, time, key in self.timers
            if self._due(kind, time, after, clock)
        }
        self.timers = [timer for timer in self.timers if timer not in due]
        keys |= {key for _, _, key in due}
        given = []
        for key in keys:
            mine = [{"k": key, "v": r["v"], "ts": at(r["_time"])} for r in rows if r["k"] == key]
            come = sorted((kind, time) for kind, time, owner in due if owner == key)
            watermark = None if after in (MIN_TIME, END_OF_TIME) else at(after)
            visit = Visit({"k": key}, mine, self.states.pop(key, None), [], watermark, at(clock))
            visit.timers = [t for t in come if t[0] == "event"] + [
                t for t in come if t[0] == "clock"
            ]
            while True:
                given += [(r["k"], r["n"], r["why"], r["ts"]) for r in quiet(visit)]
                now = [(k, t) for k, t in visit.wanted if self._due(k, t, after, clock)]
                self.timers += [(k, t, key) for k, t in visit.wanted if (k, t) not in now]
                if not now or after == END_OF_TIME:
                    break
                visit.rows, visit.timers, visit.wanted = [], now, []
            if visit.state is not None:
                self.states[key] = visit.state
        return sorted(given, key=repr)

    @staticmethod
    def _due(kind: str, time: datetime, after: int, clock: int) -> bool:
        micros = (time - EPOCH) // timedelta(microseconds=1)
        return micros < after if kind == "event" else micros <= clock


rows: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"k": st.sampled_from([None, "a", "b", "c"]), "v": st.integers(1, 9),
     "_time": st.integers(-20, 60)}
)  # fmt: skip


@settings(max_examples=80)
@given(data=st.data())
def test_state_timers_and_rows_are_those_of_a_plain_dictionary(data: st.DataObject) -> None:
    marks = [MIN_TIME, *sorted(data.draw(st.lists(st.integers(-30, 80), min_size=1, max_size=5)))]
    marks += data.draw(st.sampled_from([[], [END_OF_TIME]]))
    cut = {"ranges": data.draw(st.sampled_from([1, 3])), "slices": data.draw(st.integers(1, 2)),
           "merge_every": data.draw(st.sampled_from([0, 2]))}  # fmt: skip
    clock, number, plain = 0, 0, Plain()
    with Driver(made(quiet), **cut) as driver:
        for before, after in pairwise(marks):
            clock += data.draw(st.integers(0, 6))
            come = data.draw(st.lists(rows, max_size=5))
            fed = [{"k": r["k"], "v": r["v"], "ts": at(r["_time"]), "_time": r["_time"],
                    "_source": 0, "_partition": 0, "_offset": number + place, "_sub": 0}
                   for place, r in enumerate(come)]  # fmt: skip
            number += len(come)
            schema = pa.schema([*INPUT, ("_time", pa.int64())])
            table = pa.Table.from_pylist(fed, schema=schema)
            left = driver.step(table, before=before, after=after, clock=clock)
            got = [(r["k"], r["n"], r["why"], r["ts"]) for r in left.rows]
            assert sorted(got, key=repr) == plain.step(come, after, clock)
            waiting = [t for kind, t, _ in plain.timers if kind == "event"]
            if after != END_OF_TIME:
                assert left.held == min(((t - EPOCH) // timedelta(microseconds=1) for t in waiting),
                                        default=END_OF_TIME)  # fmt: skip


def stepped(function: Callable[[Visit], Any]) -> Any:
    row = {"k": "a", "v": 1, "ts": EPOCH, "_source": 0, "_partition": 0, "_offset": 0, "_sub": 0}
    with Driver(made(function)) as driver:
        return driver.step(pa.Table.from_pylist([row], schema=INPUT), before=MIN_TIME, after=5)


def nothing_ends(visit: Visit) -> None:
    visit.at(EPOCH)


def another_state(visit: Visit) -> None:
    visit.state = {"m": 1}


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda visit: [{"x": 1}], "x"),
        (lambda visit: [5], "5"),
        (lambda visit: [{"k": "a", "n": "many", "ts": EPOCH}], "many"),
        (lambda visit: [{"k": "a", "n": 1}], "null ts"),
        (another_state, "m"),
        (nothing_ends, "in the past"),
    ],
)
def test_a_value_that_a_function_may_not_return_is_refused_in_one_sentence(
    function: Callable[[Visit], Any], got: str
) -> None:
    with pytest.raises(InvalidInput, match="process needs") as refused:
        stepped(function)

    assert got in str(refused.value)


def test_an_invalid_timer_is_refused() -> None:
    def wrong(visit: Visit) -> None:
        visit.at(5)  # type: ignore[arg-type]

    with pytest.raises(InvalidSpec, match="a timer needs a datetime"):
        stepped(wrong)


def test_a_users_error_is_passed_on_unchanged() -> None:
    def failing(visit: Visit) -> None:
        raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        stepped(failing)

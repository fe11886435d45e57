"""The checks that every sink has to pass: those of Millstream, and yours.

    class TestShelf(SinkSuite):
        def sink(self) -> Shelf:
            return Shelf("books")

        def rows(self) -> list[dict[str, Any]]:
            return everything_on_the_shelf()

pytest runs the class; every check starts with an empty sink.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import AlreadyRunning, DataGone, Fenced, Unavailable
from millstream.sinks.spec import Opening, OpenSink, Staged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.sinks.spec import Delivery, Writer

Row = dict[str, Any]
JOB, OTHER = "a" * 32, "b" * 32
_PATIENCE = 3.0
NUMBERS = pa.schema([("n", pa.int64()), ("_time", pa.int64()), ("_sign", pa.int8())])
WIDE = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int16()),
        ("whole", pa.int64()),
        ("real", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(38, 9)),
        ("tags", pa.list_(pa.string())),
        ("deep", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))])),
        ('a "quoted" näme; drop', pa.int64()),
    ]
)
TEXTS = [
    "",
    "a,b;c\t\"d\" 'e' \\ \\N \\.",
    "line\nbreak\r\n",
    "żółw 🐢 \u202e עברית",
    "null",
    "NULL",
    "%s {} $1",
]


class Crash(BaseException):
    """Simulates the death of the process."""


class SinkSuite(ABC):
    """The guarantees of a sink, as tests. Define how to create the sink and how to read it."""

    exactly_once = True
    """Whether a repeated batch is recognised; False for a sink without a ledger."""

    @abstractmethod
    def sink(self) -> OpenSink:
        """The sink under test; within one test always the same target."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """All rows that a reader of the target sees now, as dicts, in any order."""

    def keyed_sink(self) -> OpenSink | None:
        """A sink for the same target with the key `k`; None if the sink has no keys."""
        return None

    def seen(self, value: Any) -> Any:
        """How a reader sees a value that was sent, if that differs: text for a time, …"""
        return value

    # -- helpers of the checks ---------------------------------------------------

    def opening(self, sink: OpenSink, **options: Any) -> Opening:
        """What a writer gets to know about its run; `options` replace the defaults."""
        return Opening(**{"pipeline": "suite", "job": JOB, "epoch": 1, "sinks": (sink,),
                          "patience": _PATIENCE, **options})  # fmt: skip

    def open(self, sink: OpenSink | None = None, **options: Any) -> Writer:
        """A writer before its `recover`."""
        sink = sink or self.sink()
        return sink.writer(self.opening(sink, **options))

    def recovered(self, expected: str | None = None, **options: Any) -> tuple[Writer, str | None]:
        """A writer after `recover`, and the intent it found."""
        writer = self.open(**options)
        return writer, writer.recover(expected)

    def staged(self, table: pa.Table, sink: OpenSink | None = None) -> list[Staged]:
        """Rows as the engine passes them to a writer."""
        keys = getattr(sink, "keys", ())
        halves = [table.slice(0, table.num_rows // 2), table.slice(table.num_rows // 2)]
        parts = [half for half in halves if half.num_rows]
        return [Staged("out", "result", sink or self.sink(), keys, table.num_rows,
                       lambda: iter(parts))]  # fmt: skip

    def numbers(self, *numbers: int) -> list[Staged]:
        """Rows with one column `n`."""
        rows = [{"n": n, "_time": 1_000_000 * n, "_sign": 1} for n in numbers]
        return self.staged(pa.Table.from_pylist(rows, NUMBERS))

    def counted(self) -> dict[int, int]:
        """How often the sink has each number."""
        return dict(Counter(row["n"] for row in self.rows()))

    def once(self, *numbers: int) -> None:
        """The sink has each number once, or at least once without a ledger."""
        counted = self.counted()
        assert set(counted) == set(numbers), counted
        if self.exactly_once:
            assert set(counted.values()) <= {1}, counted

    # -- a batch -------------------------------------------------------------------

    def test_a_batch_is_visible_when_write_returns(self) -> None:
        writer, found = self.recovered()
        assert found is None
        writer.write("one", 1, self.numbers(1, 2, 3))
        self.once(1, 2, 3)
        writer.write("two", 2, self.numbers(4))
        self.once(1, 2, 3, 4)
        writer.close()

    def test_a_batch_without_rows_changes_nothing_and_is_remembered(self) -> None:
        writer, _ = self.recovered()
        writer.write("one", 1, self.numbers(1))
        writer.write("two", 2, ())
        writer.close()
        writer, found = self.recovered("two", epoch=2)
        assert found == "two"
        writer.close()
        self.once(1)

    def test_a_batch_of_many_rows_arrives_whole(self) -> None:
        many = 60_000
        table = pa.table(
            {"n": pa.array(range(many)), "text": pa.array([f"row {n}" for n in range(many)])}
        )
        writer, _ = self.recovered()
        writer.write("one", 1, self.staged(table))
        writer.close()
        rows = self.rows()
        assert len(rows) == many
        assert {row["n"]: row["text"] for row in rows} == {n: f"row {n}" for n in range(many)}

    # -- values ----------------------------------------------------------------------

    def test_every_type_and_null_comes_back_as_it_was_sent(self) -> None:
        full: Row = {
            "flag": True, "small": -32768, "whole": 2**63 - 1, "real": 0.1, "text": "x",
            "raw": b"\x00\xff\\", "day": date(2026, 2, 28),
            "at": datetime(2026, 1, 1, 23, 59, 59, 999_999, tzinfo=UTC),
            "price": Decimal("-12345678901234567890123456789.123456789"),
            "tags": ["a", 'b"', None], "deep": {"a": 1, "b": [1, None]},
            'a "quoted" näme; drop': 7,
        }  # fmt: skip
        self._come_back([full, dict.fromkeys(WIDE.names), {**full, "tags": [], "text": "y"}], WIDE)

    def test_every_text_comes_back_as_it_was_sent(self) -> None:
        schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
        self._come_back([{"n": n, "text": text} for n, text in enumerate(TEXTS)], schema)

    def test_numbers_at_the_edges_come_back_as_they_were_sent(self) -> None:
        schema = pa.schema([("whole", pa.int64()), ("real", pa.float64())])
        reals = [float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308, 0.1 + 0.2, -0.0, 1e22]
        wholes = [-(2**63), 2**63 - 1, 0, 2**53 + 1, -1, 1, 7]
        sent = [{"whole": w, "real": r} for w, r in zip(wholes, reals, strict=True)]
        self._come_back(sent, schema)

    def _come_back(self, sent: Sequence[Row], schema: pa.Schema) -> None:
        writer, _ = self.recovered()
        writer.write("one", 1, self.staged(pa.Table.from_pylist(list(sent), schema)))
        writer.close()
        wanted = [{name: self.seen(value) for name, value in row.items()} for row in sent]
        got = self.rows()
        assert sorted(map(repr, map(_sorted, got))) == sorted(map(repr, map(_sorted, wanted)))

    # -- crashes -------------------------------------------------------------------------

    def test_a_run_killed_before_its_commit_has_written_nothing(self) -> None:
        self._crash("before a sink's commit")
        writer, found = self.recovered("one", epoch=2)
        if found != "two":
            writer.write("two", 2, self.numbers(2))
        writer.close()
        self.once(1, 2)

    def test_a_run_killed_after_its_commit_has_written_all(self) -> None:
        self._crash("after a sink's commit")
        writer, found = self.recovered("one", epoch=2)
        if self.exactly_once:
            assert found == "two"
        if found != "two":
            writer.write("two", 2, self.numbers(2))
        writer.close()
        self.once(1, 2)

    def _crash(self, point: str) -> None:
        """A run that writes batch one and dies at a point of batch two."""
        armed: list[str] = []

        def on_step(reached: str) -> None:
            if armed and reached == point:
                raise Crash

        writer = self.open(on_step=on_step)
        writer.recover(None)
        writer.write("one", 1, self.numbers(1))
        armed.append(point)
        try:
            writer.write("two", 2, self.numbers(2))
        except Crash:
            writer.close()
            return
        raise AssertionError(f"the writer did not call on_step({point!r})")

    def test_the_intent_written_last_is_found_by_the_next_run(self) -> None:
        writer, _ = self.recovered()
        for batch, intent in enumerate(("one", "two", "three"), start=1):
            writer.write(intent, batch, self.numbers(batch))
        writer.close()
        writer, found = self.recovered("three", epoch=2)
        assert found == "three"
        writer.write("four", 4, self.numbers(4))
        writer.close()
        self.once(1, 2, 3, 4)

    def test_a_sink_that_has_lost_its_ledger_stops_the_job(self) -> None:
        if self.exactly_once:
            writer = self.open()
            _raises(DataGone, lambda: writer.recover("one"))
            writer.close()

    # -- zombies and other jobs ----------------------------------------------------------

    def test_a_fenced_run_writes_nothing(self) -> None:
        if not self.exactly_once:
            return
        zombie, _ = self.recovered()
        zombie.write("one", 1, self.numbers(1))
        successor, found = self.recovered("one", epoch=2)
        assert found == "one"
        _raises(Fenced, lambda: zombie.write("two", 2, self.numbers(2)))
        successor.write("zwei", 2, self.numbers(3))
        _raises(Fenced, lambda: zombie.write("three", 3, self.numbers(4)))
        zombie.close()
        successor.close()
        self.once(1, 3)

    def test_a_run_with_a_lower_epoch_does_not_fence_one_with_a_higher(self) -> None:
        if not self.exactly_once:
            return

        def owned() -> None:
            raise Fenced("the job needs one runner")

        newer, _ = self.recovered(epoch=2)
        older = self.open(epoch=1, check_owned=owned)
        _raises(Fenced, lambda: older.recover(None))
        newer.write("one", 1, self.numbers(1))
        newer.close()
        older.close()
        self.once(1)

    def test_a_zombie_that_wakes_before_its_commit_adds_nothing(self) -> None:
        """The successor starts just before the zombie's commit.

        If the zombie holds a lock, the successor raises, and finds the zombie's batch after that
        has ended.
        """
        if not self.exactly_once:
            return
        successors: list[Writer] = []

        def meanwhile(point: str) -> None:
            if point == "before a sink's commit" and not successors:
                successors.append(self.open(epoch=2, patience=1.0))
                found = successors[0].recover(None)
                assert found is None
                successors[0].write("one", 1, self.numbers(1))

        zombie = self.open(on_step=meanwhile)
        zombie.recover(None)
        try:
            zombie.write("one", 1, self.numbers(1))
        except (Fenced, Unavailable):
            pass
        else:
            raise AssertionError("the zombie was not fenced, and the successor did not wait")
        zombie.close()
        for successor in successors:
            successor.close()
        writer, found = self.recovered(epoch=3)
        if found != "one":
            writer.write("one", 1, self.numbers(1))
        writer.close()
        self.once(1)

    def test_another_job_is_refused_unless_it_takes_over(self) -> None:
        if not self.exactly_once:
            return
        first, _ = self.recovered()
        first.write("one", 1, self.numbers(1))
        other = self.open(job=OTHER)
        _raises(AlreadyRunning, lambda: other.recover(None))
        other.close()
        first.write("two", 2, self.numbers(2))
        successor, found = self.recovered(job=OTHER, take_over=True)
        assert found is None
        _raises(Fenced, lambda: first.write("three", 3, self.numbers(3)))
        first.close()
        successor.write("uno", 1, self.numbers(4))
        successor.close()
        self.once(1, 2, 4)

    # -- without a ledger ------------------------------------------------------------------

    def test_at_least_once_trusts_the_commit_and_loses_nothing(self) -> None:
        delivery: Delivery = "at_least_once"
        writer, found = self.recovered("zero", delivery=delivery)
        assert found == "zero"
        writer.write("one", 1, self.numbers(1))
        writer.write("one", 1, self.numbers(1))
        writer.close()
        assert set(self.counted()) == {1}

    # -- keys ------------------------------------------------------------------------------

    def test_the_last_state_of_a_key_wins(self) -> None:
        self._keyed([(1, "a", 1), (2, "b", 1), (1, "c", 1)], [(2, "d", 1)], {1: "c", 2: "d"})

    def test_a_retracted_row_is_deleted_and_a_changed_one_is_replaced(self) -> None:
        first = [(1, "a", 1), (2, "b", 1), (3, "c", 1)]
        second = [(1, "a", -1), (2, "b", -1), (2, "B", 1), (4, "d", 1), (4, "d", -1), (9, "z", -1)]
        self._keyed(first, second, {2: "B", 3: "c"})

    def test_a_null_is_a_key_like_any_other(self) -> None:
        first = [(None, "a", 1), (1, "b", 1)]
        self._keyed(first, [(None, "c", 1)], {None: "c", 1: "b"})

    def test_a_null_key_can_be_retracted(self) -> None:
        self._keyed([(None, "a", 1), (1, "b", 1)], [(None, "a", -1)], {1: "b"})

    def _keyed(
        self,
        first: Sequence[tuple[int | None, str, int]],
        second: Sequence[tuple[int | None, str, int]],
        wanted: Mapping[Any, str],
    ) -> None:
        sink = self.keyed_sink()
        if sink is None:
            return
        writer = sink.writer(self.opening(sink))
        writer.recover(None)
        for batch, rows in enumerate((first, second), start=1):
            table = pa.table(
                {
                    "k": pa.array([k for k, _, _ in rows], pa.int64()),
                    "v": pa.array([v for _, v, _ in rows]),
                    "_sign": pa.array([s for _, _, s in rows], pa.int8()),
                }
            )
            writer.write(f"batch {batch}", batch, self.staged(table, sink))
        writer.close()
        rows_seen = self.rows()
        assert len(rows_seen) == len(wanted), rows_seen
        assert {row["k"]: row["v"] for row in rows_seen} == wanted


def _sorted(row: Row) -> list[tuple[str, Any]]:
    """A row in a form that compares equal for all libraries of time zones."""
    return sorted(
        (name, value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value)
        for name, value in row.items()
    )


def _raises(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")

"""Charts and live tables: bounded, exactly once, read while the job is down."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from millstream.errors import DataGone, Fenced, InvalidSpec
from millstream.sinks.live.live import Chart, LiveTable
from millstream.sinks.live.store import LiveWriter, live_outputs, store_file
from millstream.sinks.spec import Opening, Staged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from millstream.sinks.spec import Sink

JOB = "0123456789abcdef"
CHART = Chart("views", x="window_start", y="n", by="page")
TABLE = LiveTable("newest", keep=3)


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))


def opened(epoch: int = 1, expected: str | None = None) -> tuple[LiveWriter, str | None]:
    writer = LiveWriter(Opening("shop", JOB, epoch, (CHART, TABLE)))
    return writer, writer.recover(expected)


def staged(sink: Sink, rows: Sequence[tuple[int, str, int]], signs: list[int] | None = None
           ) -> Staged:  # fmt: skip
    """Staged rows of (minute, page, n)."""
    starts = [datetime(2026, 1, 1, 0, minute, tzinfo=UTC) for minute, _, _ in rows]
    table = pa.table({
        "window_start": pa.array(starts, pa.timestamp("us", "UTC")),
        "page": [page for _, page, _ in rows],
        "n": pa.array([n for _, _, n in rows], pa.int64()),
        "_time": pa.array([0] * len(rows), pa.int64()),
    })  # fmt: skip
    if signs is not None:
        table = table.append_column("_sign", pa.array(signs, pa.int8()))

    def tables() -> Iterator[pa.Table]:
        yield table

    return Staged(sink.name, "result", sink, (), len(rows), tables)


def shown(output: str) -> list[tuple[int, str, int]]:
    [found] = live_outputs(JOB, output)
    rows: list[dict[str, Any]] = [json.loads(row) for row in found.rows]
    return [(int(row["window_start"][14:16]), row["page"], row["n"]) for row in rows]


def test_rows_are_there_after_their_batch_with_its_number() -> None:
    writer, last = opened()
    assert last is None
    writer.write("i1", 7, [staged(CHART, [(1, "/", 3)]), staged(TABLE, [(1, "/", 3)])])
    writer.close()
    assert shown("views") == shown("newest") == [(1, "/", 3)]
    [chart, table] = live_outputs(JOB)
    assert (chart.batch, chart.spec["kind"], table.spec["kind"]) == (7, "Chart", "LiveTable")


def test_results_keep_their_order_whichever_was_written_last() -> None:
    writer, _ = opened()
    writer.write("i1", 1, [staged(CHART, [(1, "/", 3)]), staged(TABLE, [(1, "/", 3)])])
    writer.write("i2", 2, [staged(CHART, [(2, "/", 4)])])
    writer.close()
    assert [found.output for found in live_outputs(JOB)] == ["views", "newest"]


def test_a_repeated_point_replaces_the_earlier_one() -> None:
    writer, _ = opened()
    writer.write("i1", 1, [staged(CHART, [(1, "/", 3), (1, "/cart", 1)])])
    writer.write("i2", 2, [staged(CHART, [(1, "/", 5)])])
    writer.close()
    assert sorted(shown("views")) == [(1, "/", 5), (1, "/cart", 1)]


def test_retracted_rows_are_removed_with_and_without_a_key() -> None:
    writer, _ = opened()
    rows = [(1, "/", 3), (2, "/", 4)]
    writer.write("i1", 1, [staged(CHART, rows), staged(TABLE, rows)])
    taken = [(1, "/", 3), (1, "/", 9)]
    writer.write("i2", 2, [staged(CHART, taken, [-1, 1]), staged(TABLE, taken, [-1, 1])])
    writer.close()
    assert sorted(shown("views")) == sorted(shown("newest")) == [(1, "/", 9), (2, "/", 4)]


def test_only_the_newest_rows_are_kept() -> None:
    writer, _ = opened()
    for batch in range(1, 6):
        writer.write(f"i{batch}", batch, [staged(TABLE, [(batch, "/", 1), (batch, "/", 2)])])
    writer.close()
    assert shown("newest") == [(4, "/", 2), (5, "/", 1), (5, "/", 2)]


def test_the_next_run_learns_what_was_written_last() -> None:
    writer, _ = opened()
    writer.write("i1", 1, [staged(TABLE, [(1, "/", 1)])])
    writer.close()
    again, last = opened(2, "i1")
    again.close()
    assert last == "i1"


@dataclass
class Crashes:
    """Raises at a point of the protocol, as a kill would."""

    point: str
    reached: list[str] = field(default_factory=list)

    def __call__(self, point: str) -> None:
        self.reached.append(point)
        if point == self.point:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("point", "last", "rows"),
    [("before a sink's commit", "i1", 1), ("after a sink's commit", "i2", 2)],
)
def test_after_a_crash_around_the_commit_the_batch_and_its_mark_agree(
    point: str, last: str, rows: int
) -> None:
    writer, _ = opened()
    writer.write("i1", 1, [staged(TABLE, [(1, "/", 1)])])
    writer.close()
    dying = LiveWriter(Opening("shop", JOB, 2, (TABLE,), on_step=Crashes(point)))
    dying.recover("i1")
    with pytest.raises(KeyboardInterrupt):
        dying.write("i2", 2, [staged(TABLE, [(2, "/", 2)])])
    dying.close()
    again, found = opened(3, "i1")
    again.close()
    assert found == last
    assert len(shown("newest")) == rows


def test_a_zombie_writes_nothing_after_its_successor_has_opened_the_store() -> None:
    zombie, _ = opened(1)
    zombie.write("i1", 1, [staged(TABLE, [(1, "/", 1)])])
    successor, _ = opened(2, "i1")
    with pytest.raises(Fenced, match="a newer run"):
        zombie.write("i2", 2, [staged(TABLE, [(2, "/", 2)])])
    successor.write("i2", 2, [staged(TABLE, [(2, "/", 3)])])
    with pytest.raises(Fenced):
        opened(1)
    for writer in (zombie, successor):
        writer.close()
    assert shown("newest") == [(1, "/", 1), (2, "/", 3)]


def test_a_deleted_store_stops_the_job_with_a_reason() -> None:
    with pytest.raises(DataGone, match="none, though an earlier batch wrote one"):
        opened(2, "i1")


def test_a_job_without_charts_shows_none() -> None:
    assert list(live_outputs(JOB)) == []
    assert not store_file(JOB).exists()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Chart("", y="n"), "Chart needs a name"),
        (lambda: Chart("c", y=[]), "Chart(y=…) needs names of columns"),
        (lambda: Chart("c", y=["a", "b"], by="page"), "Chart(by=…) needs one y"),
        (lambda: Chart("c", y="n", keep=0), "from 1 to 100,000"),
        (lambda: Chart("c", y="n", shape="pie"), 'needs "line" or "bars"'),  # type: ignore[arg-type]
        (lambda: LiveTable("t", keep=True), "from 1 to 100,000"),
        (lambda: LiveTable("t", key=["a", "a"]), "LiveTable(key=…) needs distinct column names"),
    ],
)
def test_an_invalid_chart_is_refused_at_its_line(make: Any, sentence: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        make()
    assert sentence in str(refused.value)


def test_an_unknown_column_is_refused_while_building() -> None:
    import millstream as ms

    bids = ms.read(ms.Topic("bids", schema="auction long, price double, ts timestamp"), time="ts")
    with pytest.raises(InvalidSpec, match="cost"):
        bids.to(ms.Chart("prices", x="ts", y="cost"))
    with pytest.raises(InvalidSpec, match="bidder"):
        bids.to(ms.LiveTable("newest", key="bidder"))

"""`lookup` meets whole tables: events stay in the log until a table is read to its first end.

The oracle is a dictionary of everything that was in the table when the job started.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.scenes import PLACES, drive_in
from tests.faults.small_world import Crash, Small, install_fault_points

import millstream as ms
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.checkpoint.fault_points import POINTS
from millstream.engine.lanes.planner import Sizing
from millstream.engine.recovery import unfinished_rewind
from millstream.engine.recovery.rewind import Rewinder
from millstream.errors import InvalidSpec
from millstream.sources.rows_reader import RowsReader
from millstream.sources.spec import TooMuch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.sources.spec import Ranges

pytestmark = pytest.mark.spark

LANES = pytest.mark.parametrize("lane", PLACES)
PROTOCOL = [point for point in POINTS if "writing" not in point]
KEYS = 40
START = 1_767_225_600_000_000


@dataclass
class Cuts(Sizing):
    """Batches of so many records, whatever was learnt."""

    target: float = 1.0
    records: int = 10

    def __post_init__(self) -> None:
        self.budget = 200.0 * self.records

    def learn(
        self, source_bytes: Mapping[str, tuple[int, int]], seconds: float, *, limited: bool
    ) -> None:
        """Nothing: batches stay as small as the test wants them."""


def log(topic: str, schema: str, **options: Any) -> ms.Topic:
    return ms.Topic(topic, schema=schema, **options)


def events(topic: str = "e", **options: Any) -> ms.Stream:
    return ms.read(log(topic, "id long, k long, ts timestamp"), idle=None, **options)


def prices(topic: str = "p") -> ms.Table:
    return ms.table(log(topic, "k long, v long"), key="k")


class Shop(Small):
    """A job over logs in memory, whose batches hold a few records each."""

    def __init__(self, folder: Path, spark: SparkSession, *streams: ms.Stream) -> None:
        outputs = [one.to(ms.Topic(f"out{place}")) for place, one in enumerate(streams)]
        super().__init__(folder, spark, ms.Pipeline("shop", *outputs))
        self.sizing = Cuts()
        vars(self.environment)["existing"] = lambda sinks: []

    def put(self, topic: str, rows: Sequence[dict[str, Any]], partition: int = 0) -> None:
        for row in rows:
            record = {"key": None, "value": json.dumps(row).encode(), "headers": None,
                      "timestamp": START}  # fmt: skip
            self.environment.log.append(topic, partition, record)

    def events(self, count: int = 60, topic: str = "e", first: int = 0) -> None:
        for place in range(first, first + count):
            row = {
                "id": place,
                "k": place % (KEYS + 5),
                "ts": f"2026-01-01T00:00:{place % 60:02d}Z",
            }
            self.put(topic, [row], partition=place % 2)

    def prices(self, topic: str = "p", first: int = 0) -> None:
        """Each key twice, the value that counts behind the other, spread over two partitions."""
        for value in (0, 1):
            rows = [{"k": key, "v": first + 10 * key + value} for key in range(KEYS)]
            self.put(topic, rows[::2])
            self.put(topic, rows[1::2], partition=1)

    def found(self, output: str = "out0") -> Counter[tuple[Any, ...]]:
        return Counter((row["id"], row["v"]) for _, name, row in self.environment.sinks.rows
                       if name == output)  # fmt: skip

    def positions(self) -> dict[str, int]:
        """How many records of each source have been read."""
        head = Checkpoint(self.folder).head()
        return {name: sum(state.next.values()) for name, state in head.sources.items()}


def wanted(count: int = 60, first: int = 0) -> Counter[tuple[int, int | None]]:
    """Each event with the last value of its key; some keys are not in the table."""
    table = {key: 10 * key + 1 for key in range(KEYS)}
    return Counter((place, table.get(place % (KEYS + 5))) for place in range(first, first + count))


@pytest.mark.timeout(300)
@LANES
def test_twenty_thousand_events_all_match_a_table_of_twenty_thousand_rows(
    lane: Any, tmp_path: Path
) -> None:
    count, out = 20_000, ms.Memory()
    came = ms.read(ms.Memory([{"id": n, "k": count - 1 - n} for n in range(count)], name="came"))
    rows = ms.Memory([{"k": n, "v": 2 * n} for n in range(count)], name="rows")
    found = came.lookup(ms.table(rows, key="k"), on="k", how="left")
    ms.Pipeline("repro", found.to(out)).run(until="finished", lane=lane,
                                            checkpoint=tmp_path / "job")  # fmt: skip
    assert sum(row["v"] is None for row in out.rows) == 0
    assert {row["id"]: row["v"] for row in out.rows} == {
        n: 2 * (count - 1 - n) for n in range(count)
    }
    assert len(out.rows) == count


@LANES
def test_no_event_is_read_before_the_table_for_any_batches_crashes_and_restarts(
    lane: Any, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, table = random.Random(11), prices()
    found = events().lookup(table, on="k", how="left")
    shop = Shop(tmp_path / "job", spark, found, table.changes())
    install_fault_points(shop.environment, monkeypatch)
    shop.events()
    shop.prices()
    shop.lane = lane
    for point in PROTOCOL:
        shop.sizing = Cuts(records=chance.randrange(4, 12))
        shop.crash_at(point)
        shop.step()
        at = shop.positions()
        assert at.get("p") == 2 * KEYS or not at.get("e")
    assert shop.environment.at == {}
    shop.finish()
    assert shop.found() == wanted()


def test_every_kind_of_stream_and_table_waits(tmp_path: Path, spark: SparkSession) -> None:
    """Streams of several sources, behind a window and a join; tables behind row-wise steps,
    aggregates, `latest`, and a join of two tables, several of them in one chain."""
    both = events().union(events("f"))
    counted = (
        events("g", time="ts").by("k").window(ms.tumbling("1 hour")).agg(id=ms.count())
        .select("k", "id")
    )  # fmt: skip
    near = (
        events("h", time="ts").select("id", "k", "ts")
        .join(events("i", time="ts").select("id as other", "k as j", "ts as at"),
              on={"id": "other"}, within="0 seconds").select("id", "k")
    )  # fmt: skip
    where = prices("pa").where("v > 0").with_columns(v="v + 0")
    latest = ms.read(log("pb", "k long, v long")).latest(by="k")
    summed = ms.read(log("pc", "k long, v long")).by("k").agg(v=ms.max("v"))
    joined = (
        prices("pd").select("k", "v as w")
        .join(prices("pe"), on="k").select("k", "v", "w")
    )  # fmt: skip
    chained = (
        events("j").lookup(where, on="k", how="left").select("id", "k", "v as u")
        .lookup(summed, on="k", how="left")
    )  # fmt: skip
    shop = Shop(
        tmp_path / "job", spark,
        both.lookup(where, on="k", how="left"), counted.lookup(latest, on="k", how="left"),
        near.lookup(joined, on="k", how="left"), chained,
    )  # fmt: skip
    for number, topic in enumerate("efghij"):
        shop.events(50, topic, first=100 * number if topic in "ef" else 0)
    for topic in ("pa", "pb", "pc", "pd", "pe"):
        shop.prices(topic)
    shop.sizing = Cuts(records=40)
    shop.step()
    first = shop.positions()
    assert sum(first[f"p{part}"] for part in "abcde") > 0
    assert not any(first[topic] for topic in "efghij")
    shop.finish()

    assert shop.found("out0") == wanted(50) + wanted(50, first=100)
    hours = Counter(place % (KEYS + 5) for place in range(50))
    table = {key: 10 * key + 1 for key in range(KEYS)}
    assert Counter((row["k"], row["id"], row["v"]) for _, name, row in shop.environment.sinks.rows
                   if name == "out1") == Counter(
        (key, count, table.get(key)) for key, count in hours.items()
    )  # fmt: skip
    assert shop.found("out2") == wanted(50)
    assert shop.found("out3") == wanted(50)


def test_a_source_that_a_table_is_made_from_does_not_wait_for_itself(
    tmp_path: Path, spark: SparkSession
) -> None:
    """It does wait for another source of the same table; two that would wait for each other
    do not."""
    stream, more = events(), events("m")
    newest = stream.union(more).latest(by="k").select("k", "id as v")
    left, right = events("l"), events("r")
    crossed = (left.lookup(right.latest(by="k").select("k", "id as v"), on="k"),
               right.lookup(left.latest(by="k").select("k", "id as v"), on="k"))  # fmt: skip
    shop = Shop(tmp_path / "job", spark, stream.lookup(newest, on="k", how="left"), *crossed)
    for topic in "emlr":
        shop.events(20, topic)
    shop.sizing = Cuts(records=8)
    shop.step()
    at = shop.positions()
    assert at["e"] == 0
    assert all(at[name] for name in "mlr")
    shop.finish()
    assert {row["id"] for _, name, row in shop.environment.sinks.rows if name == "out0"} == set(
        range(20)
    )
    assert all(
        row["v"] is not None for _, name, row in shop.environment.sinks.rows if name == "out0"
    )


def test_the_end_that_was_found_first_stays_while_the_table_grows(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = Shop(tmp_path / "job", spark, events().lookup(prices(), on="k", how="left"))
    shop.prices()
    shop.events()
    shop.step()
    assert Checkpoint(shop.folder).head().table_ends == {"p": {0: KEYS, 1: KEYS}}
    for _ in range(40):
        shop.put("p", [{"k": 10_000, "v": 0}] * 10)
        shop.step()
    assert shop.positions()["e"] > 0
    assert Checkpoint(shop.folder).head().table_ends == {"p": {0: KEYS, 1: KEYS}}
    shop.finish()
    assert shop.found() == wanted()


def test_an_empty_table_delays_no_event_and_neither_does_a_new_partition(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = Shop(tmp_path / "job", spark, events().lookup(prices(), on="k", how="left"))
    shop.environment.log.partition("p", 0)
    shop.events(4)
    shop.step()
    assert shop.positions() == {"e": 4, "p": 0}
    shop.put("p", [{"k": 0, "v": 5}] * 30, partition=1)
    shop.events(4, first=4)
    shop.step()
    assert shop.positions()["e"] > 4
    shop.finish()


def test_events_that_wait_keep_a_job_from_being_finished(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The table alone fits the batch that is to be the last one, its events do not."""
    shop = Shop(tmp_path / "job", spark, events().lookup(prices(), on="k", how="left"))
    shop.put("p", [{"k": 1, "v": 11}] * 3)
    shop.events()
    with shop.run() as engine:
        engine.step(finish=True)
        assert not engine.head.finished
        assert not engine.caught_up
    assert shop.positions() == {"e": 0, "p": 3}
    shop.finish()
    assert shop.positions() == {"e": 60, "p": 3}


def test_events_wait_also_where_the_batch_that_ends_the_table_is_cut_short(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch over the rest of the table and events turns out to hold too much of the table."""
    shop = Shop(tmp_path / "job", spark, events().lookup(prices(), on="k", how="left"))
    shop.sizing = Cuts(records=1_000)
    shop.prices()
    shop.events()
    cuts = []
    table = RowsReader.table

    def too_much(self: RowsReader, ranges: Ranges, columns: Sequence[str] = ()) -> Any:
        held = sum(end - first for first, end in ranges.values())
        if held > 50 and self.extent().end == {0: KEYS, 1: KEYS}:
            cuts.append(held)
            raise TooMuch({place: first + 15 for place, (first, _) in ranges.items()})
        return table(self, ranges, columns)

    monkeypatch.setattr(RowsReader, "table", too_much)
    shop.finish()

    assert cuts
    assert shop.found() == wanted()


def test_a_log_that_has_become_shorter_releases_events_when_it_is_read(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = Shop(tmp_path / "job", spark, events().lookup(prices(), on="k", how="left"))
    shop.events(10)
    shop.prices()
    shop.step()
    read = Checkpoint(shop.folder).head().sources["p"].next
    for partition, at in read.items():
        del shop.environment.log.partition("p", partition)[at + 2 :]
    shop.finish()
    assert shop.positions()["e"] == 10


@pytest.fixture
def looked_up(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A job that has read part of its table and is asked to rewind."""
    shop = Shop(tmp_path / "job", spark, events().lookup(prices(), on="k", how="left"))
    install_fault_points(shop.environment, monkeypatch)
    monkeypatch.setattr(
        unfinished_rewind, "reached", lambda point, number: shop.environment.reach(point)
    )
    shop.events()
    shop.prices()
    return shop


def rewind(shop: Shop, to: Any, *, into: str | None = None) -> None:
    opened = Rewinder(shop.pipeline, Checkpoint(shop.folder), shop.environment)
    opened.rewind(to, into=into, again=into is None)


@pytest.mark.parametrize("batches", [1, 4, 10, 30])
@pytest.mark.parametrize("to", ["start", 1])
@pytest.mark.parametrize("into", [None, "-2"])
def test_a_job_rewound_to_before_the_end_of_its_table_waits_again(
    looked_up: Shop, batches: int, to: Any, into: str | None
) -> None:
    for _ in range(batches):
        looked_up.step()
    ends = Checkpoint(looked_up.folder).head().table_ends
    looked_up.put("p", [{"k": 10_000, "v": 0}] * 5)
    rewind(looked_up, to, into=into)
    assert Checkpoint(looked_up.folder).head().table_ends == ends
    at = looked_up.positions()
    while at.get("p", 0) < 2 * KEYS:
        assert not at.get("e")
        looked_up.step()
        at = looked_up.positions()
    looked_up.finish()
    found = looked_up.found(f"out0{into or ''}")
    assert set(found) == set(wanted())
    assert set(looked_up.found()) <= set(wanted())


def test_a_job_rewound_to_after_the_end_of_its_table_continues_at_once(looked_up: Shop) -> None:
    looked_up.step()
    while not looked_up.positions()["e"]:
        looked_up.step()
    batch = Checkpoint(looked_up.folder).head().batch
    looked_up.step()
    rewind(looked_up, batch)
    before = looked_up.positions()["e"]
    looked_up.step()
    assert looked_up.positions()["e"] > before
    looked_up.finish()
    assert set(looked_up.found()) == set(wanted())


def test_a_crash_in_the_middle_of_a_rewind_keeps_the_ends(looked_up: Shop) -> None:
    looked_up.step()
    ends = Checkpoint(looked_up.folder).head().table_ends
    looked_up.crash_at("after rewind")
    with pytest.raises(Crash):
        rewind(looked_up, "start")
    looked_up.put("p", [{"k": 10_000, "v": 0}] * 5)
    looked_up.step()
    assert Checkpoint(looked_up.folder).head().table_ends == ends
    looked_up.finish()
    assert looked_up.found() == wanted()


def test_a_lookup_that_is_added_later_waits_also_after_a_rewind(looked_up: Shop) -> None:
    """Its table is below no mark: the events before the marks need it all the same."""
    with_lookup = looked_up.pipeline
    alone = events().with_columns(v="k")
    looked_up.pipeline = ms.Pipeline("shop", alone.to(ms.Topic("out0")))
    with looked_up.run() as engine:
        while engine.step() is not None:
            pass
    looked_up.environment.sinks.rows.clear()
    looked_up.pipeline = with_lookup
    rewind(looked_up, "start")
    looked_up.finish()
    assert looked_up.found() == wanted()


def test_a_waiting_source_is_never_idle(tmp_path: Path, spark: SparkSession) -> None:
    """The clock passes its idleness many times while the table is read; its rows are on time."""
    stream = ms.read(log("e", "id long, k long, ts timestamp"), time="ts", idle="1 second")
    other = ms.read(log("o", "id long, k long, ts timestamp"), time="ts", idle="1 second")
    both = stream.lookup(prices(), on="k", how="left").union(
        other.with_columns(v="cast(null as long)")
    )
    counted = both.by("k").window(ms.tumbling("10 seconds")).agg(n=ms.count())
    shop = Shop(tmp_path / "job", spark, counted)
    shop.events()
    shop.prices()
    shop.put("o", [{"id": 0, "k": 0, "ts": "2026-01-01T00:10:00Z"}])
    with shop.run() as engine:
        while (facts := engine.step()) is not None:
            assert facts.late == 0
            shop.environment.now += 60_000_000
    assert shop.positions()["e"] == 60


@LANES
def test_drive_reads_what_was_fed_for_the_table_first(lane: Any) -> None:
    """All that was fed before the first step is there at the first start; later rows are not."""
    found = events().lookup(prices(), on="k", how="left")
    with drive_in(ms.Pipeline("p", found.to(ms.Topic("out"))), lane) as d:
        d.feed("e", [{"id": 1, "k": 1, "ts": 0}])
        d.feed("p", [{"k": 1, "v": 7}])
        d.step()
        d.feed("e", [{"id": 2, "k": 2, "ts": 0}])
        d.step()
        d.feed("p", [{"k": 2, "v": 8}])
        d.step()
        d.feed("e", [{"id": 3, "k": 2, "ts": 0}])
        d.restart()
        d.step()
        assert [(row["id"], row["v"]) for row in d.rows("out")] == [(1, 7), (2, None), (3, 8)]


@LANES
def test_events_wait_for_tables_in_files_and_in_databases_logs(lane: Any, tmp_path: Path) -> None:
    """One batch takes no more than a part of either table."""
    count, out = 20_000, ms.Memory()
    (tmp_path / "rows").mkdir()
    for part in range(4):
        rows = ({"k": k, "v": 2 * k} for k in range(part, count, 4))
        text = "\n".join(json.dumps(row) for row in rows)
        (tmp_path / "rows" / f"{part}.json").write_text(f"{text}\n")
    files = ms.Files(tmp_path / "rows", format="json", schema="k long, v long")
    came = ms.read(ms.Memory([{"id": n, "k": count - 1 - n} for n in range(count)], name="came"))
    found = came.lookup(ms.table(files, key="k").where("v > 0"), on="k", how="left")
    ms.Pipeline("files", found.to(out)).run(until="finished", lane=lane,
                                            checkpoint=tmp_path / "job")  # fmt: skip
    assert {row["id"]: row["v"] for row in out.rows} == {
        n: 2 * (count - 1 - n) or None for n in range(count)
    }


def test_events_wait_for_the_log_of_a_database(tmp_path: Path, spark: SparkSession) -> None:
    topic = log("d", "k long, v long")
    table = ms.table(topic, key="k", changes="debezium")
    shop = Shop(tmp_path / "job", spark, events().lookup(table, on="k", how="left"))
    shop.events()
    for value in (0, 1):
        for key in range(KEYS):
            after = {"k": key, "v": 10 * key + value}
            source = {"ts_ms": START // 1000 + value, "lsn": 100 * value + key}
            kind = "u" if value else "c"
            shop.put("d", [{"op": kind, "before": None, "after": after, "source": source}])
    shop.finish()
    assert shop.found() == wanted()


def test_as_of_needs_no_such_order_as_events_wait_for_the_watermark_of_the_table(
    tmp_path: Path, spark: SparkSession
) -> None:
    """In small batches events come before their versions; each finds the one of its time."""
    schema = "k long, v long, since timestamp"
    rates = ms.table(ms.Topic("r", schema=schema), key="k", time="since")
    then = events(time="ts").as_of(rates, on="k", how="left")
    shop = Shop(tmp_path / "job", spark, then)
    shop.events()
    for second in range(0, 70, 10):
        for key in range(KEYS):
            shop.put("r", [{"k": key, "v": second, "since": f"2026-01-01T00:{second // 60:02d}:"
                            f"{second % 60:02d}Z"}])  # fmt: skip
    shop.step()
    assert shop.positions()["e"] > 0
    shop.finish()
    assert shop.found() == Counter(
        (place, place // 10 * 10 if place % (KEYS + 5) < KEYS else None) for place in range(60)
    )


def test_only_outputs_that_run_in_batches_can_use_lookup() -> None:
    found = events().lookup(prices(), on="k")
    with pytest.raises(InvalidSpec, match="continuous"):
        ms.Pipeline("p", found.to(ms.Topic("out")), mode="continuous", delivery="at_least_once")

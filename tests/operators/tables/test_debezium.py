"""Debezium's events become the rows the database has, whatever Kafka and Connect did to them."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from tests.operators.windows.driving import Driver
from tests.oracles.database_oracle import Database, Record, without_deletes
from tests.oracles.tables_oracle import MaterializedView

from millstream.event_time.batch_time import MIN_TIME
from millstream.operators.tables.database_kernel import DatabaseKernel
from millstream.operators.tables.decode import ChangeDecoder
from millstream.operators.tables.spec import ChangeLog, Current
from millstream.schema import Schema
from millstream.sources.decode import Decoder, Rows
from millstream.sources.spec import raw_schema

SCHEMA = Schema.parse("id long, name string not null, big string")
Row = dict[str, Any]


def decoder(schema: Schema = SCHEMA, *keys: str) -> ChangeDecoder:
    plain = Decoder(0, "t", schema, None, None)
    return ChangeDecoder.of(plain, ChangeLog(keys or ("id",), "debezium"))


def decoded(records: list[Record], first: int = 0, by: ChangeDecoder | None = None) -> Rows:
    rows = [{"key": key, "value": value, "partition": 0, "offset": first + place,
             "timestamp": 9_000_000} for place, (key, value) in enumerate(records)]  # fmt: skip
    names = ["key", "value", "partition", "offset", "timestamp"]
    return (by or decoder())(pa.Table.from_pylist(rows, schema=raw_schema(names)))


def event(op: str, after: Row | None = None, before: Row | None = None, **source: Any) -> bytes:
    body = {"op": op, "after": after, "before": before, "source": {"ts_ms": 7, **source}}
    return json.dumps(body).encode()


def kernel() -> DatabaseKernel:
    return DatabaseKernel(Current(("id",), each=True, database=True), decoder().columns())


def step(driver: Driver, records: list[Record], first: int = 0) -> list[Row]:
    found = decoded(records, first)
    assert found.bad.num_rows == 0
    return driver.step(found.good, before=MIN_TIME, after=0).rows


def signed_rows(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["_sign"], row["id"], row["name"], row["big"]) for row in rows]


ONE = b'{"id": 1}'


def test_every_event_without_a_valid_change_is_a_bad_row_with_a_reason() -> None:
    records = [event("m"), event("u"), b"{", event("c", {"id": 1}), None, event("d")]
    found = decoded([(b"?", value) for value in records])

    reasons = dict(
        zip(found.bad["offset"].to_pylist(), found.bad["reason"].to_pylist(), strict=True)
    )
    assert sorted(reasons) == [0, 1, 2, 3, 4, 5]
    assert "'m'" in reasons[0]
    assert "after" in reasons[1]
    assert "after.name" in reasons[3]
    assert "the record's key" in reasons[4]
    assert "null" in reasons[5]


def test_a_change_takes_effect_at_the_time_and_place_of_the_database() -> None:
    row = {"id": 1, "name": "a"}
    events = [event("c", row, lsn=5), event("r", row, ts_ms=8),
              event("u", row, file="bin.000002", pos=3)]  # fmt: skip
    rows = decoded([(ONE, value) for value in events])

    places = rows.good.select(["_time", "_position"]).to_pylist()
    assert places == [
        {"_time": 7_000, "_position": 5},
        {"_time": 8_000, "_position": None},
        {"_time": 7_000, "_position": (2 << 40) + 3},
    ]
    assert rows.report.times == {0: 8_000}


def test_events_with_their_schema_are_read_the_same() -> None:
    bare = event("c", {"id": 1, "name": "a"}, lsn=5)
    whole = json.dumps({"schema": {"type": "struct"}, "payload": json.loads(bare)}).encode()
    key = json.dumps({"schema": {}, "payload": {"id": 1}}).encode()

    assert decoded([(key, whole)]).good.to_pylist() == decoded([(ONE, bare)]).good.to_pylist()


def test_a_delete_uses_the_key_of_its_record_rather_than_the_old_row() -> None:
    rows = decoded([(ONE, event("d", before={"id": 0, "name": ""})),
                    (None, event("d", before={"id": 2}))]).good  # fmt: skip

    assert rows["id"].to_pylist() == [1, 2]
    assert rows["name"].to_pylist() == [None, None]


def test_an_unchanged_value_is_that_of_the_previous_row() -> None:
    missing = {"id": 1, "name": "b", "big": "__debezium_unavailable_value"}
    with Driver(kernel()) as driver:
        step(driver, [(ONE, event("c", {"id": 1, "name": "a", "big": "long"}, lsn=1))])
        rows = step(driver, [(ONE, event("u", missing, lsn=2)),
                             (ONE, event("u", {**missing, "name": "c"}, lsn=3))], 1)  # fmt: skip

    assert signed_rows(rows) == [
        (-1, 1, "a", "long"), (1, 1, "b", "long"), (-1, 1, "b", "long"), (1, 1, "c", "long"),
    ]  # fmt: skip


def test_an_unknown_value_stays_as_debezium_wrote_it() -> None:
    missing = {"name": "b", "big": "__debezium_unavailable_value"}
    others = [(b'{"id": %d}' % key, event("c", {"id": key, "name": "x", "big": "y"}, lsn=1))
              for key in range(2, 9)]  # fmt: skip
    with Driver(kernel()) as driver:
        rows = step(driver, [*others, (ONE, event("u", {"id": 1, **missing}, lsn=2))])

    assert (1, 1, "b", "__debezium_unavailable_value") in signed_rows(rows)


def test_a_tombstone_counts_only_if_compaction_removed_the_delete() -> None:
    row = {"id": 1, "name": "a"}
    with Driver(kernel()) as driver:
        step(driver, [(ONE, event("c", row, lsn=1)), (ONE, event("d", lsn=2))])
        assert step(driver, [(ONE, None), (ONE, event("c", row, lsn=3))], 2)[0]["_sign"] == 1
        assert step(driver, [(ONE, event("d", lsn=2))], 4) == []
        assert step(driver, [(ONE, None)], 5) == []
        assert step(driver, [(ONE, event("c", row, lsn=3))], 6) == []
        assert [r["_sign"] for r in step(driver, [(ONE, None)], 7)] == [-1]
        assert step(driver, [(b'{"id": 2}', None)], 8) == []
        other = (b'{"id": 2}', event("c", {"id": 2, "name": "a"}, lsn=1))
        assert signed_rows(step(driver, [other], 9)) == [(1, 2, "a", None)]


def test_a_truncation_deletes_earlier_rows_also_those_read_later() -> None:
    def made(key: int, **place: Any) -> Record:
        return json.dumps({"id": key}).encode(), event("c", {"id": key, "name": "a"}, **place)

    with Driver(kernel(), ranges=2, merge_every=2) as driver:
        step(driver, [made(key, lsn=key) for key in range(20)])
        rows = step(driver, [made(30, lsn=40), (None, event("t", lsn=50)), made(31, lsn=60)], 20)
        assert sorted(r["id"] for r in rows if r["_sign"] < 0) == [*range(20), 30]
        late = [made(3, lsn=45), made(77, lsn=45), made(78, ts_ms=6, lsn=99)]
        assert step(driver, late, 23) == []
        assert step(driver, [(None, event("t", lsn=30))], 26) == []
        assert step(driver, [made(80, lsn=45)], 27) == []
        later = step(driver, [made(4, lsn=55), made(79, ts_ms=8, lsn=1)], 28)

    assert sorted(signed_rows(later)) == [(1, 4, "a", None), (1, 79, "a", None)]


@pytest.mark.parametrize("seed", range(12))
def test_replays_snapshots_and_compaction_give_the_databases_table(seed: int) -> None:
    choose = random.Random(seed)
    database = Database(choose)
    for _ in range(3):
        database.work(40)
        database.read_again()
    database.work(20)
    records = database.replayed()
    if seed % 2:
        records = without_deletes(records)
    view = MaterializedView()
    with Driver(kernel(), ranges=1 + seed % 3, slices=1 + seed % 2, merge_every=3) as driver:
        at = 0
        while at < len(records):
            size = choose.randrange(1, 60)
            for row in step(driver, records[at : at + size], at):
                user = {name: row[name] for name in ("id", "name", "big")}
                view.apply((row["id"],), user, row["_sign"])
            at += size

    assert {key: row for (key,), row in view.rows.items()} == database.rows

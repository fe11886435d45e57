"""Joins through the engine, in both lanes: random rows, cuts and restarts against the oracles."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.engine.scenes import PLACES, drive_in
from tests.oracles import joins as oracle
from tests.oracles import joins_as_of, joins_tables

import millstream as ms
from millstream.testing import Drive

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LANES = pytest.mark.parametrize("lane", PLACES)
START = datetime(2026, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def searches(**options: Any) -> ms.Stream:
    schema = "word int, user string, ts timestamp"
    return ms.read(ms.Topic("searches", schema=schema), time="ts", **options)


def clicks(**options: Any) -> ms.Stream:
    schema = "page long, who string, ts timestamp"
    return ms.read(ms.Topic("clicks", schema=schema), time="ts", **options)


def driven(stream: ms.Stream | ms.Table, lane: Any, key: str | None = None) -> Drive:
    return drive_in(ms.Pipeline("joins", stream.to(ms.Topic("out", key=key))), lane)


@LANES
def test_random_rows_join_like_the_oracle_for_any_batches_and_restarts(lane: Any) -> None:
    chance = random.Random(7)
    within, delay = (-3, 9), 4
    rows: tuple[list[Row], list[Row]] = ([], [])
    for number in range(160):
        side, user = number % 2, chance.choice(["ann", "bob", "cid", None])
        time = number // 4 - chance.randrange(delay + 1) + delay
        mine = {"word": number, "user": user} if side == 0 else {"page": number, "who": user}
        rows[side].append({**mine, "_time": time})
    joined = searches(watermark="4 seconds").join(
        clicks(watermark="4 seconds"), on={"user": "who"}, within=("-3 seconds", "9 seconds"),
        how="full", suffix="_clicked",
    )  # fmt: skip
    batch = oracle.Batch(rows, ((-(2**63), 2**63 - 1),) * 2)
    wanted = oracle.joined([batch], on=[("user", "who")], within=within, how="full")[0].pairs
    with driven(joined, lane) as d:
        for low in range(0, 80, 20):
            for topic, side in (("searches", 0), ("clicks", 1)):
                fed = [{k: v for k, v in row.items() if k != "_time"} | {"ts": at(row["_time"])}
                       for row in rows[side][low : low + 20]]  # fmt: skip
                d.feed(topic, fed)
            assert d.step().late == 0
            if low == 40:
                d.restart()
        d.finish()
        found = d.rows("out")
    assert Counter((r["word"], r["page"]) for r in found) == Counter(
        (a and a["word"], b and b["page"]) for a, b in wanted
    )
    times: dict[Any, Any] = {
        (a and a["word"], b and b["page"]): [row and at(row["_time"]) for row in (a, b)]
        for a, b in wanted
    }
    for row in found:
        both = times[row["word"], row["page"]]
        assert [row["ts"], row["ts_clicked"]] == both
        assert row["event_time"] == max(time for time in both if time is not None)


@LANES
def test_a_stream_joins_itself_and_its_results_can_be_counted(lane: Any) -> None:
    """Each row meets every row of its user at most a second away, itself among them."""
    stream = searches()
    again = stream.select("word as other", "user as who", "ts as at")
    pairs = stream.join(again, on={"user": "who"}, within="1 second")
    counts = pairs.by("user").window(ms.tumbling("10 seconds")).agg(n=ms.count())
    with driven(counts, lane) as d:
        fed = [{"word": n, "user": "ann", "ts": at(n)} for n in range(5)]
        d.feed("searches", [*fed, {"word": 9, "user": None, "ts": at(1)}])
        d.step()
        d.restart()
        d.feed("searches", [{"word": 5, "user": "ann", "ts": at(5)},
                            {"word": 6, "user": "ann", "ts": at(20)}])  # fmt: skip
        d.step()
        assert [(row["user"], row["n"]) for row in d.rows("out")] == [("ann", 6 + 2 * 5)]


@LANES
def test_late_rows_of_both_sides_go_to_rest_and_the_watermark_emits_outer_rows(lane: Any) -> None:
    joined = searches().join(clicks(), on={"user": "who"}, within="5 seconds", how="full",
                             suffix="_clicked")  # fmt: skip
    with driven(joined, lane) as d:
        d.feed("searches", [{"word": 1, "user": "ann", "ts": at(20)}])
        d.feed("clicks", [{"page": 1, "who": "bob", "ts": at(20)}])
        d.step()
        d.feed("searches", [{"word": 2, "user": "ann", "ts": at(9)}])
        d.feed("clicks", [{"page": 2, "who": "bob", "ts": at(9)}])
        assert d.step().late == 2
        assert sorted(row["row"] for row in d.late())[0].startswith('{"page":2')
        d.watermark("searches", at(26))
        d.step()
        assert [(r["word"], r["page"]) for r in d.rows("out")] == [(None, 1)]
        d.watermark("clicks", at(26))
        d.step()
        assert [(r["word"], r["page"]) for r in d.rows("out")] == [(1, None)]


def sales() -> ms.Stream:
    schema = "sale long, country string, ts timestamp"
    return ms.read(ms.Topic("sales", schema=schema), time="ts", watermark="4 seconds")


def rates(**options: Any) -> ms.Table:
    topic = ms.Topic("rates", schema="code string, rate long, since timestamp")
    return ms.table(topic, key="code", time="since", watermark="4 seconds", **options)


@pytest.mark.parametrize(
    ("lane", "plan"), [("wide", None), ("wide", "repartitioned"), ("narrow", None)]
)
def test_random_sales_match_the_rate_of_their_time_for_any_batches_plans_and_restarts(
    lane: Any, plan: Any
) -> None:
    chance = random.Random(3)
    events, changes = list[Row](), list[Row]()
    for number in range(120):
        time = number // 3 - chance.randrange(5) + 4
        country = chance.choice(["fr", "it", "no"])
        place = {"_time": time, "_offset": number, "_partition": 0}
        events.append({"sale": number, "country": country, **place})
        if number % 3 == 0:
            changes.append({"code": country, "rate": number, **place})
    joined = sales().as_of(rates(), on={"country": "code"}, how="left", plan=plan)
    batch = joins_as_of.Batch(events, changes, ((-(2**63), 2**63 - 1),) * 2)
    wanted = joins_as_of.as_of([batch], on=[("country", "code")], how="left")[0].pairs
    with driven(joined, lane) as d:
        for low in range(0, 120, 30):
            d.feed("sales", [{"sale": e["sale"], "country": e["country"], "ts": at(e["_time"])}
                             for e in events[low : low + 30]])  # fmt: skip
            d.feed("rates", [{"code": c["code"], "rate": c["rate"], "since": at(c["_time"])}
                             for c in changes[low // 3 : low // 3 + 10]])  # fmt: skip
            assert d.step().late == 0
            if low == 60:
                d.restart()
        d.finish()
        found = d.rows("out")
    assert Counter((r["sale"], r["rate"]) for r in found) == Counter(
        (event["sale"], version and version["rate"]) for event, version in wanted
    )


@LANES
def test_a_quiet_table_does_not_delay_events_and_a_deleted_key_matches_nothing(lane: Any) -> None:
    joined = sales().as_of(rates(), on={"country": "code"})
    with driven(joined, lane) as d:
        d.clock(at(10))
        d.feed("rates", [{"code": "fr", "rate": 1, "since": at(0)}])
        d.feed("sales", [{"sale": 1, "country": "fr", "ts": at(5)}])
        d.step()
        assert [row["rate"] for row in d.rows("out")] == [1]
        d.feed("rates", [None], key=b"fr", timestamp=at(8))
        d.clock(at(30))
        d.feed("sales", [{"sale": 2, "country": "fr", "ts": at(7)},
                         {"sale": 3, "country": "fr", "ts": at(9)}])  # fmt: skip
        d.step()
        assert [row["sale"] for row in d.rows("out")] == [2]


@LANES
def test_lookup_uses_the_table_as_it_is_and_as_of_as_it_was(lane: Any) -> None:
    table, events = rates(), sales()
    pipeline = ms.Pipeline(
        "both",
        events.as_of(table, on={"country": "code"}).to(ms.Topic("then")),
        events.lookup(table, on={"country": "code"}).to(ms.Topic("now")),
    )
    with drive_in(pipeline, lane) as d:
        d.feed("rates", [{"code": "fr", "rate": 1, "since": at(0)}])
        d.step()
        d.feed("rates", [{"code": "fr", "rate": 2, "since": at(10)}])
        d.feed("sales", [{"sale": 1, "country": "fr", "ts": at(5)}])
        d.step()
        d.restart()
        d.finish()
        assert [row["rate"] for row in d.rows("then")] == [1]
        assert [row["rate"] for row in d.rows("now")] == [2]


@LANES
def test_tables_join_by_foreign_key_and_the_view_is_right_after_every_batch(lane: Any) -> None:
    chance = random.Random(11)
    orders = ms.table(ms.Topic("orders", schema="id long, buyer string, sum long"), key="id")
    buyers = ms.table(ms.Topic("buyers", schema="name string, city string"), key="name")
    joined = orders.join(buyers, on={"buyer": "name"}, how="left")
    ours, theirs, view = dict[int, Row](), dict[str, Row](), dict[int, Row]()
    with driven(joined, lane, key="id") as d:
        for batch in range(4):
            for number in chance.sample(range(8), 5):
                ours[number] = {"id": number, "buyer": chance.choice(["ann", "bob", None]),
                                "sum": batch}  # fmt: skip
                d.feed("orders", [ours[number]])
            gone = chance.randrange(8)
            ours.pop(gone, None)
            d.feed("orders", [None], key=str(gone).encode())
            name = chance.choice(["ann", "bob"])
            theirs[name] = {"name": name, "city": f"city {batch}"}
            d.feed("buyers", [theirs[name]])
            d.step()
            if batch == 1:
                d.restart()
            for row in d.rows("out"):
                if row.pop("_sign", 1) < 0:
                    assert view.pop(row["id"]) == row
                else:
                    view[row["id"]] = row
            wanted = joins_tables.view(list(ours.values()), list(theirs.values()),
                                       on=[("buyer", "name")], how="left")  # fmt: skip
            assert {key: (r["buyer"], r["sum"], r["city"]) for key, r in view.items()} == {
                a["id"]: (a["buyer"], a["sum"], b and b["city"]) for a, b in wanted if a
            }


def test_the_state_of_joins_is_shown_by_key_without_the_pipeline() -> None:
    from millstream.engine.inspection.inspect import of_key, open_checkpoint

    def pipeline(within: str) -> ms.Pipeline:
        joined = searches().join(clicks(), on={"user": "who"}, within=within, suffix="_clicked",
                                 name="pairs")  # fmt: skip
        taxed = sales().as_of(rates(), on={"country": "code"}, name="taxed")
        found = sales().lookup(rates(), on={"country": "code"}, name="found")
        outputs = {"pairs": joined, "taxed": taxed, "found": found}
        return ms.Pipeline("p", *(one.to(ms.Topic(name)) for name, one in outputs.items()))

    with Drive(pipeline("1 hour"), lane="narrow") as d:
        d.feed("searches", [{"word": 1, "user": "ann", "ts": at(0)}])
        d.feed("clicks", [{"page": 2, "who": "ann", "ts": at(1)}])
        d.feed("rates", [{"code": "fr", "rate": 7, "since": at(0)}])
        d.feed("sales", [{"sale": 3, "country": "fr", "ts": at(50)}])
        d.step()
        checkpoint = open_checkpoint(d._folder / "checkpoint")
        kept = of_key(checkpoint, "pairs", {"user": "ann"}).steps
        assert [(row["side"], row["at"]) for row in kept] == [("left", at(0)), ("right", at(1))]
        taxed = of_key(checkpoint, "taxed", {"country": "fr"}).steps
        assert [(row["side"], row.get("sale"), row.get("rate")) for row in taxed] == [
            ("left", 3, None), ("right", None, 7),
        ]  # fmt: skip
        assert [row["rate"] for row in of_key(checkpoint, "found", {"country": "fr"}).steps] == [7]


@LANES
def test_joins_follow_windows_and_other_joins(lane: Any) -> None:
    """Pairs of one key and time share what they are made of; none of them is lost on the way."""
    counts = searches().by("user").window(ms.tumbling("10 seconds")).agg(n=ms.count())
    after = counts.join(clicks(), on={"user": "who"}, within="10 seconds", how="left")
    third = ms.read(ms.Topic("third", schema="z long, name string, at timestamp"), time="at")
    chained = (
        searches()
        .join(clicks(), on={"user": "who"}, within="10 seconds", suffix="_clicked")
        .select("word", "user", "page", "event_time as clicked")
        .join(third, on={"user": "name"}, within="1 minute", how="full")
    )
    pipeline = ms.Pipeline("chain", after.to(ms.Topic("after")), chained.to(ms.Topic("chained")))
    with drive_in(pipeline, lane) as d:
        d.feed("searches", [{"word": n, "user": "ann", "ts": at(3)} for n in range(5)])
        d.feed("clicks", [{"page": n, "who": "ann", "ts": at(2)} for n in range(3)])
        d.feed("third", [{"z": 1, "name": "ann", "at": at(3)}])
        d.step()
        d.restart()
        d.feed("third", [{"z": 2, "name": "ann", "at": at(4)}, {"z": 3, "name": "b", "at": at(4)}])
        d.step()
        d.finish()
        found = d.rows("after")
        chain = Counter((row["word"], row["page"], row["z"]) for row in d.rows("chained"))
    assert sorted((row["n"], row["page"], row["window_end"], row["ts"]) for row in found) == [
        (5, page, at(10), at(2)) for page in range(3)
    ]
    pairs = {(word, page, z) for word in range(5) for page in range(3) for z in (1, 2)}
    assert chain == Counter({*pairs, (None, None, 3)})

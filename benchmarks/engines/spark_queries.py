"""The Nexmark queries in Structured Streaming; results as JSON values."""

from __future__ import annotations

from typing import Any

WINDOW = "10 seconds"


def q1(bids: Any, _spec: dict[str, Any]) -> Any:
    """Every bid in another currency."""
    return bids.selectExpr("to_json(struct(auction, bidder, price * 0.908D as price, ts)) as value")


def q2(bids: Any, _spec: dict[str, Any]) -> Any:
    """The bids of a few auctions."""
    few = bids.where("auction % 123 = 0")
    return few.selectExpr("to_json(struct(auction, price)) as value")


def q5(bids: Any, spec: dict[str, Any]) -> Any:
    """The largest number of bids an auction has, per window of 10 s every 2 s."""
    from pyspark.sql import functions as F

    hops = F.window("ts", WINDOW, "2 seconds").alias("w")
    counts = bids.withWatermark("ts", spec["delay"]).groupBy("auction", hops).count()
    largest = counts.groupBy("w").agg(F.max("count").alias("n"))
    return largest.selectExpr("to_json(struct(w.start as window_start, n)) as value")


def q7(bids: Any, spec: dict[str, Any]) -> Any:
    """The bids with the highest price of their window, kept as state until the window ends.

    A join of the bids with their window's maximum is right too, and holds every bid as state
    for more than twice the CPU; `max_by` gives one of several bids of the same price.
    """
    from pyspark.sql.streaming.state import GroupStateTimeout

    columns = "auction long, bidder long, price double, ts timestamp"
    timed = bids.withWatermark("ts", spec["delay"]).selectExpr(
        "unix_millis(ts) div 10000 * 10000 as first", "auction", "bidder", "price", "ts"
    )
    found = timed.groupBy("first").applyInPandasWithState(
        highest_of_window(), columns, "kept binary", "append", GroupStateTimeout.EventTimeTimeout
    )
    return found.selectExpr("to_json(struct(auction, bidder, price, ts)) as value")


def highest_of_window() -> Any:
    """A function that goes to the workers whole: they do not have this module."""
    import pickle

    import pandas as pd  # type: ignore[import-untyped]

    def highest(key: Any, frames: Any, state: Any) -> Any:
        kept = [pickle.loads(state.get[0])] if state.exists else []
        if state.hasTimedOut:
            state.remove()
            yield kept[0]
            return
        kept += [frame[frame["price"] == frame["price"].max()] for frame in frames]
        rows = pd.concat(kept)[["auction", "bidder", "price", "ts"]]
        state.update((pickle.dumps(rows[rows["price"] == rows["price"].max()]),))
        state.setTimeoutTimestamp(int(key[0]) + 10_000)

    return highest


def q8(persons: Any, auctions: Any) -> Any:
    """Persons that opened an auction in the window in which they came."""
    from pyspark.sql import functions as F

    came = persons.groupBy("id", "name", F.window("ts", WINDOW).alias("w")).count()
    opened = auctions.groupBy("seller", F.window("ts", WINDOW).alias("v")).count()
    there = came.select("id", "name", "w").join(
        opened.select("seller", "v"), F.expr("id = seller and w = v")
    )
    return there.selectExpr("to_json(struct(id, name, w.start as window_start)) as value")


OF_BIDS = {"q1": q1, "q2": q2, "q5": q5, "q7": q7}

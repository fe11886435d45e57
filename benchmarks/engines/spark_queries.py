"""The Nexmark queries in Structured Streaming; results as JSON values."""

from __future__ import annotations

from typing import Any

WINDOW = "10 seconds"


def q1(bids: Any, _told: dict[str, Any]) -> Any:
    """Every bid in another currency."""
    return bids.selectExpr("to_json(struct(auction, bidder, price * 0.908D as price, ts)) as value")


def q2(bids: Any, _told: dict[str, Any]) -> Any:
    """The bids of a few auctions."""
    few = bids.where("auction % 123 = 0")
    return few.selectExpr("to_json(struct(auction, price)) as value")


def q5(bids: Any, told: dict[str, Any]) -> Any:
    """The largest number of bids an auction has, per window of 10 s every 2 s."""
    from pyspark.sql import functions as F

    hops = F.window("ts", WINDOW, "2 seconds").alias("w")
    counts = bids.withWatermark("ts", told["delay"]).groupBy("auction", hops).count()
    largest = counts.groupBy("w").agg(F.max("count").alias("n"))
    return largest.selectExpr("to_json(struct(w.start as window_start, n)) as value")


def q7(bids: Any, told: dict[str, Any]) -> Any:
    """The bids with the highest price of their window."""
    from pyspark.sql import functions as F

    timed = bids.withWatermark("ts", told["delay"])
    highest = timed.groupBy(F.window("ts", WINDOW).alias("w")).agg(F.max("price").alias("highest"))
    mine = timed.withColumn("mine", F.window("ts", WINDOW))
    found = mine.join(highest, (mine.price == highest.highest) & (mine.mine == highest.w))
    return found.selectExpr("to_json(struct(auction, bidder, price, ts)) as value")


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

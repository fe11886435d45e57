"""The Nexmark queries as a user of Millstream writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import millstream as ms

WINDOW = "10 seconds"


def q1(bids: ms.Stream, _spec: dict[str, Any]) -> ms.Stream:
    """Every bid in another currency."""
    return bids.select("auction", "bidder", "price * 0.908 as price", "ts")


def q2(bids: ms.Stream, _spec: dict[str, Any]) -> ms.Stream:
    """The bids of a few auctions."""
    return bids.where("auction % 123 = 0").select("auction", "price")


def q5(bids: ms.Stream, _spec: dict[str, Any]) -> ms.Stream:
    """The auction with the most bids, per window of 10 s every 2 s."""
    hops = bids.by("auction").window(ms.hopping(WINDOW, every="2 seconds"))
    return hops.agg(n=ms.count()).top(1, by="n")


def q7(bids: ms.Stream, _spec: dict[str, Any]) -> ms.Stream:
    """The bids with the highest price of their window, kept as state until it closes."""
    best = ms.aggregate(
        partial=one_bid, merge=highest_bids, finish=lambda states: states["bids"],
        columns=["auction", "bidder", "price", "ts"],
    )  # fmt: skip
    whole = bids.with_columns(whole="1").by("whole").window(ms.tumbling(WINDOW))
    each = whole.agg(best=best).explode("best")
    return each.select("best.auction", "best.bidder", "best.price", "best.ts")


def one_bid(rows: pa.Table) -> pa.Table:
    """A state for each row: its price, and a list of itself."""
    bids = pa.StructArray.from_arrays([column.combine_chunks() for column in rows.columns],
                                      rows.column_names)  # fmt: skip
    places = np.arange(len(bids) + 1, dtype=np.int32)
    return pa.table({"highest": rows["price"], "bids": pa.ListArray.from_arrays(places, bids)})


def highest_bids(states: pa.Table, groups: np.ndarray, count: int) -> pa.Table:
    """Of the states of each group those with the highest price, in one list."""
    price = states["highest"].to_numpy()
    highest = np.full(count, -np.inf)
    np.maximum.at(highest, groups, price)
    best = np.flatnonzero(price == highest[groups])
    lists = states["bids"].combine_chunks().take(pa.array(best))
    lengths = np.bincount(groups[best], lists.value_lengths().to_numpy(), minlength=count)
    places = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.table({"highest": highest,
                     "bids": pa.ListArray.from_arrays(places, lists.flatten())})  # fmt: skip


def q8(persons: ms.Stream, auctions: ms.Stream) -> ms.Stream:
    """Persons that opened an auction in the window in which they came."""
    came = persons.by("id", "name").window(ms.tumbling(WINDOW)).agg(seen=ms.count())
    opened = auctions.by("seller").window(ms.tumbling(WINDOW)).agg(opened=ms.count())
    there = opened.select("seller", "window_start as its_start", "window_end as its_end")
    return came.join(there, on={"id": "seller", "window_start": "its_start"}, within="0 seconds")

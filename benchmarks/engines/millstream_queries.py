"""The Nexmark queries as a user of Millstream writes them."""

from __future__ import annotations

from typing import Any

import millstream as ms

WINDOW = "10 seconds"


def q1(bids: ms.Stream, _told: dict[str, Any]) -> ms.Stream:
    """Every bid in another currency."""
    return bids.select("auction", "bidder", "price * 0.908 as price", "ts")


def q2(bids: ms.Stream, _told: dict[str, Any]) -> ms.Stream:
    """The bids of a few auctions."""
    return bids.where("auction % 123 = 0").select("auction", "price")


def q5(bids: ms.Stream, _told: dict[str, Any]) -> ms.Stream:
    """The auction with the most bids, per window of 10 s every 2 s."""
    hops = bids.by("auction").window(ms.hopping(WINDOW, every="2 seconds"))
    return hops.agg(n=ms.count()).top(1, by="n")


def q7(bids: ms.Stream, _told: dict[str, Any]) -> ms.Stream:
    """The bids with the highest price of their window."""
    all_of_them = bids.with_columns(whole="1").by("whole").window(ms.tumbling(WINDOW))
    highest = all_of_them.agg(highest=ms.max("price"))
    return bids.join(highest, on={"price": "highest"}, within=("0 seconds", WINDOW))


def q8(persons: ms.Stream, auctions: ms.Stream) -> ms.Stream:
    """Persons that opened an auction in the window in which they came."""
    came = persons.by("id", "name").window(ms.tumbling(WINDOW)).agg(seen=ms.count())
    opened = auctions.by("seller").window(ms.tumbling(WINDOW)).agg(opened=ms.count())
    there = opened.select("seller", "window_start as its_start", "window_end as its_end")
    return came.join(there, on={"id": "seller", "window_start": "its_start"}, within="0 seconds")

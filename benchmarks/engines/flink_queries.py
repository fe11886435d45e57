"""The Nexmark queries in Flink SQL: the columns of the output, and the query."""

from __future__ import annotations

from typing import Any

_START = "CAST({window}.window_start AS TIMESTAMP_LTZ(3)) AS window_start"


def _tumble(table: str) -> str:
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(rt), INTERVAL '10' SECOND))"


def q1(_spec: dict[str, Any]) -> tuple[str, str]:
    """Every bid in another currency."""
    return ("auction BIGINT, bidder BIGINT, price DOUBLE, ts TIMESTAMP_LTZ(3)",
            "SELECT auction, bidder, price * CAST(0.908 AS DOUBLE), rt FROM ours")  # fmt: skip


def q2(_spec: dict[str, Any]) -> tuple[str, str]:
    """The bids of a few auctions."""
    return ("auction BIGINT, price DOUBLE",
            "SELECT auction, price FROM ours WHERE MOD(auction, 123) = 0")  # fmt: skip


def q5(_spec: dict[str, Any]) -> tuple[str, str]:
    """The largest number of bids an auction has, per window of 10 s every 2 s."""
    return ("window_start TIMESTAMP_LTZ(3), n BIGINT",
            """SELECT CAST(window_start AS TIMESTAMP_LTZ(3)), MAX(n) FROM (
                   SELECT auction, window_start, window_end, COUNT(*) AS n FROM TABLE(
                       HOP(TABLE ours, DESCRIPTOR(rt), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
                   GROUP BY auction, window_start, window_end)
               GROUP BY window_start, window_end""")  # fmt: skip


def q7(_spec: dict[str, Any]) -> tuple[str, str]:
    """The bids with the highest price of their window."""
    return ("auction BIGINT, bidder BIGINT, price DOUBLE, ts TIMESTAMP_LTZ(3)",
            f"""SELECT b.auction, b.bidder, b.price, b.rt FROM ours b JOIN (
                    SELECT MAX(price) AS highest, window_time AS till FROM {_tumble("ours")}
                    GROUP BY window_start, window_end, window_time) m
                ON b.price = m.highest
                AND b.rt BETWEEN m.till - INTERVAL '9.999' SECOND(1, 3) AND m.till""")  # fmt: skip


def q8(_spec: dict[str, Any]) -> tuple[str, str]:
    """Persons that opened an auction in the window in which they came."""
    return ("window_start TIMESTAMP_LTZ(3), id BIGINT, name STRING",
            f"""SELECT {_START.format(window="p")}, p.id, p.name FROM
                (SELECT id, name, window_start, window_end FROM {_tumble("ours")}
                 GROUP BY id, name, window_start, window_end) p
                JOIN (SELECT seller, window_start, window_end FROM {_tumble("theirs")}
                      GROUP BY seller, window_start, window_end) a
                ON p.id = a.seller AND p.window_start = a.window_start
                AND p.window_end = a.window_end""")  # fmt: skip


QUERIES = {"q1": q1, "q2": q2, "q5": q5, "q7": q7, "q8": q8}

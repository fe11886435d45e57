"""The tax on a sale: the rate at the time of the sale, not at the time of processing.

A rate is a row of a table that changes. `as_of` gives each sale the rate that was valid at the
sale's own time; `lookup` the one in the table when the sale is processed. Run it:

    python examples/tax_rate.py

It runs the same sales twice on a local Spark, as they happened and as a replay of the whole log,
and prints

    live    as_of   sale 1 at 19 %, sale 2 at 16 %
    live    lookup  sale 1 at 19 %, sale 2 at 16 %
    replay  as_of   sale 1 at 19 %, sale 2 at 16 %
    replay  lookup  sale 1 at 16 %, sale 2 at 16 %

In the replay the table is read to its end before sale 1 is processed: its rate is already the
new one. `as_of` does not depend on when it runs, because it uses the times in the data. That is
why `millstream plan` lists `lookup` as an exception: its results depend on the batches.
"""

from typing import Any

import millstream as ms

sales = ms.read(ms.Topic("sales", schema="sale long, country string, ts timestamp"), time="ts")
rates = ms.table(
    ms.Topic("rates", schema="code string, percent int, since timestamp"),
    key="code",
    time="since",
)
pipeline = ms.Pipeline(
    "tax",
    sales.as_of(rates, on={"country": "code"}).to(ms.Topic("taxed-then")),
    sales.lookup(rates, on={"country": "code"}).to(ms.Topic("taxed-now")),
)

OLD = {"code": "de", "percent": 19, "since": "2007-01-01T00:00:00Z"}
NEW = {"code": "de", "percent": 16, "since": "2020-07-01T00:00:00Z"}
JUNE = {"sale": 1, "country": "de", "ts": "2020-06-30T12:00:00Z"}
JULY = {"sale": 2, "country": "de", "ts": "2020-07-01T12:00:00Z"}


def run(batches: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]], word: str) -> None:
    """Feed rates and sales batch by batch, and print what each sale was taxed at."""
    from millstream.testing import Drive

    with Drive(pipeline) as drive:
        for new_rates, new_sales in batches:
            drive.feed("rates", new_rates)
            drive.feed("sales", new_sales)
            drive.step()
        drive.finish()
        for step, output in (("as_of", "taxed-then"), ("lookup", "taxed-now")):
            rows = sorted(drive.rows(output), key=lambda row: int(row["sale"]))
            taxes = ", ".join(f"sale {row['sale']} at {row['percent']} %" for row in rows)
            print(f"{word:<8}{step:<8}{taxes}")


def main() -> None:
    """Once as it happened, once as a replay."""
    run([([OLD], []), ([], [JUNE]), ([NEW], [JULY])], "live")
    run([([OLD, NEW], [JUNE, JULY])], "replay")


if __name__ == "__main__":
    main()

"""Which auctions are hot: bids counted and added up per auction, every ten seconds.

    millstream up
    millstream topics create bids --partitions 2
    millstream run examples/hot_auctions.py

and in other terminals

    echo '{"auction": 1, "bidder": 7, "price": 5.0, "ts": "2026-01-01T00:00:01Z"}' \\
        | millstream produce bids
    millstream tail hot --from-beginning

Every batch is a Spark job; `millstream run` prints the address of the Spark UI.
"""

import millstream as ms

bids = ms.read(
    ms.Topic("bids", schema="auction long, bidder long, price double, ts timestamp"),
    time="ts",
    watermark="5 seconds",
)

hot = (
    bids.where("price > 0")
    .by("auction")
    .window(ms.tumbling("10 seconds"))
    .late(rest=ms.Topic("bids.late"))
    .agg(bids=ms.count(), total=ms.sum("price"), highest=ms.max("price"))
)

pipeline = ms.Pipeline("hot-auctions", hot.to(ms.Topic("hot")))

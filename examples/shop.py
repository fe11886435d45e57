"""A web shop's page views: counted as they happen, by the time they happened.

`millstream demo` runs both pipelines of this file and opens the shop. To run them by hand:

    millstream up
    millstream topics create shop.views --partitions 3
    millstream jobs submit examples/shop.py:shop-views
    millstream jobs submit examples/shop.py:shop-visitors
"""

from pathlib import Path

import millstream as ms

STORE = Path(__file__).with_name("shop.db")

views = ms.read(
    ms.Topic(
        "shop.views",
        schema="user string, country string, page string, product string, status int, ms long, "
        "ts timestamp not null, sent timestamp",
    ),
    time="ts",
    watermark="2 seconds",
    idle="5 seconds",
).correct_clock(event="ts", sent="sent")  # some phones are hours off; Kafka's stamp is right

# How often each page was seen, every five seconds: shown every second while the window is
# open, and once more when it is complete. Phones that come back from a tunnel bring views whose
# window has left: those go to a topic of their own, and are counted.
pages = (
    views.by("page")
    .window(ms.tumbling("5 seconds"))
    .trigger(early=ms.every("1 second"))
    .late(rest=ms.Topic("shop.late"))
    .agg(views=ms.count(), slowest=ms.max("ms"))
)
page_views = ms.Pipeline(
    "shop-views",
    pages.to(ms.Topic("shop.pages")),
    pages.to(ms.Chart("views by page", y="views", by="page")),
    pages.to(ms.LiveTable("pages now", key=["page", "window_start"], keep=60)),
    pages.to(ms.Sqlite(STORE, "pages", key=["page", "window_start"]), name="store"),
)

# Who is new in the last minute, and which pages fail.
visitors = views.distinct(by="user", within="1 minute", rest=ms.discard, name="new visitors")
arriving = (
    visitors.by("country")
    .window(ms.tumbling("10 seconds"))
    .late(rest=ms.discard)
    .agg(visitors=ms.count())
)
failing = (
    views.where("status >= 500")
    .by("page")
    .window(ms.tumbling("5 seconds"))
    .late(rest=ms.discard)
    .agg(failures=ms.count())
)
shop_visitors = ms.Pipeline(
    "shop-visitors",
    arriving.to(ms.Topic("shop.visitors")),
    arriving.to(ms.Chart("visitors by country", y="visitors", by="country", shape="line")),
    failing.to(ms.Topic("shop.failures")),
    failing.to(ms.LiveTable("pages that fail")),
)

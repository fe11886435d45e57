"""A web shop: every page view is an event that several pipelines process, each on Spark.

`millstream demo` runs both pipelines of this file and opens the shop. To run them by hand:

    millstream up
    millstream topics create shop.views --partitions 3
    millstream jobs submit examples/shop.py:shop-views
    millstream jobs submit examples/shop.py:shop-visitors
"""

from pathlib import Path

import millstream as ms

HERE = Path(__file__).parent
MAIL = HERE / "mail-server"  # the demo runs its own mail server, and writes its address there

views = ms.read(
    ms.Topic(
        "shop.views",
        schema="user string, country string, page string, product string, search string, "
        "word string, status int, ms long, ts timestamp not null, sent timestamp",
    ),
    time="ts",
    watermark="2 seconds",
    idle="5 seconds",
).correct_clock(event="ts", sent="sent")  # some phones are hours off; Kafka's timestamp is right

# The owner gets a mail when pages or a job fail, and when they have recovered.
owner = ms.Email(
    "owner@shop.example",
    sender="millstream@shop.example",
    url=f"${{file:{MAIL}}}" if MAIL.exists() else None,
    digest="5 seconds",
)

# Views per page in windows of five seconds: early results every second, and a final one when the
# window is complete. Phones that were offline send views whose window has been emitted: those go
# to the late side output.
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
    pages.to(ms.Sqlite(HERE / "shop.db", "pages", key=["page", "window_start"]), name="store"),
    alerts=[ms.JobAlert("down", to=owner), ms.JobAlert("lag", above=5000, for_="10 seconds")],
)

# New visitors in the last minute.
visitors = views.distinct(by="user", within="1 minute", rest=ms.discard, name="new visitors")
arriving = (
    visitors.by("country")
    .window(ms.tumbling("10 seconds"))
    .late(rest=ms.discard)
    .agg(visitors=ms.count())
)

# How often a search leads to a product: searches left-joined with clicks within five seconds. A
# search without a click is emitted once the watermark has passed.
searches = views.where("page = '/search'").select("search", "word", "ts")
clicks = views.where("page = '/product' and search is not null").select(
    "search as clicked", "product", "ts as clicked_at"
)
answered = searches.join(
    clicks, on={"search": "clicked"}, within=("0 seconds", "5 seconds"), how="left",
    rest=ms.discard, name="answers",
)  # fmt: skip
rates = (
    answered.with_columns(hit="if(product is null, 0, 1)")
    .by("word")
    .window(ms.tumbling("10 seconds"))
    .late(rest=ms.discard)
    .agg(searches=ms.count(), clicked=ms.sum("hit"))
    .with_columns(rate="round(clicked / searches, 2)")
)

# Which pages fail.
health = (
    views.with_columns(failed="if(status >= 500, 1, 0)")
    .by("page")
    .window(ms.tumbling("5 seconds"))
    .late(rest=ms.discard)
    .agg(views=ms.count(), failures=ms.sum("failed"))
)
shop_visitors = ms.Pipeline(
    "shop-visitors",
    views.to(ms.Files(HERE / "views"), name="stored"),
    arriving.to(ms.Topic("shop.visitors")),
    arriving.to(ms.Chart("visitors by country", y="visitors", by="country")),
    rates.to(ms.Topic("shop.clicks")),
    rates.to(ms.Chart("click-through rate", y="rate", by="word")),
    health.to(ms.LiveTable("pages that fail", key="page")),
    health.to(
        ms.Alert(
            "pages fail",
            when="failures > 2 and failures / views > 0.3",
            hold="20 seconds",
            to=owner,
        )
    ),
)

"""How often a search is clicked: searches and clicks joined within one hour.

A search is clicked if a click follows it within the hour. A search without a click also counts,
once the watermark of the clicks shows that none can follow. Run it:

    python examples/click_through.py

It drives the pipeline by hand on a local Spark, on topics in memory, and prints

    pasta   2026-01-01  1 searches, 0 clicked: 0 %
    pizza   2026-01-01  2 searches, 1 clicked: 50 %

The second click on search 1 does not count again, and the click on search 3 is a second too
late. `millstream run examples/click_through.py` runs the same pipeline on real topics.
"""

import millstream as ms

searches = ms.read(ms.Topic("searches", schema="id long, word string, ts timestamp"), time="ts")
clicks = ms.read(
    ms.Topic("clicks", schema="search long, url string, clicked_at timestamp"), time="clicked_at"
)

answered = searches.join(clicks, on={"id": "search"}, within=("0 seconds", "1 hour"), how="left")
rates = (
    answered.with_columns(hit="if(url is null, 0, 1)")
    .distinct(by="id")
    .by("word")
    .window(ms.tumbling("1 day"))
    .agg(searches=ms.count(), clicked=ms.sum("hit"))
)
pipeline = ms.Pipeline("click-through", rates.to(ms.Topic("click-through-rates")))


def main() -> None:
    """A day of a small search engine."""
    from millstream.testing import Drive

    with Drive(pipeline) as drive:
        drive.feed("searches", [
            {"id": 1, "word": "pizza", "ts": "2026-01-01T10:00:00Z"},
            {"id": 2, "word": "pizza", "ts": "2026-01-01T10:01:00Z"},
            {"id": 3, "word": "pasta", "ts": "2026-01-01T10:02:00Z"},
        ])  # fmt: skip
        drive.feed("clicks", [
            {"search": 1, "url": "/napoli", "clicked_at": "2026-01-01T10:00:05Z"},
            {"search": 1, "url": "/roma", "clicked_at": "2026-01-01T11:00:00Z"},
            {"search": 3, "url": "/lucca", "clicked_at": "2026-01-01T11:02:01Z"},
        ])  # fmt: skip
        drive.step()
        drive.finish()
        for row in drive.rows("click-through-rates"):
            share = row["clicked"] / row["searches"]
            print(
                f"{row['word']:<8}{row['window_start']:%Y-%m-%d}  {row['searches']} searches, "
                f"{row['clicked']} clicked: {share:.0%}".replace("%", " %")
            )


if __name__ == "__main__":
    main()

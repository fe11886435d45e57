"""Home timelines: who sees which tweets, updated as people tweet, delete, follow and unfollow.

Two tables are joined by author and aggregated per reader. Nothing is recomputed: a change of
either table changes only the affected timelines. Run it:

    python examples/home_timelines.py

It drives the pipeline by hand on a local Spark, on topics in memory, and prints each reader's
timeline after every change, the newest tweet first:

    ann tweets 1, bob and cid follow her   bob: 1 | cid: 1
    ann tweets 2                           bob: 2 1 | cid: 2 1
    cid unfollows ann                      bob: 2 1
    ann deletes her first tweet            bob: 2
    dee follows ann                        bob: 2 | dee: 2
"""

import millstream as ms

tweets = ms.table(ms.Topic("tweets", schema="tweet long, author string, text string"), key="tweet")
follows = ms.table(ms.Topic("follows", schema="reader string, whom string"), key=["reader", "whom"])

seen = tweets.join(follows, on={"author": "whom"})
timelines = seen.by("reader").agg(newest=ms.largest("tweet", 100))
changes = timelines.changes().to(ms.Topic("timelines"))
pipeline = ms.Pipeline("home-timelines", changes)


def main() -> None:
    """A small town in five steps."""
    from millstream.testing import Drive

    known: dict[str, list[int]] = {}
    with Drive(pipeline) as drive:

        def tell(what: str) -> None:
            drive.step()
            for row in drive.rows("timelines"):
                known[row["reader"]] = [] if row["change"] == "delete" else row["newest"]
            shown = [
                f"{reader}: {' '.join(map(str, known[reader]))}"
                for reader in sorted(known)
                if known[reader]
            ]
            print(f"{what:<39}{' | '.join(shown)}")

        drive.feed("tweets", [{"tweet": 1, "author": "ann", "text": "hello"}])
        drive.feed("follows", [{"reader": "bob", "whom": "ann"}, {"reader": "cid", "whom": "ann"}])
        tell("ann tweets 1, bob and cid follow her")
        drive.feed("tweets", [{"tweet": 2, "author": "ann", "text": "again"}])
        tell("ann tweets 2")
        drive.feed("follows", [None], key=b'{"reader": "cid", "whom": "ann"}')
        tell("cid unfollows ann")
        drive.feed("tweets", [None], key=b"1")
        tell("ann deletes her first tweet")
        drive.feed("follows", [{"reader": "dee", "whom": "ann"}])
        tell("dee follows ann")


if __name__ == "__main__":
    main()

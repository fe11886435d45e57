"""`Alert`: episodes that do not depend on how rows are cut into batches, told once."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.oracles import alerts_oracle as oracle
from tests.sinks.batches import JOB
from tests.sinks.mailing import MailServer
from tests.sinks.receiving import Receiver

import millstream as ms
from millstream.errors import Fenced, InvalidSpec
from millstream.sinks import notice_writer
from millstream.sinks.notice_store import NoticeStore, store_file
from millstream.sinks.spec import Opening, Staged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from millstream.sinks.notice_writer import NoticeWriter

SECOND = 1_000_000
Observed = tuple[str, int, int]


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def alert(receiver: Receiver, **said: Any) -> ms.Alert:
    hook = ms.Webhook(receiver.url, allow_private=True)
    return ms.Alert("fails", **{"when": "n > 5", "to": hook, "hold": "0 seconds", **said})


def running(sink: ms.Alert, epoch: int = 1, calm: float = 0.0) -> NoticeWriter:
    opening = Opening("shop", JOB, epoch, (sink,), calm=lambda: calm)
    writer = notice_writer.NoticeWriter(opening)
    writer.recover(None)
    return writer


def batch(
    sink: ms.Alert, rows: Sequence[Observed], *, level: bool = False, **more: Any
) -> list[Staged]:
    """Rows of (page, second, n)."""
    table = pa.table(
        {
            "page": pa.array([page for page, _, _ in rows], pa.string()),
            "n": pa.array([n for _, _, n in rows], pa.int64()),
            "_time": pa.array([at * SECOND for _, at, _ in rows], pa.int64()),
            **more,
        }
    )
    parts = [table.slice(place, 3) for place in range(0, table.num_rows, 3)]
    return [Staged("fails", "result", sink, ("page",), len(rows), lambda: iter(parts),
                   table=level)]  # fmt: skip


def news(receiver: Receiver) -> list[tuple[str, str, str]]:
    """What was told: page, state, and when (its second of the first of January 1970)."""
    found = []
    for post in receiver.taken():
        body = json.loads(post.body)
        data = body["data"]
        found.append((data["key"].get("page", ""), data["state"], body["timestamp"][11:19]))
    return found


def at(second: int) -> str:
    return f"00:{second // 60:02d}:{second % 60:02d}"


def played(receiver: Receiver, sink: ms.Alert, *batches: Sequence[Observed], **said: Any
           ) -> list[tuple[str, str, str]]:  # fmt: skip
    """The batches one after the other, in one run; what was told."""
    writer = running(sink)
    for number, rows in enumerate(batches, start=1):
        writer.write(f"i{number}", number, batch(sink, rows, **said))
    writer.close()
    return news(receiver)


def test_an_alert_fires_and_is_resolved_once_per_key(receiver: Receiver) -> None:
    told = played(
        receiver, alert(receiver),
        [("/", 1, 3), ("/cart", 1, 9)], [("/cart", 2, 9)], [("/cart", 3, 8), ("/", 3, 9)],
        [("/cart", 4, 1), ("/", 4, 9)],
    )  # fmt: skip
    assert told == [
        ("/cart", "firing", at(1)), ("/", "firing", at(3)), ("/cart", "resolved", at(4)),
    ]  # fmt: skip


def test_it_fires_only_after_it_was_true_for_long_enough(receiver: Receiver) -> None:
    sink = alert(receiver, for_="3 seconds")
    told = played(receiver, sink, [("/", 1, 9), ("/", 2, 9)], [("/", 3, 1), ("/", 4, 9)],
                  [("/", 6, 9)], [("/", 7, 9)], [("/", 9, 9), ("/", 10, 1)])  # fmt: skip
    assert told == [("/", "firing", at(7)), ("/", "resolved", at(10))]


def test_what_flaps_is_told_once_and_what_stays_is_told_after_the_hold(receiver: Receiver) -> None:
    flapping = [("/", second, 9 if second % 2 else 1) for second in range(1, 30)]
    sink = alert(receiver, hold="30 seconds")
    told = played(receiver, sink, flapping, [("/", second, 9) for second in range(30, 40)])
    assert told == [("/", "firing", at(1)), ("/", "resolved", at(2)), ("/", "firing", at(32))]


def test_clears_keeps_it_firing_until_it_is_well_below(receiver: Receiver) -> None:
    sink = alert(receiver, clears="n < 2")
    told = played(receiver, sink, [("/", 1, 9)], [("/", 2, 4)], [("/", 3, 3)], [("/", 4, 1)])
    assert told == [("/", "firing", at(1)), ("/", "resolved", at(4))]


def test_a_row_taken_back_resolves_it(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = running(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9), ("/cart", 1, 9)]))
    signs = pa.array([-1, -1, 1], pa.int8())
    rows = [("/", 1, 9), ("/cart", 1, 9), ("/cart", 1, 8)]
    writer.write("i2", 2, batch(sink, rows, _sign=signs))
    writer.close()
    assert news(receiver) == [("/", "firing", at(1)), ("/cart", "firing", at(1)),
                              ("/", "resolved", at(1))]  # fmt: skip


def test_the_order_of_rows_of_one_moment_does_not_matter(receiver: Receiver) -> None:
    sink = alert(receiver, by=[])
    told = played(receiver, sink, [("/", 1, 9), ("/cart", 1, 1)], [("/cart", 2, 1), ("/", 2, 9)],
                  [("/", 3, 2), ("/cart", 3, 1)])  # fmt: skip
    assert told == [("", "firing", at(1)), ("", "resolved", at(3))]


def test_what_is_given_and_taken_back_in_one_batch_raises_nothing(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = running(sink)
    signs = pa.array([1, -1, 1], pa.int8())
    writer.write("i1", 1, batch(sink, [("/", 1, 9), ("/", 1, 9), ("/", 1, 3)], _sign=signs))
    writer.write("i2", 2, batch(sink, [("/", 2, 9), ("/", 2, 9)], _sign=signs[:2]))
    writer.close()
    assert news(receiver) == []


def test_an_early_pane_raises_and_only_a_whole_window_or_its_correction_clears(
    receiver: Receiver,
) -> None:
    sink = alert(receiver)
    writer = running(sink)
    for number, (second, n, pane) in enumerate(
        [(5, 9, "early"), (5, 9, "on_time"), (10, 1, "early"), (5, 2, "late"), (10, 8, "on_time"),
         (15, 2, "early"), (10, 2, "late"), (15, 1, "on_time"), (10, 9, "late")], start=1
    ):  # fmt: skip
        writer.write(f"i{number}", number, batch(sink, [("/", second, n)], pane=pa.array([pane])))
    writer.close()
    assert news(receiver) == [("/", "firing", at(5)), ("/", "resolved", at(5)),
                              ("/", "firing", at(10)), ("/", "resolved", at(10))]  # fmt: skip


def test_a_key_whose_windows_stay_away_is_resolved(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = running(sink)

    def spans(*seconds: int) -> dict[str, pa.Array]:
        kind = pa.timestamp("us", "UTC")
        return {"window_start": pa.array([(s - 5) * SECOND for s in seconds], kind),
                "window_end": pa.array([s * SECOND for s in seconds], kind)}  # fmt: skip

    for number, (page, second, n) in enumerate(
        [("/cart", 5, 9), ("/", 10, 1), ("/", 15, 1), ("/", 20, 1)], start=1
    ):
        told = batch(sink, [(page, second, n)], **spans(second))
        writer.write(f"i{number}", number, told)
    writer.close()
    assert news(receiver) == [("/cart", "firing", at(5)), ("/cart", "resolved", at(15))]


def test_a_table_says_what_is_true_until_it_changes(receiver: Receiver) -> None:
    sink = alert(receiver, for_="10 seconds")
    told = played(receiver, sink, [("/", 1, 9), ("/cart", 1, 9)], [("/cart", 8, 1)],
                  [("/pay", 12, 1)], level=True)  # fmt: skip
    assert told == [("/", "firing", at(11))]


def test_time_goes_on_where_no_row_comes(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is nothing to do: a run that is only slow lets no time pass."""
    monkeypatch.setattr(notice_writer, "_QUIET", 0.1)
    sink = alert(receiver, absent="1 second")
    writer = running(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    until(receiver.taken)
    time.sleep(1.5)
    writer.close()
    assert news(receiver) == [("/", "firing", at(1))]
    writer = running(sink, epoch=2, calm=3600.0)
    until(lambda: len(receiver.taken()) == 2)
    writer.close()
    assert news(receiver)[1:] == [("/", "resolved", at(2))]


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_rows_without_a_time_are_of_now(receiver: Receiver) -> None:
    sink = alert(receiver, by=[])
    table = pa.table({"page": ["/"], "n": [9]})
    writer = running(sink)
    writer.write("i1", 1, [Staged("fails", "result", sink, ("page",), 1, lambda: iter([table]))])
    writer.close()
    [post] = receiver.taken()
    assert post.data["key"] == {}
    assert json.loads(post.body)["timestamp"][:10] == time.strftime("%Y-%m-%d", time.gmtime())


def test_nulls_raise_nothing_and_are_keys_like_any_other(receiver: Receiver) -> None:
    sink = alert(receiver)
    table = pa.table({"page": pa.array([None, "/"]), "n": pa.array([9, None], pa.int64()),
                      "_time": [SECOND, SECOND]})  # fmt: skip
    writer = running(sink)
    writer.write("i1", 1, [Staged("fails", "result", sink, ("page",), 2, lambda: iter([table]))])
    writer.close()
    assert [post.data["key"] for post in receiver.taken()] == [{"page": None}]


# -- any cut, any restart ------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_the_same_rows_tell_the_same_under_any_cut_and_restart(
    seed: int, receiver: Receiver
) -> None:
    chance = random.Random(seed)
    rows = drawn(chance)
    rule = {"for_": chance.choice([0, 0, 3, 7]), "hold": chance.choice([0, 5, 20])}
    level, clears = chance.random() < 0.5, chance.choice([None, "n < 3"])
    absent = chance.choice([None, 4, 11])
    sink = alert(receiver, clears=clears, absent=None if absent is None else f"{absent} seconds",
                 **{name: f"{value} seconds" for name, value in rule.items()})  # fmt: skip
    writer, number = running(sink), 0
    while rows_left := rows[number:]:
        size = chance.choice([1, 2, 3, 10, len(rows)])
        part = whole_seconds(rows_left, size)
        chance.shuffle(part)
        number += len(part)
        writer.write(f"i{number}", number, batch(sink, part, level=level))
        if chance.random() < 0.3:
            writer.close()
            writer = running(sink, epoch=number + 2)
    writer.close()
    wanted = oracle.told(
        [oracle.Row(page, second, n > 5, n < 3 if clears else n <= 5, absent)
         for page, second, n in rows], level=level, **rule,
    )  # fmt: skip
    told = [(p.data["key"]["page"], p.data["state"], json.loads(p.body)["timestamp"][11:19],
             p.data["since"][11:19]) for p in receiver.taken()]  # fmt: skip
    assert sorted(told) == sorted((n.key, n.kind, at(n.at), at(n.begun)) for n in wanted)
    assert len({post.id for post in receiver.posts}) == len(told)


def drawn(chance: random.Random) -> list[Observed]:
    """Rows in order of time, each page at most once a second."""
    rows = []
    for second in range(1, chance.randrange(10, 60)):
        for page in "abc":
            if chance.random() < 0.6:
                rows.append((page, second, chance.choice([1, 4, 9, 9])))
    return rows


def whole_seconds(rows: list[Observed], size: int) -> list[Observed]:
    """So many rows, and those of the last second that are missing."""
    last = rows[min(size, len(rows)) - 1][1]
    return [row for row in rows if row[1] <= last]


def test_a_batch_that_comes_again_changes_nothing(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = running(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    writer.close()
    again = notice_writer.NoticeWriter(Opening("shop", JOB, 2, (sink,)))
    assert again.recover("i1") == "i1"
    again.close()
    assert len(receiver.posts) == 1


def test_after_a_rewind_the_same_episodes_are_not_told_again(receiver: Receiver) -> None:
    sink = alert(receiver)
    rows = [("/", 1, 9), ("/", 2, 1), ("/cart", 3, 9)]
    writer = running(sink)
    writer.write("i1", 1, batch(sink, rows))
    writer.close()
    again = running(sink, epoch=2)
    again.go_back(0, None, "rewound")
    again.write("i2", 2, batch(sink, [*rows, ("/pay", 4, 9)]))
    again.close()
    assert news(receiver) == [("/", "firing", at(1)), ("/", "resolved", at(2)),
                              ("/cart", "firing", at(3)), ("/pay", "firing", at(4))]  # fmt: skip


# -- telling --------------------------------------------------------------------------


def test_a_receiver_that_is_down_holds_nobody_and_hears_of_it_later(receiver: Receiver) -> None:
    receiver.answering(503)
    sink = alert(receiver)
    writer = running(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    writer.write("i2", 2, batch(sink, [("/cart", 1, 9)]))
    until(lambda: len(receiver.taken()) == 2)
    writer.close()
    assert len({post.id for post in receiver.posts}) == 2


def test_what_is_sent_again_does_not_pass_what_came_later(receiver: Receiver) -> None:
    receiver.answering(503)
    told = played(receiver, alert(receiver), [("/", 1, 9)], [("/", 2, 1)], [("/cart", 3, 9)])
    writer = running(alert(receiver), epoch=2)
    until(lambda: len(receiver.taken()) == 3)
    writer.close()
    assert [state for _, state, _ in news(receiver)] == ["firing", "resolved", "firing"]
    assert len(told) <= 3


def test_a_receiver_that_wants_nothing_more_is_left_alone_and_that_is_kept(
    receiver: Receiver,
) -> None:
    receiver.answering(410)
    sink = alert(receiver)
    writer = running(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    until(lambda: receiver.posts)
    writer.write("i2", 2, batch(sink, [("/cart", 1, 9)]))
    writer.close()
    assert len(receiver.posts) == 1
    assert outcomes() == ["failed", "failed"]


def outcomes() -> list[str | None]:
    with closing(sqlite3.connect(store_file(JOB))) as store:
        return [row[0] for row in store.execute("SELECT outcome FROM outbox ORDER BY place")]


def test_a_secret_that_is_not_set_is_asked_for_again_by_the_next_run(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = alert(receiver, to=ms.Webhook("${env:OPS_HOOK}", allow_private=True))
    assert played(receiver, sink, [("/", 1, 9)]) == []
    with closing(sqlite3.connect(store_file(JOB))) as store:
        [[problem]] = store.execute("SELECT problem FROM parcels").fetchall()
    assert "OPS_HOOK" in problem
    monkeypatch.setenv("OPS_HOOK", receiver.url)
    running(sink, epoch=2).close()
    assert news(receiver) == [("/", "firing", at(1))]


class Crash(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("point", ["before a sink's commit", "after a sink's commit"])
def test_a_crash_around_the_commit_tells_each_episode_once(receiver: Receiver, point: str) -> None:
    sink, armed = alert(receiver), [point]

    def told(reached: str) -> None:
        if reached in armed:
            raise Crash

    writer = notice_writer.NoticeWriter(Opening("shop", JOB, 1, (sink,), told=told))
    writer.recover(None)
    with pytest.raises(Crash):
        writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    successor = notice_writer.NoticeWriter(Opening("shop", JOB, 2, (sink,)))
    found = successor.recover(None)
    assert found == (None if point.startswith("before") else "i1")
    armed.clear()
    with pytest.raises(Fenced):
        writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    writer.close()
    if found is None:
        successor.write("i1", 1, batch(sink, [("/", 1, 9)]))
    successor.write("i2", 2, batch(sink, [("/", 2, 1)]))
    successor.close()
    assert news(receiver) == [("/", "firing", at(1)), ("/", "resolved", at(2))]


def test_a_silence_is_kept_and_what_still_fires_after_it_is_told(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = running(sink)
    writer.write("i1", 1, batch(sink, [("/x", 1, 1), ("/y", 1, 9), ("/y", 2, 1)]))
    until(lambda: len(receiver.taken()) == 2)
    with closing(NoticeStore(store_file(JOB))) as store:
        store.silence("fails", "", time.time() + 3600)
        writer.write("i2", 2, batch(sink, [("/", 3, 9), ("/cart", 3, 9)]))
        writer.write("i3", 3, batch(sink, [("/cart", 4, 1)]))
        until(lambda: "silenced" in outcomes())
        assert len(receiver.posts) == 2
        assert store.unsilence("fails", "")
    until(lambda: len(receiver.taken()) == 3)
    writer.close()
    assert news(receiver)[2:] == [("/", "firing", at(3))]
    assert sorted(map(str, outcomes())) == ["sent"] * 3 + ["silenced"] * 2


def test_a_mail_tells_of_all_that_fires_at_once() -> None:
    with MailServer() as server:
        to = ms.Email("ops@example.com", url=server.url, sender="shop@example.com")
        sink = ms.Alert("fails", when="n > 5", to=[to])
        writer = running(sink)
        writer.write("i1", 1, batch(sink, [("/", 1, 9), ("/cart", 1, 7), ("/pay", 1, 1)]))
        until(lambda: server.mails)
        writer.write("i2", 2, batch(sink, [("/", 2, 1)]))
        writer.close()
        assert server.subjects()[0] == "[2 firing] shop: fails"
        text = server.mails[0].get_content()
        assert "fails (/cart) is firing, since 1970-01-01T00:00:01.000Z" in text
        assert "  n: 7" in text
        assert server.subjects()[1:] == ["[resolved] shop: fails (/)"]


def test_no_secret_is_in_the_store(receiver: Receiver, tmp_path: Path) -> None:
    mail = ms.Email("ops@example.com", url="smtp://me:canary@127.0.0.1:9")
    hook = ms.Webhook(receiver.url, allow_private=True, headers={"Authorization": "canary"})
    sink = ms.Alert("fails", when="n > 5", to=[mail, hook])
    played(receiver, sink, [("/", 1, 9)])
    assert receiver.posts[0].headers["Authorization"] == "canary"
    found = [file for file in (tmp_path / "home").rglob("*") if file.is_file()]
    assert found
    assert not [file for file in found if b"canary" in file.read_bytes()]


def test_more_keys_than_can_be_watched_are_counted(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice_writer, "MOST_KEYS", 3)
    sink = alert(receiver)
    played(receiver, sink, [(f"/{n}", 1, 9) for n in range(5)])
    assert len(receiver.taken()) == 3
    with closing(sqlite3.connect(store_file(JOB))) as store:
        assert store.execute("SELECT untracked FROM alerts").fetchall() == [(2,)]


def test_a_row_of_ten_megabytes_is_told_in_short(receiver: Receiver) -> None:
    sink = alert(receiver)
    played(receiver, sink, [("x" * 10_000_000, 1, 9), ("x" * 9_999_999, 1, 9)])
    assert len(receiver.taken()) == 2
    assert max(len(post.body) for post in receiver.posts) < 20_000
    assert len({post.data["key"]["page"] for post in receiver.posts}) == 2


def test_an_alert_that_is_no_longer_in_the_pipeline_stands_no_more(receiver: Receiver) -> None:
    played(receiver, alert(receiver), [("/", 1, 9)])
    other = ms.Alert("slow", when="n > 5")
    writer = running(other, epoch=2)
    writer.close()
    with closing(sqlite3.connect(store_file(JOB))) as store:
        assert store.execute("SELECT alert FROM standings").fetchall() == []
        assert store.execute("SELECT alert FROM alerts").fetchall() == []


# -- building -----------------------------------------------------------------------------


def test_what_an_alert_names_must_be_there() -> None:
    views = ms.read(ms.Topic("views", schema="page string, ms long, ts timestamp"), time="ts")
    slow = views.by("page").window(ms.tumbling("5 seconds")).agg(slowest=ms.max("ms"))
    assert slow.to(ms.Alert("slow", when="slowest > 1000")).keys == ("page",)
    finer = ms.Alert("slow", when="slowest > 1000", by=["page", "window_start"])
    assert slow.to(finer).keys == ("page", "window_start")
    assert views.to(ms.Alert("slow", when="ms > 1000")).keys == ()
    with pytest.raises(InvalidSpec, match=r"each key of its rows by itself: page; got by=\[\]"):
        slow.to(ms.Alert("slow", when="slowest > 1000", by=[]))
    table = views.by("page").agg(n=ms.count())
    assert table.to(ms.Alert("many", when="n > 1000")).keys == ("page",)
    with pytest.raises(InvalidSpec, match=r"names of columns of Alert\('slow', …\); got ms"):
        slow.to(ms.Alert("slow", when="ms > 1000"))
    with pytest.raises(InvalidSpec, match="country"):
        views.to(ms.Alert("slow", when="ms > 1000", by="country"))
    with pytest.raises(InvalidSpec, match=r"\.with_columns"):
        slow.to(ms.Alert("slow", when="slowest > 1000 and page rlike 'x'"))
    plan = ms.Pipeline("p", slow.to(ms.Alert("slow", when="slowest > 1000"))).plan()
    assert "Alert('slow', when slowest > 1000), at least once" in plan


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ms.Alert("", when="n > 1"), "needs a name"),
        (lambda: ms.Alert("a\nb", when="n > 1"), "needs a name"),
        (lambda: ms.Alert("a", when=" "), "Alert(when=…) needs a condition"),
        (lambda: ms.Alert("a", when="n > 1", clears=""), "Alert(clears=…) needs a condition"),
        (lambda: ms.Alert("a", when="n > 1", for_="-1 second"), "Alert(for_=…)"),
        (lambda: ms.Alert("a", when="n > 1", absent="0 seconds"), "Alert(absent=…)"),
        (lambda: ms.Alert("a", when="n > 1", to=["ops@example.com"]), "needs ms.Email"),  # type: ignore[list-item]
        (lambda: ms.JobAlert("lag"), "needs above=, a number"),
        (lambda: ms.JobAlert("late", above=2), "a share from 0 to 1"),
        (lambda: ms.JobAlert("hung", above=2), "needs no limit"),
        (lambda: ms.JobAlert("tired"), "needs one of lag"),  # type: ignore[arg-type]
        (
            lambda: ms.JobAlert("hung", to=ms.Email("a@b", url="smtps://me:x@mail.example")),
            "secrets as references",
        ),
    ],
)
def test_an_alert_that_cannot_be_is_refused_where_it_is_written(
    make: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        make()
    assert sentence in str(refused.value)


def test_a_condition_that_does_not_fit_the_types_stops_the_job(receiver: Receiver) -> None:
    sink = alert(receiver, when="page > 5")
    writer = running(sink)
    with pytest.raises(InvalidSpec, match="fit the types"):
        writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    writer.close()

"""What an alert tells, whom, and how often: at least once, under one id, and not in silence."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.sinks.alerting import alert, at, batch, news, played, running, until
from tests.sinks.batches import JOB
from tests.sinks.mailing import MailServer

import millstream as ms
from millstream.errors import Fenced
from millstream.sinks.alerts import store as alert_store
from millstream.sinks.alerts import writer as alert_writer
from millstream.sinks.alerts.outbox import Outbox, Target
from millstream.sinks.alerts.rule import Transition
from millstream.sinks.alerts.store import NoticeStore, store_file
from millstream.sinks.spec import Opening

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sinks.receiving import Receiver


pytestmark = pytest.mark.usefixtures("home_apart")


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

    writer = alert_writer.NoticeWriter(Opening("shop", JOB, 1, (sink,), on_step=told))
    writer.recover(None)
    with pytest.raises(Crash):
        writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    successor = alert_writer.NoticeWriter(Opening("shop", JOB, 2, (sink,)))
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
    ids = (post.id for post in receiver.taken())
    distinct = dict(zip(ids, news(receiver), strict=True))
    assert sorted(distinct.values()) == [("/", "firing", at(1)), ("/", "resolved", at(2))]


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


def test_no_secret_is_in_the_store(receiver: Receiver, home_apart: Path) -> None:
    mail = ms.Email("ops@example.com", url="smtp://me:canary@127.0.0.1:9")
    hook = ms.Webhook(receiver.url, allow_private=True, headers={"Authorization": "canary"})
    sink = ms.Alert("fails", when="n > 5", to=[mail, hook])
    played(receiver, sink, [("/", 1, 9)])
    assert receiver.posts[0].headers["Authorization"] == "canary"
    found = [file for file in home_apart.rglob("*") if file.is_file()]
    assert found
    assert not [file for file in found if b"canary" in file.read_bytes()]


def test_more_keys_than_can_be_watched_are_counted(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_writer, "MOST_KEYS", 3)
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


def test_a_batch_that_comes_again_changes_nothing(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = running(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    writer.close()
    again = alert_writer.NoticeWriter(Opening("shop", JOB, 2, (sink,)))
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
    again.rewind(0, None, "rewound")
    again.write("i2", 2, batch(sink, [*rows, ("/pay", 4, 9)]))
    again.close()
    assert news(receiver) == [("/", "firing", at(1)), ("/", "resolved", at(2)),
                              ("/cart", "firing", at(3)), ("/pay", "firing", at(4))]  # fmt: skip


def test_an_episode_that_began_before_the_batch_gone_back_to_goes_on(receiver: Receiver) -> None:
    sink = alert(receiver)
    later = [("/", 2, 9), ("/cart", 2, 9), ("/", 3, 1)]
    writer = running(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    writer.write("i2", 2, batch(sink, later[:2]))
    writer.rewind(1, "i1", "rewound")
    writer.write("i3", 3, batch(sink, later))
    writer.close()
    assert news(receiver) == [("/", "firing", at(1)), ("/cart", "firing", at(2)),
                              ("/", "resolved", at(3))]  # fmt: skip


def test_a_store_of_an_earlier_version_is_taken_over(receiver: Receiver) -> None:
    played(receiver, alert(receiver), [("/", 1, 9)])
    with closing(sqlite3.connect(store_file(JOB))) as store:
        store.execute("ALTER TABLE standings DROP COLUMN batch")
        store.execute("ALTER TABLE alerts DROP COLUMN given_up")
    writer = running(alert(receiver), epoch=2)
    writer.write("i2", 2, batch(alert(receiver), [("/", 2, 1)]))
    writer.close()
    assert news(receiver) == [("/", "firing", at(1)), ("/", "resolved", at(2))]


def enqueue(store: NoticeStore, page: str, gathers: float = 0.0) -> None:
    """Queue a notification to `to`: an episode of this page begins."""
    store.enqueue(
        "fails", json.dumps({"page": page}), Transition("firing", 1, 1), {"to": gathers}, 1, "{}"
    )


def test_what_is_silent_lets_the_others_be_gathered(home_apart: Path) -> None:
    with MailServer() as server, closing(NoticeStore(home_apart / "alerts.db")) as store:
        mail = ms.Email("ops@example.com", url=server.url, sender="shop@example.com")
        outbox = Outbox(store, {"to": Target(mail, "shop")})
        store.register("fails", {})
        enqueue(store, "/")
        assert outbox.send_due() == 1
        store.silence("fails", '{"page": "/cart"}', time.time() + 3600)
        enqueue(store, "/cart")
        enqueue(store, "/pay", gathers=3600)
        assert outbox.send_due() == 0
        assert outbox.send_due(everything=True) == 1
        assert server.subjects() == ["[firing] shop: fails (/)", "[firing] shop: fails (/pay)"]


def test_of_what_waits_for_a_receiver_that_is_down_the_oldest_is_given_up_and_counted(
    receiver: Receiver, home_apart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_store, "MOST_PENDING", 30)
    receiver.answering(503)
    with closing(NoticeStore(home_apart / "alerts.db")) as store:
        hook = ms.Webhook(receiver.url, allow_private=True)
        outbox = Outbox(store, {"to": Target(hook, "shop")})
        store.register("fails", {})
        for number in range(25):
            enqueue(store, f"/{number}")
        assert outbox.send_due() == 0
        for number in range(25, 50):
            enqueue(store, f"/{number}")
        outbox.send_due()
        assert store.waiting("to") == 30
        [alert_row] = store.rows("SELECT given_up FROM alerts")
        assert alert_row["given_up"] == 20
        lost = store.rows("SELECT key, problem FROM outbox JOIN parcels USING (parcel) "
                          "WHERE outcome = 'failed' ORDER BY place")  # fmt: skip
        assert {row["problem"] for row in lost} == {"too many waited"}
        assert [json.loads(row["key"])["page"] for row in lost] == [f"/{n}" for n in range(20, 40)]
        store.run("UPDATE parcels SET again = 0")
        while outbox.send_due():
            pass
        pages = [post.data["key"]["page"] for post in receiver.taken()]
        assert pages == [f"/{n}" for n in (*range(20), *range(40, 50))]

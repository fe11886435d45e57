"""Notifications of alerts: at least once, under one id, and not while silenced."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.sinks.alerting import alert, at, batch, notifications, opened_writer, run_batches, until
from tests.sinks.batches import JOB
from tests.sinks.mailing import MailServer

import millstream as ms
from millstream.errors import Fenced
from millstream.sinks.alerts import store as alert_store
from millstream.sinks.alerts import writer as alert_writer
from millstream.sinks.alerts.outbox import Outbox, Recipient
from millstream.sinks.alerts.rule import Transition
from millstream.sinks.alerts.store import NotificationStore, store_file
from millstream.sinks.spec import Opening

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sinks.receiving import Receiver


pytestmark = pytest.mark.usefixtures("home_apart")


def test_a_receiver_that_is_down_delays_nothing_and_is_notified_later(receiver: Receiver) -> None:
    receiver.answering(503)
    sink = alert(receiver)
    writer = opened_writer(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    writer.write("i2", 2, batch(sink, [("/cart", 1, 9)]))
    until(lambda: len(receiver.taken()) == 2)
    writer.close()
    assert len({post.id for post in receiver.posts}) == 2


def test_a_retry_keeps_the_order_of_notifications(receiver: Receiver) -> None:
    receiver.answering(503)
    sent = run_batches(receiver, alert(receiver), [("/", 1, 9)], [("/", 2, 1)], [("/cart", 3, 9)])
    writer = opened_writer(alert(receiver), epoch=2)
    until(lambda: len(receiver.taken()) == 3)
    writer.close()
    assert [state for _, state, _ in notifications(receiver)] == ["firing", "resolved", "firing"]
    assert len(sent) <= 3


def test_a_receiver_that_is_gone_gets_no_more_posts(
    receiver: Receiver,
) -> None:
    receiver.answering(410)
    sink = alert(receiver)
    writer = opened_writer(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    until(lambda: receiver.posts)
    writer.write("i2", 2, batch(sink, [("/cart", 1, 9)]))
    writer.close()
    assert len(receiver.posts) == 1
    assert outcomes() == ["failed", "failed"]


def outcomes() -> list[str | None]:
    with closing(sqlite3.connect(store_file(JOB))) as store:
        return [row[0] for row in store.execute("SELECT outcome FROM outbox ORDER BY place")]


def test_a_secret_that_is_not_set_is_resolved_again_by_the_next_run(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = alert(receiver, to=ms.Webhook("${env:OPS_HOOK}", allow_private=True))
    assert run_batches(receiver, sink, [("/", 1, 9)]) == []
    with closing(sqlite3.connect(store_file(JOB))) as store:
        [[problem]] = store.execute("SELECT problem FROM parcels").fetchall()
    assert "OPS_HOOK" in problem
    monkeypatch.setenv("OPS_HOOK", receiver.url)
    opened_writer(sink, epoch=2).close()
    assert notifications(receiver) == [("/", "firing", at(1))]


class Crash(BaseException):
    """The process is killed."""


@pytest.mark.parametrize("point", ["before a sink's commit", "after a sink's commit"])
def test_a_crash_around_the_commit_notifies_each_episode_once(
    receiver: Receiver, point: str
) -> None:
    sink, armed = alert(receiver), [point]

    def crash(reached: str) -> None:
        if reached in armed:
            raise Crash

    writer = alert_writer.NotificationWriter(Opening("shop", JOB, 1, (sink,), on_step=crash))
    writer.recover(None)
    with pytest.raises(Crash):
        writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    successor = alert_writer.NotificationWriter(Opening("shop", JOB, 2, (sink,)))
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
    distinct = dict(zip(ids, notifications(receiver), strict=True))
    assert sorted(distinct.values()) == [("/", "firing", at(1)), ("/", "resolved", at(2))]


def test_an_alert_that_still_fires_after_a_silence_notifies_then(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = opened_writer(sink)
    writer.write("i1", 1, batch(sink, [("/x", 1, 1), ("/y", 1, 9), ("/y", 2, 1)]))
    until(lambda: len(receiver.taken()) == 2)
    with closing(NotificationStore(store_file(JOB))) as store:
        store.silence("fails", "", time.time() + 3600)
        writer.write("i2", 2, batch(sink, [("/", 3, 9), ("/cart", 3, 9)]))
        writer.write("i3", 3, batch(sink, [("/cart", 4, 1)]))
        until(lambda: "silenced" in outcomes())
        assert len(receiver.posts) == 2
        assert store.unsilence("fails", "")
    until(lambda: len(receiver.taken()) == 3)
    writer.close()
    assert notifications(receiver)[2:] == [("/", "firing", at(3))]
    assert sorted(map(str, outcomes())) == ["sent"] * 3 + ["silenced"] * 2


def test_one_mail_lists_all_keys_that_fire_together() -> None:
    with MailServer() as server:
        to = ms.Email("ops@example.com", url=server.url, sender="shop@example.com")
        sink = ms.Alert("fails", when="n > 5", to=[to])
        writer = opened_writer(sink)
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
    run_batches(receiver, sink, [("/", 1, 9)])
    assert receiver.posts[0].headers["Authorization"] == "canary"
    found = [file for file in home_apart.rglob("*") if file.is_file()]
    assert found
    assert not [file for file in found if b"canary" in file.read_bytes()]


def test_keys_beyond_the_limit_are_counted(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_writer, "MOST_KEYS", 3)
    sink = alert(receiver)
    run_batches(receiver, sink, [(f"/{n}", 1, 9) for n in range(5)])
    assert len(receiver.taken()) == 3
    with closing(sqlite3.connect(store_file(JOB))) as store:
        assert store.execute("SELECT untracked FROM alerts").fetchall() == [(2,)]


def test_a_row_of_ten_megabytes_is_shortened(receiver: Receiver) -> None:
    sink = alert(receiver)
    run_batches(receiver, sink, [("x" * 10_000_000, 1, 9), ("x" * 9_999_999, 1, 9)])
    assert len(receiver.taken()) == 2
    assert max(len(post.body) for post in receiver.posts) < 20_000
    assert len({post.data["key"]["page"] for post in receiver.posts}) == 2


def test_an_alert_that_is_no_longer_in_the_pipeline_is_removed(receiver: Receiver) -> None:
    run_batches(receiver, alert(receiver), [("/", 1, 9)])
    other = ms.Alert("slow", when="n > 5")
    writer = opened_writer(other, epoch=2)
    writer.close()
    with closing(sqlite3.connect(store_file(JOB))) as store:
        assert store.execute("SELECT alert FROM standings").fetchall() == []
        assert store.execute("SELECT alert FROM alerts").fetchall() == []


def test_a_repeated_batch_changes_nothing(receiver: Receiver) -> None:
    sink = alert(receiver)
    writer = opened_writer(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    writer.close()
    again = alert_writer.NotificationWriter(Opening("shop", JOB, 2, (sink,)))
    assert again.recover("i1") == "i1"
    again.close()
    assert len(receiver.posts) == 1


def test_after_a_rewind_the_same_episodes_do_not_notify_again(receiver: Receiver) -> None:
    sink = alert(receiver)
    rows = [("/", 1, 9), ("/", 2, 1), ("/cart", 3, 9)]
    writer = opened_writer(sink)
    writer.write("i1", 1, batch(sink, rows))
    writer.close()
    again = opened_writer(sink, epoch=2)
    again.rewind(0, None, "rewound")
    again.write("i2", 2, batch(sink, [*rows, ("/pay", 4, 9)]))
    again.close()
    assert notifications(receiver) == [("/", "firing", at(1)), ("/", "resolved", at(2)),
                              ("/cart", "firing", at(3)), ("/pay", "firing", at(4))]  # fmt: skip


def test_an_episode_that_began_before_the_rewound_batches_continues(receiver: Receiver) -> None:
    sink = alert(receiver)
    later = [("/", 2, 9), ("/cart", 2, 9), ("/", 3, 1)]
    writer = opened_writer(sink)
    writer.write("i1", 1, batch(sink, [("/", 1, 9)]))
    writer.write("i2", 2, batch(sink, later[:2]))
    writer.rewind(1, "i1", "rewound")
    writer.write("i3", 3, batch(sink, later))
    writer.close()
    assert notifications(receiver) == [("/", "firing", at(1)), ("/cart", "firing", at(2)),
                              ("/", "resolved", at(3))]  # fmt: skip


def test_a_store_of_an_earlier_version_is_upgraded(receiver: Receiver) -> None:
    run_batches(receiver, alert(receiver), [("/", 1, 9)])
    with closing(sqlite3.connect(store_file(JOB))) as store:
        store.execute("ALTER TABLE standings DROP COLUMN batch")
        store.execute("ALTER TABLE alerts DROP COLUMN given_up")
    writer = opened_writer(alert(receiver), epoch=2)
    writer.write("i2", 2, batch(alert(receiver), [("/", 2, 1)]))
    writer.close()
    assert notifications(receiver) == [("/", "firing", at(1)), ("/", "resolved", at(2))]


def enqueue(store: NotificationStore, page: str, digest: float = 0.0) -> None:
    """Queue a notification to `to`: an episode of this page begins."""
    store.enqueue(
        "fails", json.dumps({"page": page}), Transition("firing", 1, 1), {"to": digest}, 1, "{}"
    )


def test_a_silenced_alert_does_not_end_the_digest_of_others(home_apart: Path) -> None:
    with MailServer() as server, closing(NotificationStore(home_apart / "alerts.db")) as store:
        mail = ms.Email("ops@example.com", url=server.url, sender="shop@example.com")
        outbox = Outbox(store, {"to": Recipient(mail, "shop")})
        store.register("fails", {})
        enqueue(store, "/")
        assert outbox.send_due() == 1
        store.silence("fails", '{"page": "/cart"}', time.time() + 3600)
        enqueue(store, "/cart")
        enqueue(store, "/pay", digest=3600)
        assert outbox.send_due() == 0
        assert outbox.send_due(everything=True) == 1
        assert server.subjects() == ["[firing] shop: fails (/)", "[firing] shop: fails (/pay)"]


def test_the_oldest_notifications_beyond_the_limit_are_dropped_and_counted(
    receiver: Receiver, home_apart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_store, "MOST_PENDING", 30)
    receiver.answering(503)
    with closing(NotificationStore(home_apart / "alerts.db")) as store:
        hook = ms.Webhook(receiver.url, allow_private=True)
        outbox = Outbox(store, {"to": Recipient(hook, "shop")})
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

"""`Email`: rows collected into mails and sent to a real server, under stable ids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from tests.sinks.alerting import until
from tests.sinks.batches import opened, staged
from tests.sinks.mailing import MailServer

import millstream as ms
from millstream.errors import DataGone, Fenced, InvalidSpec, MillstreamError
from millstream.sinks.alerts import outbox
from millstream.sinks.alerts.smtp import LONGEST_SUBJECT, MOST_CHARACTERS, Mail, message, send
from millstream.sinks.webhook.post import RetryLater

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("home_apart")
SENDER = "shop@example.com"


@pytest.fixture
def server() -> Iterator[MailServer]:
    with MailServer() as running:
        yield running


def email(server: MailServer, **options: Any) -> ms.Email:
    return ms.Email("ops@example.com", **{"url": server.url, "sender": SENDER, **options})


def unused() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"smtp://127.0.0.1:{listener.getsockname()[1]}"


def test_the_rows_of_a_digest_are_one_mail(server: MailServer) -> None:
    sink = email(server, subject="{page} fails", body="{page}: {n} times", digest="1 hour")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, page=["/", "/cart"], n=[1, 2])])
    writer.write("two", 2, [staged(sink, page=["/pay"], n=[3])])
    assert server.mails == []
    writer.close()
    [mail] = server.mails
    assert mail["Subject"] == "/ fails (and 2 more)"
    assert mail["To"] == "ops@example.com"
    assert mail["From"] == SENDER
    assert mail.get_content().split("\r\n") == [
        "/: 1 times", "", "/cart: 2 times", "", "/pay: 3 times", "",
    ]  # fmt: skip


def test_a_digest_is_sent_when_its_time_is_over(server: MailServer) -> None:
    sink = email(server, digest="100 milliseconds")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, page=["/"], n=[1])])
    until(lambda: server.mails)
    assert server.subjects() == ["shop: 1 row of email"]
    assert server.mails[0].get_content().split() == ["page:", "/", "n:", "1"]
    writer.close()
    assert len(server.mails) == 1


def test_without_digest_each_row_is_a_mail_and_rows_beyond_the_limit_share_one(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST_SINGLE", 30)
    sink = email(server, subject="n={n}", digest=None)
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=list(range(33)))])
    until(lambda: len(server.mails) == 31, 120)
    writer.write("two", 2, [staged(sink, n=[33, 34])])
    writer.close()
    gathered = ["n=30 (and 2 more)", "n=33 (and 1 more)"]
    assert server.subjects() == [f"n={n}" for n in range(30)] + gathered
    assert len({mail["Message-ID"] for mail in server.mails}) == 32


def test_rows_for_a_recipient_no_longer_in_the_pipeline_are_dropped_and_reported(
    server: MailServer,
) -> None:
    gone = ms.Email("ops@example.com", url=unused(), sender=SENDER, name="gone")
    writer = opened(gone)
    writer.write("one", 1, [staged(gone, n=[1, 2])])
    writer.close()
    reported: list[str] = []
    writer = opened(email(server), recovered=False, epoch=2, on_wait=reported.append)
    writer.recover("one")
    writer.close()
    assert server.mails == []
    assert reported == ["dropped 2 notifications: their recipients are no longer in the pipeline"]


def test_a_digest_of_very_many_rows_is_bounded_and_says_so(server: MailServer) -> None:
    sink = email(server, digest="1 hour")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=list(range(20_000)))])
    writer.close()
    [mail] = server.mails
    assert mail["Subject"] == "shop: 20,000 rows of email"
    assert "… and 19,800 more rows" in mail.get_content()


def test_rows_wait_for_a_server_that_is_down_through_a_restart() -> None:
    """The job does not wait for it."""
    url = unused()
    writer = opened(ms.Email("ops@example.com", url=url, sender=SENDER, digest="1 hour"))
    sink = ms.Email("ops@example.com", url=url, sender=SENDER, digest="1 hour")
    writer.write("one", 1, [staged(sink, n=[1, 2])])
    writer.close()
    with MailServer() as server:
        again = email(server, digest="1 hour")
        writer = opened(again, recovered=False, epoch=2)
        assert writer.recover("one") == "one"
        until(lambda: server.mails)
        writer.close()
        assert server.subjects() == ["shop: 2 rows of email"]


def test_a_mail_that_the_server_defers_is_sent_again_under_the_same_id(server: MailServer) -> None:
    server.answers.append("451 later")
    sink = email(server, digest=None)
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    until(lambda: len(server.mails) == 2)
    writer.close()
    assert server.mails[0]["Message-ID"] == server.mails[1]["Message-ID"]
    assert len(server.mails) == 2


def test_a_deferred_recipient_gets_the_mail_later_and_the_others_once(server: MailServer) -> None:
    server.refused["b@example.com"] = deque(["450 later"])
    sink = ms.Email(["a@example.com", "b@example.com"], url=server.url, sender=SENDER, digest=None)
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    until(lambda: len(server.mails) == 2)
    writer.close()
    assert server.people == [["a@example.com"], ["b@example.com"]]
    assert server.mails[0]["Message-ID"] == server.mails[1]["Message-ID"]


def test_a_mail_that_the_server_rejects_stops_the_job_and_is_not_lost(server: MailServer) -> None:
    server.answers.append("554 no such thing here")
    sink = email(server, digest=None)
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])

    def stopped() -> bool:
        try:
            writer.write("none", 2, [staged(sink, n=[])])
        except MillstreamError as problem:
            return "554 no such thing here" in str(problem)
        return False

    until(stopped)
    writer.close()
    writer = opened(sink, recovered=False, epoch=2)
    writer.recover("one")
    until(lambda: len(server.mails) == 2)
    writer.close()
    refused, taken = server.mails
    assert refused["Message-ID"] == taken["Message-ID"]
    assert refused.get_content() == taken.get_content()


@pytest.mark.parametrize(("scheme", "login"), [("smtp+starttls", True), ("smtps", False)])
def test_connections_are_encrypted_and_certificates_checked(
    scheme: str, login: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MailServer(scheme, login) as server:
        sink = email(server)
        with pytest.raises(RetryLater, match="certificate verify failed"):
            send(sink, Mail("id", "s", "b"))
        server.authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        send(sink, Mail("id", "s", "b"))
        assert len(server.mails) == 1
        if login:
            wrong = ms.Email("a@example.com", sender=SENDER, url=server.url.replace("canary", "x"))
            with pytest.raises(MillstreamError, match="535") as refused:
                send(wrong, Mail("id", "s", "b"))
            assert not isinstance(refused.value, RetryLater)
            bare = ms.Email("a@example.com", sender=SENDER, url=server.url.replace(":canary", ""))
            with pytest.raises(InvalidSpec, match="MILLSTREAM_SMTP_PASSWORD"):
                send(bare, Mail("id", "s", "b"))
            monkeypatch.setenv("MILLSTREAM_SMTP_PASSWORD", "canary")
            send(bare, Mail("id", "s", "b"))


def test_the_default_server_is_set_by_the_environment(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ms.Email("ops@example.com", sender=SENDER)
    with pytest.raises(InvalidSpec, match="MILLSTREAM_SMTP"):
        send(sink, Mail("id", "s", "b"))
    monkeypatch.setenv("MILLSTREAM_SMTP", "smtp://mail.example:25")
    with pytest.raises(InvalidSpec, match=r"an encrypted connection to mail\.example"):
        send(sink, Mail("id", "s", "b"))
    monkeypatch.setenv("MILLSTREAM_SMTP", server.url)
    send(sink, Mail("id", "s", "b"))
    assert len(server.mails) == 1


@pytest.mark.parametrize(
    "value",
    ["x\r\nBcc: thief@example.com", "x\nSubject: y", "x\r\n\r\nbody", "a\u2028b", "\0", "x" * 5000,
     "=?utf-8?q?=0ABcc:_x?=", "🐢\u202e"],
)  # fmt: skip
def test_no_value_of_a_row_can_write_a_header(server: MailServer, value: str) -> None:
    sink = email(server, subject="{page}", body="{page}", digest=None)
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, page=[value])])
    writer.close()
    [mail] = server.mails
    assert sorted(mail.keys()) == [
        "Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date", "From",
        "MIME-Version", "Message-ID", "Subject", "To",
    ]  # fmt: skip
    assert server.people == [["ops@example.com"]]
    assert len(mail["Subject"]) <= LONGEST_SUBJECT


def test_the_text_of_a_mail_is_bounded() -> None:
    mail = message(Mail("id", "s", "x\n" * MOST_CHARACTERS), SENDER, ["a@example.com"])
    assert len(mail.get_content()) < MOST_CHARACTERS + 100
    assert "left out" in mail.get_content()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"to": []}, "1 to 50 addresses"),
        ({"to": "nobody"}, "addresses such as"),
        ({"to": "a@b\r\nBcc: c@d"}, "addresses such as"),
        ({"to": "a@b", "sender": "x"}, "addresses such as"),
        ({"to": "a@b", "subject": "x\ny"}, "on one line"),
        ({"to": "a@b", "body": "{}"}, "names of columns in its braces"),
        ({"to": "a@b", "url": "http://x"}, "smtp+starttls://"),
        ({"to": "a@b", "url": "smtp://mail.example"}, "an encrypted connection"),
        ({"to": "a@b", "url": "smtps://me:12/canary@mail.example"}, "%2F"),
        ({"to": "a@b", "url": "smtps://${env:HOST}"}, "something else after it"),
        ({"to": "a@b", "url": "canary"}, "got no address"),
        ({"to": "a@b", "digest": "0 seconds"}, "above zero"),
    ],
)
def test_an_invalid_email_raises_where_it_is_written(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        ms.Email(**options)
    assert sentence in str(refused.value)
    assert "canary" not in str(refused.value)


def test_an_unknown_column_is_refused_while_building() -> None:
    stream = ms.read(ms.Topic("t", schema="page string, n long"))
    with pytest.raises(InvalidSpec, match="pages"):
        stream.to(ms.Email("a@b", subject="{pages}"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("smtps://me:canary@mail.example", "smtps://me:***@mail.example"),
        ("smtps://ops@example.com:canary@mail.example:465",
         "smtps://ops@example.com:***@mail.example:465"),
        ("smtps://svc$x:canary@mail.example", "smtps://svc$x:***@mail.example"),
        ("smtps://me:p@canary@mail.example", "smtps://me:***@mail.example"),
        ("smtps://me:canary${env:REST}@mail.example", "smtps://me:***@mail.example"),
    ],
)  # fmt: skip
def test_no_password_is_in_its_texts(url: str, shown: str) -> None:
    stream = ms.read(ms.Topic("t", schema="n long"))
    sink = ms.Email("a@b", url=url)
    shown_texts = repr(sink) + sink.system + ms.Pipeline("p", stream.to(sink)).plan()
    assert "canary" not in shown_texts
    assert shown in shown_texts
    assert "at least once" in shown_texts
    with pytest.raises(InvalidSpec, match="a literal secret in url") as refused:
        ms.JobAlert("degraded", to=sink)
    assert "canary" not in str(refused.value)


def test_a_password_from_a_reference_is_used_literally(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No character in it is decoded or changes the server."""
    with MailServer("smtp+starttls", login=True) as server:
        server.authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        url = server.url.replace("ops:canary", "ops%40example.com:${env:SMTP_WORD}")
        sink = email(server, url=url)
        server.user = "ops@example.com"
        for word in ("a/b", "#", "?x", "50%25", "p@ss:word", "x@thief.example:25/"):
            monkeypatch.setenv("SMTP_WORD", word)
            server.password = word
            send(sink, Mail("id", "s", "b"))
        assert len(server.mails) == 6


def test_a_repeated_batch_is_not_mailed_again(server: MailServer) -> None:
    sink = email(server, digest="1 hour")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.close()
    writer = opened(sink, recovered=False, epoch=2)
    assert writer.recover("one") == "one"
    zombie = opened(sink, recovered=False, epoch=1)
    with pytest.raises(Fenced):
        zombie.recover("one")
    writer.close()
    zombie.close()
    assert len(server.mails) == 1


def test_a_lost_store_stops_the_job(server: MailServer) -> None:
    writer = opened(email(server), recovered=False)
    with pytest.raises(DataGone):
        writer.recover("one")
    writer.close()


KILLED = """
import sys, time
from tests.sinks.alerting import until
from tests.sinks.batches import opened, staged
import millstream as ms

sink = ms.Email("ops@example.com", url=sys.argv[1], sender="shop@example.com", digest=None)
opened(sink).write("one", 1, [staged(sink, n=[1, 2])])
print("written", flush=True)
time.sleep(600)
"""


def test_after_kill_9_a_mail_is_sent_again_under_the_same_id(server: MailServer) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, server.url], stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    server.on_data = process.kill
    until(lambda: process.poll() is not None, 240)
    assert process.wait() == -signal.SIGKILL
    assert process.stdout is not None
    process.stdout.close()
    server.on_data = None
    before = len(server.mails)
    writer = opened(email(server, digest=None), recovered=False, epoch=2)
    assert writer.recover("one") == "one"
    until(lambda: len(server.mails) == before + 2)
    writer.close()
    ids = [mail["Message-ID"] for mail in server.mails]
    assert ids[0] == ids[before]
    assert len(set(ids)) == 2

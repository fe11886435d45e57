"""The demo's mailbox receives mails, and survives malformed ones."""

from __future__ import annotations

import smtplib
import socket

import pytest

from millstream.cli.demo.mailbox import Mailbox
from millstream.sinks.alerts.email import Email
from millstream.sinks.alerts.smtp import Mail, send


def test_a_mail_arrives_with_its_subject() -> None:
    arrived: list[tuple[str, str]] = []
    with Mailbox(lambda to, subject: arrived.append((to, subject))) as mailbox:
        to = Email(["a@shop.example", "b@shop.example"], url=mailbox.url, sender="m@shop.example")
        send(to, Mail("1", "[firing] pages fail (/ü)", "a line\n.\n..a line with dots"))
        send(to, Mail("2", "another", ""))
    assert arrived == [("a@shop.example, b@shop.example", "[firing] pages fail (/ü)"),
                       ("a@shop.example, b@shop.example", "another")]  # fmt: skip


def test_malformed_sessions_do_not_close_it() -> None:
    arrived: list[str] = []
    with Mailbox(lambda to, subject: arrived.append(subject)) as mailbox:
        port = int(mailbox.url.rpartition(":")[2])
        for words in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff\x00" * 5000, b"DATA\r\nx"):
            with socket.create_connection(("127.0.0.1", port)) as guest:
                guest.sendall(words)
        with smtplib.SMTP("127.0.0.1", port) as client:
            assert client.docmd("VRFY", "x")[0] == 502
            client.sendmail("a@b", ["c@d"], "Subject: hello\r\n\r\nbody")
            with pytest.raises(smtplib.SMTPDataError, match="too large"):
                client.sendmail("a@b", ["c@d"], "x" * 100 + "\r\n" + "y" * 2_000_000)
        assert "hello" in arrived

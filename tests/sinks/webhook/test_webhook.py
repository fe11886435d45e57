"""`Webhook`: signed posts, retried under one id, to permitted addresses only."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import trustme
from tests.sinks.batches import opened, staged
from tests.sinks.receiving import Receiver

import millstream as ms
from millstream.errors import InvalidSpec, MillstreamError, Unavailable
from millstream.sinks.webhook.addresses import is_public
from millstream.sinks.webhook.post import Gone
from millstream.testing.sink_suite import SinkSuite

if TYPE_CHECKING:
    from pathlib import Path

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


def hook(receiver: Receiver, **options: Any) -> ms.Webhook:
    return ms.Webhook(receiver.url, **{"allow_private": True, **options})


class TestWebhook(SinkSuite):
    exactly_once = False

    @pytest.fixture(autouse=True)
    def place(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def sink(self) -> ms.Webhook:
        return hook(self.receiver, rows=1000)

    def rows(self) -> list[dict[str, Any]]:
        return [row for post in self.receiver.taken() for row in post.data["rows"]]

    def seen(self, value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if hasattr(value, "isoformat") and hasattr(value, "hour"):
            return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
        if hasattr(value, "isoformat") or hasattr(value, "as_tuple"):
            return str(value)
        return value


def test_a_post_is_signed_as_standard_webhooks_say(receiver: Receiver) -> None:
    sink = hook(receiver, secret=SECRET, headers={"Authorization": "Bearer x"})
    opened(sink).write("one", 1, [staged(sink, page=["/", "/cart"], n=[1, 2])])
    [post] = receiver.posts
    signed = f"{post.id}.{post.headers['webhook-timestamp']}.".encode() + post.body
    right = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert post.headers["webhook-signature"] == f"v1,{right}"
    assert post.headers["Authorization"] == "Bearer x"
    assert abs(int(post.headers["webhook-timestamp"]) - time.time()) < 60
    assert json.loads(post.body) == {
        "type": "shop.out",
        "data": {"pipeline": "shop", "output": "out", "batch": 1,
                 "rows": [{"page": "/", "n": 1}, {"page": "/cart", "n": 2}]},
    }  # fmt: skip


def test_during_a_rotation_both_secrets_sign(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = bytes(24)
    file = tmp_path / "secret"
    file.write_text("whsec_" + base64.b64encode(other).decode() + "\n")
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    sink = hook(receiver, secret=["${env:HOOK_SECRET}", f"${{file:{file}}}"])
    opened(sink).write("one", 1, [staged(sink, n=[1])])
    [post] = receiver.posts
    signed = f"{post.id}.{post.headers['webhook-timestamp']}.".encode() + post.body
    assert post.headers["webhook-signature"].split(" ") == [
        "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        for key in (KEY, other)
    ]


def test_a_failed_post_is_sent_again_under_the_same_id(receiver: Receiver) -> None:
    receiver.answering(503).answering(429, Retry_After="1")
    waits: list[str] = []
    sink = hook(receiver)
    began = time.monotonic()
    opened(sink, on_wait=waits.append).write("one", 1, [staged(sink, n=[1])])
    assert [post.status for post in receiver.posts] == [503, 429, 200]
    assert len({post.id for post in receiver.posts}) == 1
    assert len({post.body for post in receiver.posts}) == 1
    assert time.monotonic() - began >= 1
    assert "answered 503" in waits[0]
    assert "429" in waits[1]


def test_ids_depend_on_intent_output_and_index(receiver: Receiver) -> None:
    sink = hook(receiver, rows=2)
    rows = [staged(sink, n=[1, 2, 3])]
    opened(sink).write("one", 1, rows)
    opened(sink).write("one", 1, rows)
    opened(sink).write("two", 2, rows)
    ids = [post.id for post in receiver.posts]
    assert ids[:2] == ids[2:4]
    assert len(set(ids)) == 4
    assert [len(post.data["rows"]) for post in receiver.posts] == [2, 1] * 3


def test_rows_sent_again_by_a_rewind_are_marked(receiver: Receiver) -> None:
    sink = hook(receiver)
    opened(sink).write("one", 8, [replace(staged(sink, n=[1]), again=7)])
    assert receiver.posts[0].data["again"] == 7


def test_a_receiver_that_stays_down_stops_the_job(receiver: Receiver) -> None:
    receiver.answering(*[500] * 50)
    sink = hook(receiver)
    with pytest.raises(Unavailable, match=r"needs an answer; got .* answered 500"):
        opened(sink, patience=0.3).write("one", 1, [staged(sink, n=[1])])


def test_410_stops_the_job_in_one_sentence(receiver: Receiver) -> None:
    receiver.answering(410)
    sink = hook(receiver)
    with pytest.raises(Gone, match="410 Gone; remove the webhook"):
        opened(sink).write("one", 1, [staged(sink, n=[1])])
    assert len(receiver.posts) == 1


@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_redirect_is_not_followed(receiver: Receiver, status: int) -> None:
    receiver.answering(status, Location=receiver.url)
    sink = hook(receiver)
    with pytest.raises(InvalidSpec, match="a redirect"):
        opened(sink).write("one", 1, [staged(sink, n=[1])])
    assert len(receiver.posts) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_rejected_post_stops_the_job(receiver: Receiver, status: int) -> None:
    receiver.answering(status)
    sink = hook(receiver)
    with pytest.raises(MillstreamError, match=f"the status {status}"):
        opened(sink).write("one", 1, [staged(sink, n=[1])])
    assert len(receiver.posts) == 1


def test_a_missing_response_times_out() -> None:
    with Receiver(hang=threading.Event()) as slow:
        sink = hook(slow, timeout=0.2)
        with pytest.raises(Unavailable, match="it took too long"):
            opened(sink, patience=0.1).write("one", 1, [staged(sink, n=[1])])


def test_a_closed_port_gives_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    sink = ms.Webhook(f"http://127.0.0.1:{port}/", allow_private=True)
    with pytest.raises(Unavailable, match="no answer from"):
        opened(sink, patience=0.1).write("one", 1, [staged(sink, n=[1])])


def test_a_certificate_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ssl

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with Receiver(tls=context) as receiver:
        sink = hook(receiver)
        with pytest.raises(Unavailable, match="certificate verify failed"):
            opened(sink, patience=0.1).write("one", 1, [staged(sink, n=[1])])
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        opened(sink).write("one", 1, [staged(sink, n=[1])])
        assert len(receiver.taken()) == 1


def test_a_private_address_is_refused_when_connecting(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the address of a host name, which is resolved once, not twice."""
    resolved: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        resolved.append(str(host))
        return real("127.0.0.1", port, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    port = receiver.url.split(":")[2].split("/")[0]
    sink = ms.Webhook(f"https://hooks.example:{port}/")
    with pytest.raises(InvalidSpec, match=r"public address behind hooks\.example"):
        opened(sink).write("one", 1, [staged(sink, n=[1])])
    assert receiver.posts == []
    assert resolved == ["hooks.example"]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "100.64.0.1",
     "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "fe80::1", "fc00::1", "::",
     "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1%eth0"],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111",
                                     "::ffff:1.1.1.1", "64:ff9b::101:101"])  # fmt: skip
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


def test_an_address_from_a_reference_is_checked_when_it_is_resolved(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ms.Webhook("${env:HOOK_URL}")
    monkeypatch.setenv("HOOK_URL", receiver.url)
    with pytest.raises(InvalidSpec, match="needs a public address"):
        opened(sink).write("one", 1, [staged(sink, n=[1])])
    monkeypatch.delenv("HOOK_URL")
    with pytest.raises(InvalidSpec, match="HOOK_URL"):
        opened(sink).write("one", 1, [staged(sink, n=[1])])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"url": "ftp://x/"}, "https://host/path"),
        ({"url": "https://"}, "https://host/path"),
        ({"url": "https://x:notaport/"}, "https://host/path"),
        ({"url": "https://me:canary@x/"}, "without a name and password"),
        ({"url": "http://x.example/canary"}, "needs https"),
        ({"url": "https://127.0.0.1/canary"}, "needs a public address; got the host 127.0.0.1"),
        ({"url": "https://[::1]/"}, "needs a public address"),
        ({"url": "https://localhost:8443/"}, "needs a public address"),
        ({"url": "https://169.254.169.254/latest"}, "needs a public address"),
        ({"url": "https://x\r\nHost: y/"}, "needs an address"),
        ({"url": 7}, "needs an address"),
        ({"url": "https://x/can ary/canary"}, "needs an address"),
        ({"url": "canary ://"}, "needs an address"),
        ({"url": "https://x", "secret": "canary"}, "whsec_"),
        ({"url": "https://x", "headers": {"Host": "y"}}, "that Millstream does not set"),
        ({"url": "https://x", "headers": {"A b": "y"}}, "that Millstream does not set"),
        ({"url": "https://x", "headers": {"A": "x\r\nB: y"}}, "on one line"),
        ({"url": "https://x", "rows": 0}, "from 1 to 1000"),
        ({"url": "https://x", "timeout": True}, "up to 60"),
        ({"url": "https://x", "name": " "}, "needs a name"),
    ],
)
def test_an_invalid_webhook_raises_where_it_is_written(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        ms.Webhook(**options)
    assert sentence in str(refused.value)
    assert "canary" not in str(refused.value)


def test_no_secret_is_in_its_texts(receiver: Receiver) -> None:
    sink = hook(receiver, secret=SECRET, headers={"Authorization": "canary"})
    stream = ms.read(ms.Topic("t", schema="n long"))
    shown = repr(sink) + sink.system + sink.name + ms.Pipeline("p", stream.to(sink)).plan()
    for word in ("canary", SECRET, SECRET[6:]):
        assert word not in shown
    assert "at least once" in shown


def test_a_job_alert_refuses_an_address_that_is_a_secret_and_never_shows_it(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is stored for the supervisor, and its path is often a secret."""
    for url in ("https://hooks.example/services/canary", "https://hooks.example?canary"):
        with pytest.raises(InvalidSpec, match="a literal secret in url") as refused:
            ms.JobAlert("degraded", to=ms.Webhook(url))
        assert "canary" not in str(refused.value)
    for url in ("https://hooks.example/", "https://hooks.example/in/${env:KEY}", "${env:KEY}"):
        assert ms.JobAlert("degraded", to=ms.Webhook(url)).to_json()["to"][0]["url"] == url
    monkeypatch.setenv("KEY", "https://hooks.example/can ary canary")
    sink = ms.Webhook("${env:KEY}")
    with pytest.raises(InvalidSpec, match="needs an address") as refused:
        opened(sink).write("one", 1, [staged(sink, n=[1])])
    assert "canary" not in str(refused.value)


def test_retractions_are_marked_and_a_row_too_large_stops_the_job(receiver: Receiver) -> None:
    sink = hook(receiver)
    table = pa.table({"n": [1, 2], "_sign": pa.array([-1, 1], pa.int8())})
    opened(sink).write("one", 1, [staged(sink, table=table)])
    assert receiver.posts[0].data["rows"] == [{"n": 1, "_sign": -1}, {"n": 2}]
    with pytest.raises(MillstreamError, match="rows of at most"):
        opened(sink).write("two", 2, [staged(sink, text=["x" * 2_000_000])])


KILLED = """
import os, signal, sys
from tests.sinks.batches import opened, staged
import millstream as ms

def kill(point):
    if point == "before a sink's commit":
        os.kill(os.getpid(), signal.SIGKILL)

sink = ms.Webhook(sys.argv[1], allow_private=True)
opened(sink, on_step=kill).write("intent", 4, [staged(sink, n=[1, 2])])
"""


def test_kill_9_between_the_post_and_the_commit_shows_the_same_id_again(
    receiver: Receiver,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, receiver.url], check=False, timeout=240,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    sink = ms.Webhook(receiver.url, allow_private=True)
    opened(sink, epoch=2).write("intent", 4, [staged(sink, n=[1, 2])])
    first, second = receiver.posts
    assert (first.id, first.body) == (second.id, second.body)
